// A device for simulation: the host's slabs and address spaces, so that homes are real mappings and
// touching an evicted parameter is still a fault, under a capacity; copy lanes with a latency and a
// bandwidth on an EventLoop instead of threads; and failures where a FaultPlan says so.
//
//   VirtualClock clock;
//   EventLoop loop({.clock = &clock, .seed = 7});
//   FaultPlan faults({});
//   GANTRY_ASSIGN_OR_RETURN(auto device, CreateFakeDevice({.topology = DeviceTopology::kDiscrete,
//       .bandwidth_bytes_per_second = 1'000'000'000, .latency = 20'000, .clock = &clock,
//       .loop = &loop, .faults = &faults}));
//
// Slabs and address spaces are as thread-safe as those of the host; lanes are for one thread.
#ifndef GANTRY_DEVICE_FAKE_FAKE_DEVICE_H_
#define GANTRY_DEVICE_FAKE_FAKE_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/testing/fault_plan.h"
#include "device/device.h"

namespace gantry {

struct FakeDeviceOptions {
  DeviceTopology topology;
  Bytes capacity = Bytes(0);               // of all slabs of kind kDevice; 0: unlimited
  int64_t bandwidth_bytes_per_second = 0;  // of each lane; 0: only the latency counts
  Nanoseconds latency = 0;                 // of each copy
  // Outlive the device.
  VirtualClock* clock;
  EventLoop* loop;  // on that clock
  FaultPlan* faults;
};

// Errors: kInvalidArgument for a negative capacity, bandwidth or latency.
absl::StatusOr<std::unique_ptr<Device>> CreateFakeDevice(const FakeDeviceOptions& options);

}  // namespace gantry

#endif  // GANTRY_DEVICE_FAKE_FAKE_DEVICE_H_
