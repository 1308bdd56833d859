// Sums of squares of vectors in device memory, and whether all their elements are finite: what the
// norm of a gradient and the check for overflow need.
//
// Vectors are f32, bf16 or f16, of any size and alignment (16-byte aligned ones are read fastest,
// once, at the rate of memory). Squares are exact in double and summed in double in an order that
// the size alone decides: the same bits on every run. Each call puts its work on the stream, does
// not wait, allocates nothing, and returns a cudaError (0: none).
#ifndef GANTRY_KERNELS_CUDA_SUM_SQUARES_H_
#define GANTRY_KERNELS_CUDA_SUM_SQUARES_H_

#include <cstdint>
#include <span>

#include "device/cuda/stream.h"
#include "kernels/views.h"

namespace gantry::cuda {

// sum (+)= sum over i of values[i]^2. All pointers are of device memory.
struct SumSquaresArgs {
  ConstVectorView values;
  Accumulate accumulate;        // of `sum`
  double* sum;                  // NaN or infinite where an element is not finite
  uint32_t* not_finite;         // becomes 1 where an element is not finite, else stays as it is
  std::span<double> workspace;  // at least SumSquaresWorkspace(values.size) elements
};
int SumSquares(CudaStream stream, const SumSquaresArgs& args);
int64_t SumSquaresWorkspace(int64_t size);  // at most 1024 elements

// Writes 1 to *not_finite where an element is an infinity or a NaN, else leaves it as it is, so
// that one flag can serve many vectors.
int FindNotFinite(CudaStream stream, ConstVectorView values, uint32_t* not_finite);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_SUM_SQUARES_H_
