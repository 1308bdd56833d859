// Matrix products of several groups of rows, each with a weight of its own, on tensor cores
// (compute capability 8.0 and later): the experts of a mixture, whose numbers of rows only the
// device knows.
//
//   out[rows of g] = x[rows of g] weight[g]^T,   rows of g: offsets[g] .. offsets[g + 1] - 1
//
// x is [rows, in], out [rows, out], weight [groups * out, in] (one [out, in] below the other); all
// bf16 or all f16; `in` and `out` multiples of 8, rows aligned to 16 bytes. Rows beyond the last
// offset are neither read nor written. Sums are in float, in an order that the shapes alone decide,
// and rounded once: the same bits on every run. Error: about 1e-6 * sqrt(depth) of the product of
// the norms, plus a rounding.
//
// A block computes 128 x 128 elements with 60 KiB of shared memory. Pointers are of device memory.
// Each call puts its work on the stream, does not wait, allocates nothing, and returns a cudaError
// (0: none).
#ifndef GANTRY_KERNELS_CUDA_GROUPED_MATMUL_H_
#define GANTRY_KERNELS_CUDA_GROUPED_MATMUL_H_

#include <cstdint>
#include <span>

#include "device/cuda/stream.h"
#include "kernels/views.h"

namespace gantry::cuda {

struct GroupedForwardArgs {
  ConstMatrixView x;
  ConstMatrixView weight;
  std::span<const int32_t> offsets;  // [groups + 1], ascending from 0
  MatrixView out;
};
int GroupedForward(CudaStream stream, const GroupedForwardArgs& args);

// grad_x[rows of g] = grad_out[rows of g] weight[g].
struct GroupedBackwardInputArgs {
  ConstMatrixView grad_out;
  ConstMatrixView weight;
  std::span<const int32_t> offsets;
  MatrixView grad_x;
};
int GroupedBackwardInput(CudaStream stream, const GroupedBackwardInputArgs& args);

// grad_weight[g] (+)= grad_out[rows of g]^T x[rows of g]; zero for a group without rows.
struct GroupedBackwardWeightArgs {
  ConstMatrixView grad_out;
  ConstMatrixView x;
  std::span<const int32_t> offsets;
  MatrixView grad_weight;  // of x's type or f32
  Accumulate accumulate;
};
int GroupedBackwardWeight(CudaStream stream, const GroupedBackwardWeightArgs& args);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_GROUPED_MATMUL_H_
