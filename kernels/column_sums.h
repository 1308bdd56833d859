// Sums over the rows of a matrix, column by column: gradients of biases and of norms' weights.
//
// Summed in float over fixed blocks of rows (at least 64 rows a block, at most 64 blocks), then
// over the blocks in order, and rounded once. Bits depend on the shape alone, not on threads or
// instruction set. Error: about 1e-7 * sqrt(rows) of the sum of magnitudes.
// Thread-safe on disjoint outputs; no allocation.
#ifndef GANTRY_KERNELS_COLUMN_SUMS_H_
#define GANTRY_KERNELS_COLUMN_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

// sums[i] (+)= sum over rows of matrix[row, i]. f32 or bf16, any row stride.
struct ColumnSumsArgs {
  ConstMatrixView matrix;
  VectorView sums;  // [cols]
  Accumulate accumulate;
  std::span<std::byte> workspace;  // aligned as kWorkspaceAlignment says
};
void ColumnSums(const KernelContext& context, const ColumnSumsArgs& args);

// At most 64 rows of floats.
Bytes ColumnSumsWorkspace(MatrixShape shape);

// Rows of a block, and the number of blocks, of a matrix of `rows`.
int64_t SumBlockRows(int64_t rows);
int64_t SumBlockCount(int64_t rows);

// to (+)= the sum of the rows of partials, in order: what is left once each block has its sums.
// Overwrites `partials`, contiguous [blocks, to.size] floats. No blocks: a sum of zero.
struct SumBlocksArgs {
  float* partials;
  int64_t blocks;
  int64_t row_stride;  // floats from a block to the next, at least to.size
  VectorView to;
  Accumulate accumulate;
};
void SumBlocks(const KernelContext& context, const SumBlocksArgs& args);

// rows[row, i] = row_values[i] for every row: the start of a product that adds to a bias.
struct FillRowsArgs {
  ConstVectorView row_values;
  MatrixView rows;
};
void FillRows(const KernelContext& context, const FillRowsArgs& args);

}  // namespace gantry

#endif  // GANTRY_KERNELS_COLUMN_SUMS_H_
