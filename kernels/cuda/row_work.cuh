// How row-by-row kernels with sums over rows divide their work: a row belongs to one warp (short
// rows) or to one block, whose threads own packs of columns in strides. Included by .cu files.
#ifndef GANTRY_KERNELS_CUDA_ROW_WORK_CUH_
#define GANTRY_KERNELS_CUDA_ROW_WORK_CUH_

#include <cstdint>

#include "device/cuda/device_code.h"
#include "kernels/cuda/reduce.cuh"

namespace gantry::cuda {

inline constexpr int64_t kWarpColumnsMax = 1024;  // longer rows take a block
inline constexpr int kWarpRowBlockThreads = 128;
inline constexpr int kBlockRowThreads = 256;

// How a kernel divides the work: kRowThreads of the block's kBlockThreads to a row, kCount elements
// at once.
template <int kRowThreadsIn, int kCountIn>
struct RowWork {
  static constexpr int kRowThreads = kRowThreadsIn;
  static constexpr int kBlockThreads =
      kRowThreads == kWarpThreads ? kWarpRowBlockThreads : kBlockRowThreads;
  static constexpr int kGroups = kBlockThreads / kRowThreads;  // rows at once
  static constexpr int kSlots = kBlockThreads / kWarpThreads;
  static constexpr int kCount = kCountIn;

  __device__ static int group() { return static_cast<int>(threadIdx.x) / kRowThreads; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kRowThreads; }
  // Calls body.operator()<count>(column) for the thread's packs of a row.
  template <typename Body>
  __device__ static void ForPacks(int64_t cols, const Body& body) {
    for (int64_t col = int64_t{lane()} * kCount; col < cols; col += kRowThreads * kCount) {
      if (col + kCount <= cols) {
        body.template operator()<kCount>(col);
      } else {
        for (int64_t i = col; i < cols; ++i) body.template operator()<1>(i);
      }
    }
  }
  __device__ static float Sum(float value, float* slots) {
    return ReduceBlock<kRowThreads>(value, SumOf{}, slots);
  }
};

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ROW_WORK_CUH_
