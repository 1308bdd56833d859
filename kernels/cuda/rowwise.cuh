// Element-by-element work on rows of matrices: a grid whose threads have a pack of columns of one
// or several rows each. Included by .cu files.
#ifndef GANTRY_KERNELS_CUDA_ROWWISE_CUH_
#define GANTRY_KERNELS_CUDA_ROWWISE_CUH_

#include <cstdint>

#include "base/bytes.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"

namespace gantry::cuda {

inline constexpr int kRowwiseThreads = 256;

// Calls body.operator()<count>(row, column) for the thread's packs of kCount elements, and for
// single elements at the end of a row.
template <int kCount, typename Body>
__device__ __forceinline__ void ForRowsAndPacks(int64_t rows, int64_t cols, const Body& body) {
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kCount;
  if (col >= cols) return;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < rows;
       row += stride) {
    if (col + kCount <= cols) {
      body.template operator()<kCount>(row, col);
    } else {
      for (int64_t i = col; i < cols; ++i) body.template operator()<1>(row, i);
    }
  }
}

// REQUIRES: rows and cols are positive.
inline LaunchShape RowwiseShape(int64_t rows, int64_t cols, int64_t count) {
  const int64_t packs = CeilDiv(cols, count);
  int64_t across = 1;  // threads
  while (across < packs && across < kRowwiseThreads) across *= 2;
  const int64_t down = kRowwiseThreads / across;
  constexpr int64_t kGridMax = 65535;
  const int64_t blocks = CeilDiv(rows, down);
  return {.grid = {.x = static_cast<uint32_t>(CeilDiv(packs, across)),
                   .y = static_cast<uint32_t>(blocks < kGridMax ? blocks : kGridMax)},
          .block = {.x = static_cast<uint32_t>(across), .y = static_cast<uint32_t>(down)}};
}

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ROWWISE_CUH_
