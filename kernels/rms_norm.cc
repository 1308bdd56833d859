#include "kernels/rms_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/column_sums.h"
#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

template <typename T, typename W>
HWY_INLINE void NormaliseRow(const T* h, const W* weight, float rstd, int64_t cols, T* y) {
  for (int64_t i = 0; i < cols; i += 16) {
    const V16 h_hat = RoundTo<T>(LoadFirst(h + i, cols - i) * Set(rstd));
    StoreFirst(h_hat * LoadFirst(weight + i, cols - i), y + i, cols - i);
  }
}

template <typename T>
HWY_INLINE void AddRow(const T* x, const T* residual, int64_t cols, T* sum) {
  for (int64_t i = 0; i < cols; i += 16) {
    StoreFirst(LoadFirst(x + i, cols - i) + LoadFirst(residual + i, cols - i), sum + i, cols - i);
  }
}

void RmsNormForwardRow(const RmsNormForwardArgs& args, int64_t row) {
  const int64_t channels = args.weight.size;
  WithElementType(args.x.dtype, [&]<typename T>(T*) {
    const T* h = args.x.Row<T>(row);
    if (args.residual.has_value()) {
      AddRow(h, args.residual->Row<T>(row), args.x.cols, args.sum->Row<T>(row));
      h = args.sum->Row<T>(row);
    }
    T* y = args.y.Row<T>(row);
    for (int64_t group = 0; group < args.groups; ++group, h += channels, y += channels) {
      const float squares = SumChunks(channels, [&](int64_t i, int64_t count) {
        const V16 value = LoadFirst(h + i, count);
        return value * value;
      });
      const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(channels) + args.epsilon);
      args.rstd[static_cast<size_t>(row * args.groups + group)] = rstd;
      WithElementType(args.weight.dtype, [&]<typename W>(W*) {
        NormaliseRow(h, args.weight.As<W>(), rstd, channels, y);
      });
    }
  });
}

// One row of RmsNormBackwardRow, in its element types.
template <typename T>
struct BackwardRow {
  const T* h;
  const T* grad_y;
  const T* grad_residual;  // or null
  T* grad_h;
  float* weight_sums;  // or null
  float rstd;
  int64_t cols;
};

template <typename T, typename W>
HWY_INLINE void BackwardOfRow(const BackwardRow<T>& row, const W* weight) {
  const V16 rstd = Set(row.rstd);
  const float sum = SumChunks(row.cols, [&](int64_t i, int64_t count) {
    const V16 h_hat = LoadFirst(row.h + i, count) * rstd;
    return (LoadFirst(row.grad_y + i, count) * LoadFirst(weight + i, count)) * h_hat;
  });
  const V16 mean = Set(sum / static_cast<float>(row.cols));
  for (int64_t i = 0; i < row.cols; i += 16) {
    const int64_t count = row.cols - i;
    const V16 h_hat = LoadFirst(row.h + i, count) * rstd;
    const V16 grad_y = LoadFirst(row.grad_y + i, count);
    if (row.weight_sums != nullptr) {
      StoreFirst(LoadFirst(row.weight_sums + i, count) + grad_y * h_hat, row.weight_sums + i,
                 count);
    }
    V16 grad_h = rstd * (grad_y * LoadFirst(weight + i, count) - h_hat * mean);
    if (row.grad_residual != nullptr) grad_h = grad_h + LoadFirst(row.grad_residual + i, count);
    StoreFirst(grad_h, row.grad_h + i, count);
  }
}

void RmsNormBackwardRow(const RmsNormBackwardArgs& args, int64_t row, float* weight_sums) {
  const int64_t channels = args.weight.size;
  WithElementType(args.h.dtype, [&]<typename T>(T*) {
    for (int64_t group = 0; group < args.groups; ++group) {
      const int64_t column = group * channels;
      const BackwardRow<T> view = {
          .h = args.h.Row<T>(row) + column,
          .grad_y = args.grad_y.Row<T>(row) + column,
          .grad_residual = args.grad_residual ? args.grad_residual->Row<T>(row) + column : nullptr,
          .grad_h = args.grad_h.Row<T>(row) + column,
          .weight_sums = weight_sums,
          .rstd = args.rstd[static_cast<size_t>(row * args.groups + group)],
          .cols = channels};
      WithElementType(args.weight.dtype,
                      [&]<typename W>(W*) { BackwardOfRow(view, args.weight.As<W>()); });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(RmsNormForwardRow);
HWY_EXPORT(RmsNormBackwardRow);

namespace {

constexpr int64_t kForwardRowsPerTask = 16;

float* TakePartials(WorkspaceCursor& cursor, MatrixShape shape) {
  return cursor.Take<float>(SumBlockCount(shape.rows) * shape.cols);
}

void CheckBackward(const RmsNormBackwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.h);
  CheckMatrix(args.grad_y, shape, args.h.dtype, "grad_y");
  CheckMatrix(args.grad_h, shape, args.h.dtype, "grad_h");
  if (args.grad_residual) {
    CheckMatrix(*args.grad_residual, shape, args.h.dtype, "grad_residual");
  }
  GANTRY_CHECK_EQ(args.weight.size * args.groups, shape.cols);
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.rstd.size()), shape.rows * args.groups);
  if (args.grad_weight) GANTRY_CHECK_EQ(args.grad_weight->size, args.weight.size);
}

}  // namespace

void RmsNormForward(const KernelContext& context, const RmsNormForwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.x);
  CheckMatrix(args.y, shape, args.x.dtype, "y");
  GANTRY_CHECK_EQ(args.residual.has_value(), args.sum.has_value());
  if (args.residual) {
    CheckMatrix(*args.residual, shape, args.x.dtype, "residual");
    CheckMatrix(*args.sum, shape, args.x.dtype, "sum");
  }
  GANTRY_CHECK_EQ(args.weight.size * args.groups, shape.cols);
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.rstd.size()), shape.rows * args.groups);
  context.team->For({.count = shape.rows, .grain = kForwardRowsPerTask},
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        HWY_DYNAMIC_DISPATCH(RmsNormForwardRow)(args, row);
                      }
                    });
}

void RmsNormBackward(const KernelContext& context, const RmsNormBackwardArgs& args) {
  CheckBackward(args);
  const MatrixShape shape = {.rows = args.h.rows, .cols = args.weight.size};
  float* partials = nullptr;
  if (args.grad_weight) {
    WorkspaceCursor cursor(args.workspace);
    partials = TakePartials(cursor, shape);
  }
  const int64_t rows_per_block = SumBlockRows(shape.rows);
  context.team->For({.count = shape.rows, .grain = rows_per_block},
                    [&](int64_t begin, int64_t end) {
                      float* sums = nullptr;
                      if (partials != nullptr) {
                        sums = partials + begin / rows_per_block * shape.cols;
                        std::fill_n(sums, shape.cols, 0.0f);
                      }
                      for (int64_t row = begin; row < end; ++row) {
                        HWY_DYNAMIC_DISPATCH(RmsNormBackwardRow)(args, row, sums);
                      }
                    });
  if (!args.grad_weight) return;
  SumBlocks(context, {.partials = partials,
                      .blocks = SumBlockCount(shape.rows),
                      .row_stride = shape.cols,
                      .to = *args.grad_weight,
                      .accumulate = args.accumulate});
}

Bytes RmsNormBackwardWorkspace(MatrixShape shape) {
  WorkspaceCursor counting;
  TakePartials(counting, shape);
  return counting.taken();
}

}  // namespace gantry
#endif  // HWY_ONCE
