// Copies of 16 bytes from global to shared memory that go on while the thread computes (cp.async,
// compute capability 8.0 and later). The twin for the emulator is strict: it writes the destination
// when the thread waits, and spoils it when a copy starts (without the race detector, which would
// have to follow every byte), so that a test sees who reads or reuses it too early.
//
//   AsyncCopies copies;
//   copies.Start(to, from, inside);   // per thread, as often as wanted
//   copies.EndGroup();
//   copies.Wait<0>();                 // until all groups but the last 0 are there
//   __syncthreads();                  // for what other threads copied
//
// Included by .cu files.
#ifndef GANTRY_KERNELS_CUDA_ASYNC_COPIES_CUH_
#define GANTRY_KERNELS_CUDA_ASYNC_COPIES_CUH_

#include <cstdint>
#include <cstring>

#include "device/cuda/device_code.h"

namespace gantry::cuda {

class AsyncCopies {
 public:
  // Both 16-byte aligned. Where not `inside`, nothing is read and zeros are written.
  __device__ __forceinline__ void Start(void* to, const void* from, bool inside) {
#if defined(__CUDA_ARCH__)
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
#elif !defined(__CUDACC__)
    if (used_ == kPendingMax) Emulator::Current().Fail("has too many copies under way");
    if (!Emulator::Current().shared().finds_races()) std::memset(to, 0xFF, 16);
    pending_[used_++] = {.to = to, .from = inside ? from : nullptr, .group = group_};
#endif
  }
  __device__ __forceinline__ void EndGroup() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif !defined(__CUDACC__)
    ++group_;
#endif
  }
  template <int kGroupsLeft>
  __device__ __forceinline__ void Wait() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_group %0;" : : "n"(kGroupsLeft) : "memory");
#elif !defined(__CUDACC__)
    int kept = 0;
    for (int i = 0; i < used_; ++i) {
      if (pending_[i].group >= group_ - kGroupsLeft) {
        pending_[kept++] = pending_[i];
      } else if (pending_[i].from == nullptr) {
        std::memset(pending_[i].to, 0, 16);
      } else {
        std::memcpy(pending_[i].to, pending_[i].from, 16);
      }
    }
    used_ = kept;
#endif
  }

#if !defined(__CUDACC__)
 private:
  static constexpr int kPendingMax = 256;
  struct Copy {
    void* to;
    const void* from;  // null: zeros
    int group;
  };
  Copy pending_[kPendingMax];  // NOLINT
  int used_ = 0;
  int group_ = 0;
#endif
};

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ASYNC_COPIES_CUH_
