// Rows moved by index on a CUDA device: what sends tokens to experts and brings them back.
//
// Matrices are f32, bf16 or f16, any row strides; fastest where rows are aligned to 16 bytes, each
// element read and written once. Indices are row numbers or -1 (no row); nobody checks them. Sums
// are in float in the order of the indices and rounded once: the same bits on every run.
//
// Pointers are of device memory. Each call puts its work on the stream, does not wait, and returns
// a cudaError (0: none).
#ifndef GANTRY_KERNELS_CUDA_ROWS_H_
#define GANTRY_KERNELS_CUDA_ROWS_H_

#include <cstdint>
#include <span>

#include "device/cuda/stream.h"
#include "kernels/views.h"

namespace gantry::cuda {

// to[i] = from[indices[i] / divisor], a row of zeros for -1. (With the assignments of tokens to
// `divisor` experts each as indices, the token's row.)
struct GatherRowsArgs {
  ConstMatrixView from;
  std::span<const int32_t> indices;  // [to.rows]
  int32_t divisor;                   // positive
  MatrixView to;                     // of from's type; may not overlap it
};
int GatherRows(CudaStream stream, const GatherRowsArgs& args);

// to[indices[i]] = from[i]; nothing for -1. REQUIRES: all others differ.
struct ScatterRowsArgs {
  ConstMatrixView from;
  std::span<const int32_t> indices;  // [from.rows]
  MatrixView to;                     // of from's type; may not overlap it
};
int ScatterRows(CudaStream stream, const ScatterRowsArgs& args);

// to[t] = sum over k of weights[t, k] * from[indices[t, k]], of which there are `terms` for each t.
// The gradient of GatherRows, too: without weights they count as 1.
struct CombineRowsArgs {
  ConstMatrixView from;
  std::span<const int32_t> indices;  // [to.rows, terms]
  std::span<const float> weights;    // [to.rows, terms], or empty
  int64_t terms;                     // positive
  MatrixView to;                     // of from's type; may not overlap it
};
int CombineRows(CudaStream stream, const CombineRowsArgs& args);

// grad_from[indices[t, k]] = weights[t, k] * grad_to[t],
// grad_weights[t, k] = from[indices[t, k]] . grad_to[t] (0 for -1).
// Rows of grad_from that no index names are left as they are. REQUIRES: all indices but -1 differ.
struct CombineRowsBackwardArgs {
  ConstMatrixView from;
  std::span<const int32_t> indices;
  std::span<const float> weights;
  int64_t terms;
  ConstMatrixView grad_to;
  MatrixView grad_from;
  std::span<float> grad_weights;
};
int CombineRowsBackward(CudaStream stream, const CombineRowsBackwardArgs& args);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ROWS_H_
