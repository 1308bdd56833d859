// The CPU as a device.
//   unified:  device and host tier are one memory; there are no copy lanes to speak of.
//   emulated: a separate capped "device" slab with copy lanes of settable bandwidth and latency, so
//             that the whole three-tier machinery runs, and can be timed, without a GPU.
// Slots are moved between parking and home addresses with mremap of 2 MiB-aligned, MADV_HUGEPAGE
// anonymous memory (design D1); no 4 KiB page is faulted in steady state when slot_bytes is a
// multiple of 2 MiB. A slab of kHostPinned is the same memory that never moves; it is not mlocked.
//
// Thread-safe. Slabs and address spaces must be destroyed before the device, address spaces before
// their slab; pages that are still mapped then go back to parking. Each slot of a device slab can
// need two mappings of the process (sysctl vm.max_map_count), which CreateSlab checks.
#ifndef GANTRY_DEVICE_HOST_HOST_DEVICE_H_
#define GANTRY_DEVICE_HOST_HOST_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "device/device.h"

namespace gantry {

struct HostDeviceOptions {
  DeviceTopology topology;  // kUnified, or kDiscrete for the emulated device
  // Copy lanes, in both topologies: a copy of n bytes takes at least latency + n / bandwidth.
  // 0 = as fast as memcpy.
  int64_t bandwidth_bytes_per_second = 0;
  int64_t latency_nanoseconds = 0;
  Clock* clock;  // outlives the device
};

// Errors: kInvalidArgument for a negative bandwidth or latency.
absl::StatusOr<std::unique_ptr<Device>> CreateHostDevice(const HostDeviceOptions& options);

}  // namespace gantry

#endif  // GANTRY_DEVICE_HOST_HOST_DEVICE_H_
