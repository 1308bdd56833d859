#include "kernels/low_rank.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/kernel_context.h"
#include "kernels/matmul.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/low_rank.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// product = weight + scale * product; returns the norm of that.
float AddProductRow(const ConstVectorView& weight, float scale, float* product) {
  float squares = 0.0f;
  WithElementType(weight.dtype, [&]<typename T>(T*) {
    const T* w = weight.As<T>();
    squares = SumChunks(weight.size, [&](int64_t i, int64_t count) {
      const V16 sum = LoadFirst(w + i, count) + Set(scale) * LoadFirst(product + i, count);
      StoreFirst(sum, product + i, count);
      return sum * sum;
    });
  });
  return std::sqrt(squares);
}

void StoreRow(const float* row, float factor, const VectorView& to) {
  WithElementType(to.dtype, [&]<typename T>(T*) {
    for (int64_t i = 0; i < to.size; i += 16) {
      const int64_t count = to.size - i;
      StoreFirst(LoadFirst(row + i, count) * Set(factor), to.As<T>() + i, count);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(AddProductRow);
HWY_EXPORT(StoreRow);

namespace {

constexpr int64_t kBlockRows = 128;
constexpr int64_t kRowsPerTask = 4;

float* TakeBlock(WorkspaceCursor& cursor, MatrixShape weight) {
  return cursor.Take<float>(std::min(kBlockRows, weight.rows) * weight.cols);
}

float ElementOf(const ConstVectorView& values, int64_t i) {
  return values.dtype == DType::kF32 ? values.As<float>()[i]
                                     : static_cast<float>(values.As<BFloat16>()[i]);
}

// body(row, changed row as floats, its norm) for every row of the weight.
template <typename Body>
absl::Status ForChangedRows(const KernelContext& context, const ConstMatrixView& weight,
                            const LowRankChange& change, std::span<std::byte> workspace,
                            const Body& body) {
  const MatrixShape shape = ShapeOf(weight);
  GANTRY_CHECK_EQ(change.a.cols, shape.cols);
  GANTRY_CHECK_EQ(change.b.rows, shape.rows);
  GANTRY_CHECK_EQ(change.a.rows, change.b.cols);
  WorkspaceCursor cursor(workspace);
  float* block = TakeBlock(cursor, shape);
  for (int64_t first = 0; first < shape.rows; first += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, shape.rows - first);
    const MatrixView product = {.data = reinterpret_cast<std::byte*>(block),
                                .dtype = DType::kF32,
                                .rows = rows,
                                .cols = shape.cols,
                                .row_stride = shape.cols};
    GANTRY_RETURN_IF_ERROR(
        Multiply(context, {.a = {.view = change.b.Rows(first, rows), .transpose = Transpose::kNo},
                           .b = {.view = change.a, .transpose = Transpose::kNo},
                           .c = product,
                           .accumulate = Accumulate::kOverwrite}));
    context.team->For({.count = rows, .grain = kRowsPerTask}, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* values = block + row * shape.cols;
        const float norm =
            HWY_DYNAMIC_DISPATCH(AddProductRow)(weight.RowView(first + row), change.scale, values);
        body(first + row, values, norm);
      }
    });
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RowNorms(const KernelContext& context, const RowNormsArgs& args) {
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.norms.size()), args.weight.rows);
  return ForChangedRows(
      context, args.weight, args.change, args.workspace,
      [&](int64_t row, const float*, float norm) { args.norms[static_cast<size_t>(row)] = norm; });
}

absl::Status MergeLowRank(const KernelContext& context, const MergeLowRankArgs& args) {
  if (args.magnitude) GANTRY_CHECK_EQ(args.magnitude->size, args.weight.rows);
  return ForChangedRows(context, args.weight, args.change, args.workspace,
                        [&](int64_t row, const float* values, float norm) {
                          const float factor =
                              args.magnitude ? ElementOf(*args.magnitude, row) / norm : 1.0f;
                          HWY_DYNAMIC_DISPATCH(StoreRow)(values, factor, args.weight.RowView(row));
                        });
}

Bytes LowRankWorkspace(MatrixShape weight) {
  WorkspaceCursor counting;
  TakeBlock(counting, weight);
  return counting.taken();
}

}  // namespace gantry
#endif  // HWY_ONCE
