#include "kernels/layer_norm.h"

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
#define HWY_TARGET_INCLUDE "kernels/layer_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

#ifndef GANTRY_KERNELS_LAYER_NORM_TYPES_
#define GANTRY_KERNELS_LAYER_NORM_TYPES_
namespace gantry {

// Sums of one block of rows, or null for a frozen parameter.
struct LayerNormSums {
  float* weight;
  float* bias;
};

}  // namespace gantry
#endif  // GANTRY_KERNELS_LAYER_NORM_TYPES_

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void AddRow(const T* x, const T* residual, int64_t cols, T* sum) {
  for (int64_t i = 0; i < cols; i += 16) {
    StoreFirst(LoadFirst(x + i, cols - i) + LoadFirst(residual + i, cols - i), sum + i, cols - i);
  }
}

struct MeanAndRstd {
  float mean;
  float rstd;
};

template <typename T>
HWY_INLINE MeanAndRstd StatisticsOf(const T* h, int64_t cols, float epsilon) {
  const float sum =
      SumChunks(cols, [&](int64_t i, int64_t count) { return LoadFirst(h + i, count); });
  const float mean = sum / static_cast<float>(cols);
  const float squares = SumChunks(cols, [&](int64_t i, int64_t count) {
    const V16 centered = KeepFirst(LoadFirst(h + i, count) - Set(mean), count, 0.0f);
    return centered * centered;
  });
  return {.mean = mean, .rstd = 1.0f / std::sqrt(squares / static_cast<float>(cols) + epsilon)};
}

template <typename T, typename W>
HWY_INLINE void NormaliseRow(const LayerNormForwardArgs& args, const T* h,
                             const MeanAndRstd& statistics, T* y) {
  const int64_t cols = args.x.cols;
  const W* weight = args.weight.As<W>();
  const W* bias = args.bias.As<W>();
  for (int64_t i = 0; i < cols; i += 16) {
    const int64_t count = cols - i;
    const V16 h_hat = (LoadFirst(h + i, count) - Set(statistics.mean)) * Set(statistics.rstd);
    StoreFirst(h_hat * LoadFirst(weight + i, count) + LoadFirst(bias + i, count), y + i, count);
  }
}

void LayerNormForwardRow(const LayerNormForwardArgs& args, int64_t row) {
  const int64_t cols = args.x.cols;
  WithElementType(args.x.dtype, [&]<typename T>(T*) {
    const T* h = args.x.Row<T>(row);
    if (args.residual.has_value()) {
      AddRow(h, args.residual->Row<T>(row), cols, args.sum->Row<T>(row));
      h = args.sum->Row<T>(row);
    }
    const MeanAndRstd statistics = StatisticsOf(h, cols, args.epsilon);
    args.statistics.mean[static_cast<size_t>(row)] = statistics.mean;
    args.statistics.rstd[static_cast<size_t>(row)] = statistics.rstd;
    WithElementType(args.weight.dtype, [&]<typename W>(W*) {
      NormaliseRow<T, W>(args, h, statistics, args.y.Row<T>(row));
    });
  });
}

template <typename T, typename W>
void BackwardOfRow(const LayerNormBackwardArgs& args, int64_t row, const LayerNormSums& sums) {
  const int64_t cols = args.h.cols;
  const T* h = args.h.Row<T>(row);
  const T* grad_y = args.grad_y.Row<T>(row);
  const T* grad_residual = args.grad_residual ? args.grad_residual->Row<T>(row) : nullptr;
  T* grad_h = args.grad_h.Row<T>(row);
  const W* weight = args.weight.As<W>();
  const V16 mean = Set(args.statistics.mean[static_cast<size_t>(row)]);
  const V16 rstd = Set(args.statistics.rstd[static_cast<size_t>(row)]);
  const auto scaled = [&](int64_t i, int64_t count) {
    return LoadFirst(grad_y + i, count) * LoadFirst(weight + i, count);
  };
  const auto normalised = [&](int64_t i, int64_t count) {
    return (LoadFirst(h + i, count) - mean) * rstd;
  };
  const float scaled_sum = SumChunks(cols, scaled);
  const float product_sum = SumChunks(cols, [&](int64_t i, int64_t count) {
    return scaled(i, count) * normalised(i, count);  // unused lanes of `scaled` are zero
  });
  const V16 scaled_mean = Set(scaled_sum / static_cast<float>(cols));
  const V16 product_mean = Set(product_sum / static_cast<float>(cols));
  for (int64_t i = 0; i < cols; i += 16) {
    const int64_t count = cols - i;
    const V16 h_hat = normalised(i, count);
    const V16 grad = LoadFirst(grad_y + i, count);
    if (sums.weight != nullptr) {
      StoreFirst(LoadFirst(sums.weight + i, count) + grad * h_hat, sums.weight + i, count);
    }
    if (sums.bias != nullptr) {
      StoreFirst(LoadFirst(sums.bias + i, count) + grad, sums.bias + i, count);
    }
    V16 result = rstd * ((scaled(i, count) - scaled_mean) - h_hat * product_mean);
    if (grad_residual != nullptr) result = result + LoadFirst(grad_residual + i, count);
    StoreFirst(result, grad_h + i, count);
  }
}

