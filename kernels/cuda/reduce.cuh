// Sums and maxima over the threads of a warp or a block, in an order that the shape alone decides:
// the same bits on every run. Included by .cu files.
#ifndef GANTRY_KERNELS_CUDA_REDUCE_CUH_
#define GANTRY_KERNELS_CUDA_REDUCE_CUH_

#include <cstdint>

#include "device/cuda/device_code.h"

namespace gantry::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr uint32_t kWholeWarp = 0xffffffffU;

struct SumOf {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct MaximumOf {
  // The second where either is NaN.
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

// Every lane gets the result. REQUIRES: all lanes of the warp call it.
template <typename T, typename Operation>
__device__ __forceinline__ T ReduceWarp(T value, Operation operation) {
#pragma unroll
  for (int width = kWarpThreads / 2; width > 0; width /= 2) {
    value = operation(value, __shfl_xor_sync(kWholeWarp, value, width));
  }
  return value;
}

// Every thread gets the result. `slots` is shared memory of one element a warp, free again after
// the caller's next barrier. REQUIRES: all threads of the block of kThreads call it.
template <int kThreads, typename T, typename Operation>
__device__ __forceinline__ T ReduceBlock(T value, Operation operation, T* slots) {
  value = ReduceWarp(value, operation);
  if constexpr (kThreads == kWarpThreads) return value;
  if (threadIdx.x % kWarpThreads == 0) slots[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  value = slots[0];
#pragma unroll
  for (int warp = 1; warp < kThreads / kWarpThreads; ++warp) value = operation(value, slots[warp]);
  return value;
}

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_REDUCE_CUH_
