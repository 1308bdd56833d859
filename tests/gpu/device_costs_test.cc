// The measurements run, on an emulated GPU: what they print there says nothing of any time.
#include "tests/gpu/device_costs.h"

#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/testing/status_matchers.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/emulation/emulated_cuda_calls.h"

namespace gantry {
namespace {

TEST(DeviceCosts, AreMeasuredForEachSlotSize) {
  EmulatedCudaCalls calls({});
  MonotonicClock clock;
  MemoryLogger logger;
  {
    auto device = CreateCudaDevice({.calls = &calls, .clock = &clock, .logger = &logger});
    ASSERT_THAT(device, IsOk());
    const auto costs = MeasureDeviceCosts({.calls = &calls,
                                           .device = device->get(),
                                           .clock = &clock,
                                           .slot_bytes = {64_KiB, 128_KiB},
                                           .slots = 4,
                                           .rounds = 3});
    ASSERT_THAT(costs, IsOk());
    EXPECT_NE(costs->find("\"slot_bytes\": 131072"), std::string::npos) << *costs;
    EXPECT_NE(costs->find("\"both_gb_s\": "), std::string::npos) << *costs;
  }
  EXPECT_THAT(calls.misuse(), IsOk());
  EXPECT_EQ(calls.live(), 0);
}

}  // namespace
}  // namespace gantry
