// Sums over the rows of a matrix in device memory: the gradient of a bias, and the second stage of
// other sums over rows.
//
// Values and sums are f32, bf16 or f16, any row stride and alignment (16-byte aligned rows are read
// fastest, once). Added in float, in an order that the shape alone decides: the same bits on every
// run; rounded once when stored. Error: about 1e-7 * sqrt(rows) of the sum of magnitudes. The call
// puts its work on the stream, does not wait, allocates nothing, and returns a cudaError (0: none).
#ifndef GANTRY_KERNELS_CUDA_COLUMN_SUMS_H_
#define GANTRY_KERNELS_CUDA_COLUMN_SUMS_H_

#include <cstddef>
#include <span>

#include "base/bytes.h"
#include "device/cuda/stream.h"
#include "kernels/views.h"

namespace gantry::cuda {

// sums[j] (+)= sum over rows i of values[i, j].
struct ColumnSumsArgs {
  ConstMatrixView values;
  VectorView sums;  // [values.cols]
  Accumulate accumulate;
  std::span<std::byte> workspace;  // in device memory, aligned to 16 bytes
};
int ColumnSums(CudaStream stream, const ColumnSumsArgs& args);
// Nothing up to 256 rows, at most 128 rows of floats beyond.
Bytes ColumnSumsWorkspace(MatrixShape shape);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_COLUMN_SUMS_H_
