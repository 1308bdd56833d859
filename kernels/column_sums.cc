#include "kernels/column_sums.h"

#include <algorithm>
#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/convert.h"
#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/column_sums.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// sums[i] = sum over rows begin .. end-1, in order.
void SumRows(const ConstMatrixView& matrix, int64_t begin, int64_t end, float* sums) {
  WithElementType(matrix.dtype, [&]<typename T>(T*) {
    for (int64_t row = begin; row < end; ++row) {
      const T* values = matrix.Row<T>(row);
      for (int64_t i = 0; i < matrix.cols; i += 16) {
        const int64_t count = matrix.cols - i;
        const V16 value = LoadFirst(values + i, count);
        StoreFirst(row == begin ? value : LoadFirst(sums + i, count) + value, sums + i, count);
      }
    }
  });
}

// Block 0 becomes the sum of all, for columns begin .. end-1.
void SumPartials(const SumBlocksArgs& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += 16) {
    V16 sum = LoadFirst(args.partials + i, end - i);
    for (int64_t block = 1; block < args.blocks; ++block) {
      sum = sum + LoadFirst(args.partials + block * args.row_stride + i, end - i);
    }
    StoreFirst(sum, args.partials + i, end - i);
  }
}

void FillRow(const FillRowsArgs& args, int64_t row) {
  WithElementType(args.row_values.dtype, [&]<typename V>(V*) {
    WithElementType(args.rows.dtype, [&]<typename T>(T*) {
      const V* values = args.row_values.As<V>();
      T* to = args.rows.Row<T>(row);
      for (int64_t i = 0; i < args.rows.cols; i += 16) {
        StoreFirst(LoadFirst(values + i, args.rows.cols - i), to + i, args.rows.cols - i);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(SumRows);
HWY_EXPORT(SumPartials);
HWY_EXPORT(FillRow);

namespace {

constexpr int64_t kColumnsPerTask = 512;
constexpr int64_t kFilledRowsPerTask = 16;

}  // namespace

int64_t SumBlockRows(int64_t rows) { return std::max<int64_t>(64, CeilDiv(rows, 64)); }

int64_t SumBlockCount(int64_t rows) { return CeilDiv(rows, SumBlockRows(rows)); }

void SumBlocks(const KernelContext& context, const SumBlocksArgs& args) {
  if (args.blocks == 0) {
    if (args.accumulate == Accumulate::kOverwrite) FillZero(args.to);
    return;
  }
  GANTRY_CHECK_GE(args.row_stride, args.to.size);
  context.team->For(
      {.count = args.to.size, .grain = kColumnsPerTask}, [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(SumPartials)(args, begin, end);
        ConvertFromFloat(args.partials + begin, args.to.Part(begin, end - begin), args.accumulate);
      });
}

void ColumnSums(const KernelContext& context, const ColumnSumsArgs& args) {
  GANTRY_CHECK_EQ(args.sums.size, args.matrix.cols);
  const int64_t rows = args.matrix.rows;
  const int64_t cols = args.matrix.cols;
  WorkspaceCursor cursor(args.workspace);
  float* partials = cursor.Take<float>(SumBlockCount(rows) * cols);
  const int64_t block_rows = SumBlockRows(rows);
  context.team->For({.count = rows, .grain = block_rows}, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SumRows)(args.matrix, begin, end, partials + begin / block_rows * cols);
  });
  SumBlocks(context, {.partials = partials,
                      .blocks = SumBlockCount(rows),
                      .row_stride = cols,
                      .to = args.sums,
                      .accumulate = args.accumulate});
}

Bytes ColumnSumsWorkspace(MatrixShape shape) {
  WorkspaceCursor counting;
  counting.Take<float>(SumBlockCount(shape.rows) * shape.cols);
  return counting.taken();
}

void FillRows(const KernelContext& context, const FillRowsArgs& args) {
  GANTRY_CHECK_EQ(args.row_values.size, args.rows.cols);
  context.team->For({.count = args.rows.rows, .grain = kFilledRowsPerTask},
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        HWY_DYNAMIC_DISPATCH(FillRow)(args, row);
                      }
                    });
}

}  // namespace gantry
#endif  // HWY_ONCE
