// What every Device must do, as one parameterised suite. A backend's test links
// //device/testing:device_conformance and instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Host, DeviceConformanceTest, ::testing::Values(DeviceUnderTest{...}),
//                            DeviceUnderTestName);
//
// The suite touches device memory through copy lanes only, never with a pointer, so that it serves
// devices whose memory the host cannot read.
#ifndef GANTRY_DEVICE_TESTING_DEVICE_CONFORMANCE_H_
#define GANTRY_DEVICE_TESTING_DEVICE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "device/device.h"
#include "device/testing/recording_sink.h"

namespace gantry {

struct DeviceUnderTest {
  std::string name;  // letters and digits
  std::function<std::unique_ptr<Device>()> create;
  Bytes slot_bytes;
  // Of a device whose lanes run on an event loop: lets time go on by one event, false when there is
  // none. Empty: lanes have threads. Cases that submit from several threads are skipped with it.
  std::function<bool()> run_next = {};
  // Why this machine lacks the device; its cases are skipped and say so. Empty: it is there.
  std::string missing = {};
};
std::string DeviceUnderTestName(const ::testing::TestParamInfo<DeviceUnderTest>& info);

class DeviceConformanceTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override;

  std::unique_ptr<Slab> MakeSlab(MemoryKind kind, int64_t slots);
  std::unique_ptr<AddressSpace> MakeSpace(Slab* slab, int64_t pages);
  // Fills the slot-sized device range at `address` with the pattern of `value`, through host
  // memory.
  void Fill(std::byte* address, uint64_t value);
  // All completions, of which there are at least `count`.
  static std::vector<RecordingSink::Completion> WaitFor(RecordingSink& sink, size_t count);
  // Whether the range holds the pattern of `value` in every word.
  bool Holds(const std::byte* address, uint64_t value);

  Bytes slot_bytes() const { return GetParam().slot_bytes; }
  std::byte* Page(const AddressSpace& space, int64_t page) const {
    return space.base() + page * slot_bytes().count();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Slab> staging_;  // one slot of host memory
  RecordingSink up_sink_{nullptr};
  RecordingSink down_sink_{nullptr};
  std::unique_ptr<CopyLane> up_;
  std::unique_ptr<CopyLane> down_;

 private:
  void Copy(CopyLane& lane, RecordingSink& sink, const CopyRequest& request);
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_TESTING_DEVICE_CONFORMANCE_H_
