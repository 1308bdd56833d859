// Pinned slabs: exact sizes, slices of whole slots, and what is left when one cannot be pinned.
#include "device/cuda/cuda_host_slab.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/testing/status_matchers.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/emulation/emulated_cuda_calls.h"
#include "device/cuda/stream.h"
#include "device/device.h"

namespace gantry {
namespace {

class CudaHostSlabTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<CudaHostSlab>> Create(const EmulatedGpuOptions& gpu, int64_t slots,
                                                       Bytes slice) {
    calls_ = std::make_unique<EmulatedCudaCalls>(gpu);
    context_ = std::make_unique<CudaContext>(CudaContext::Options{.calls = calls_.get(),
                                                                  .device = 0,
                                                                  .name = "GPU 0",
                                                                  .granularity = 64_KiB,
                                                                  .virtual_memory = true,
                                                                  .clock = &clock_,
                                                                  .logger = &logger_});
    return CudaHostSlab::Create(
        {.slab = {.kind = MemoryKind::kHostPinned, .slot_bytes = 64_KiB, .slot_count = slots},
         .context = context_.get(),
         .slice_bytes = slice});
  }

  MonotonicClock clock_;
  MemoryLogger logger_;
  std::unique_ptr<EmulatedCudaCalls> calls_;
  std::unique_ptr<CudaContext> context_;
};

TEST_F(CudaHostSlabTest, IsRegisteredInSlicesOfWholeSlots) {
  struct Case {
    int64_t slots;
    Bytes slice;
    int64_t registrations;
  };
  for (const Case& c : {Case{0, 64_KiB, 0}, Case{1, 1_GiB, 1}, Case{5, 1_GiB, 1},
                        Case{5, 160_KiB, 3}, Case{4, 128_KiB, 2}, Case{3, 4_KiB, 3}}) {
    SCOPED_TRACE(testing::Message() << c.slots << " slots in slices of " << c.slice);
    {
      auto slab = Create({}, c.slots, c.slice);
      ASSERT_THAT(slab, IsOk());
      EXPECT_EQ(calls_->live(), c.registrations);
      // Each slot can be copied as one.
      CudaStream stream = nullptr;
      std::byte* device = nullptr;
      ASSERT_EQ(calls_->CreateStream(&stream), CudaError::kNone);
      ASSERT_EQ(calls_->Allocate(64_KiB, &device), CudaError::kNone);
      for (int64_t slot = 0; slot < c.slots; ++slot) {
        EXPECT_EQ(
            calls_->CopyToDevice(
                {.destination = device, .source = (*slab)->parking(SlotId(slot)), .bytes = 64_KiB},
                stream),
            CudaError::kNone);
      }
      ASSERT_EQ(calls_->SynchronizeStream(stream), CudaError::kNone);
      ASSERT_EQ(calls_->Free(device), CudaError::kNone);
      ASSERT_EQ(calls_->DestroyStream(stream), CudaError::kNone);
    }
    EXPECT_EQ(calls_->live(), 0);
    EXPECT_THAT(calls_->misuse(), IsOk());
  }
}

TEST_F(CudaHostSlabTest, GivesBackWhatWasPinnedWhenASliceIsRefused) {
  // 0 is cudaSetDevice.
  EXPECT_THAT(Create({.failing_call = 3, .call_error = CudaError::kOutOfMemory}, 6, 128_KiB),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "cudaHostRegister(128.0 KiB) of 384.0 KiB, of which 256.0 KiB are pinned"));
  EXPECT_EQ(calls_->live(), 0);
}

}  // namespace
}  // namespace gantry