void LayerNormBackwardRow(const LayerNormBackwardArgs& args, int64_t row,
                          const LayerNormSums& sums) {
  WithElementType(args.h.dtype, [&]<typename T>(T*) {
    WithElementType(args.weight.dtype,
                    [&]<typename W>(W*) { BackwardOfRow<T, W>(args, row, sums); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(LayerNormForwardRow);
HWY_EXPORT(LayerNormBackwardRow);

namespace {

constexpr int64_t kForwardRowsPerTask = 16;

// [blocks, 2, channels]: of weights, then of biases.
float* TakePartials(WorkspaceCursor& cursor, MatrixShape shape) {
  return cursor.Take<float>(SumBlockCount(shape.rows) * 2 * shape.cols);
}

void CheckStatistics(const LayerNormStatistics& statistics, int64_t rows) {
  GANTRY_CHECK_EQ(static_cast<int64_t>(statistics.mean.size()), rows);
  GANTRY_CHECK_EQ(static_cast<int64_t>(statistics.rstd.size()), rows);
}

void CheckBackward(const LayerNormBackwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.h);
  CheckMatrix(args.grad_y, shape, args.h.dtype, "grad_y");
  CheckMatrix(args.grad_h, shape, args.h.dtype, "grad_h");
  if (args.grad_residual) {
    CheckMatrix(*args.grad_residual, shape, args.h.dtype, "grad_residual");
  }
  GANTRY_CHECK_EQ(args.weight.size, shape.cols);
  CheckStatistics(args.statistics, shape.rows);
  if (args.grad_weight) GANTRY_CHECK_EQ(args.grad_weight->gradient.size, shape.cols);
  if (args.grad_bias) GANTRY_CHECK_EQ(args.grad_bias->gradient.size, shape.cols);
}

}  // namespace

void LayerNormForward(const KernelContext& context, const LayerNormForwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.x);
  CheckMatrix(args.y, shape, args.x.dtype, "y");
  GANTRY_CHECK_EQ(args.residual.has_value(), args.sum.has_value());
  if (args.residual) {
    CheckMatrix(*args.residual, shape, args.x.dtype, "residual");
    CheckMatrix(*args.sum, shape, args.x.dtype, "sum");
  }
  GANTRY_CHECK_EQ(args.weight.size, shape.cols);
  GANTRY_CHECK_EQ(args.bias.size, shape.cols);
  GANTRY_CHECK(args.weight.dtype == args.bias.dtype)
      << args.weight.dtype << " weight, " << args.bias.dtype << " bias";
  CheckStatistics(args.statistics, shape.rows);
  context.team->For({.count = shape.rows, .grain = kForwardRowsPerTask},
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        HWY_DYNAMIC_DISPATCH(LayerNormForwardRow)(args, row);
                      }
                    });
}

void LayerNormBackward(const KernelContext& context, const LayerNormBackwardArgs& args) {
  CheckBackward(args);
  const MatrixShape shape = ShapeOf(args.h);
  const int64_t cols = shape.cols;
  float* partials = nullptr;
  if (args.grad_weight || args.grad_bias) {
    WorkspaceCursor cursor(args.workspace);
    partials = TakePartials(cursor, shape);
  }
  const int64_t block_rows = SumBlockRows(shape.rows);
  context.team->For({.count = shape.rows, .grain = block_rows}, [&](int64_t begin, int64_t end) {
    LayerNormSums sums = {.weight = nullptr, .bias = nullptr};
    if (partials != nullptr) {
      float* block = partials + begin / block_rows * 2 * cols;
      std::fill_n(block, 2 * cols, 0.0f);
      sums = {.weight = args.grad_weight ? block : nullptr,
              .bias = args.grad_bias ? block + cols : nullptr};
    }
    for (int64_t row = begin; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(LayerNormBackwardRow)(args, row, sums);
    }
  });
  const auto finish = [&](const LayerNormBackwardArgs::ParameterGradient& to, float* first) {
    SumBlocks(context, {.partials = first,
                        .blocks = SumBlockCount(shape.rows),
                        .row_stride = 2 * cols,
                        .to = to.gradient,
                        .accumulate = to.accumulate});
  };
  if (args.grad_weight) finish(*args.grad_weight, partials);
  if (args.grad_bias) finish(*args.grad_bias, partials + cols);
}

Bytes LayerNormBackwardWorkspace(MatrixShape shape) {
  WorkspaceCursor counting;
  TakePartials(counting, shape);
  return counting.taken();
}

}  // namespace gantry
#endif  // HWY_ONCE
