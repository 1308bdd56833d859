// Norms against the reference in double. Tolerances are relative to the largest value: 3e-6 and,
// for 16-bit types, a rounding. The reference's own gradient is checked by differences.
#include "kernels/cuda/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

constexpr float kEpsilon = 1e-5F;

struct Case {
  int64_t rows;
  int64_t cols;
  int64_t gap;
  int64_t offset;
  bool residual;
};
// Rows of a warp, of a block, without alignment; more rows than blocks.
constexpr Case kCases[] = {{0, 8, 0, 0, false},   {1, 1, 0, 0, true},    {5, 8, 0, 0, false},
                           {3, 255, 0, 0, true},  {13, 264, 8, 8, true}, {2, 520, 0, 0, false},
                           {9, 67, 1, 0, false},  {2, 2061, 3, 8, true}, {4, 300, 4, 1, true},
                           {203, 16, 0, 0, false}};

reference::Matrix Sum(const reference::Matrix& a, const reference::Matrix& b) {
  reference::Matrix sum = a;
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += b.values[i];
  return sum;
}

Tolerance Near(DType dtype, double factor) {
  return {.absolute = 0, .relative = RoundingError(dtype, factor) + 2e-6};
}

// In double.
struct Reference {
  reference::Matrix y;
  reference::Matrix mean;  // [1, rows]
  reference::Matrix rstd;
};
Reference LayerNorm(const reference::Matrix& h, const reference::Matrix& weight,
                    const reference::Matrix& bias) {
  Reference result{reference::Matrix(h.rows, h.cols), reference::Matrix(1, h.rows),
                   reference::Matrix(1, h.rows)};
  const auto cols = static_cast<double>(h.cols);
  for (int64_t row = 0; row < h.rows; ++row) {
    double mean = 0;
    for (int64_t i = 0; i < h.cols; ++i) mean += h(row, i) / cols;
    double variance = 0;
    for (int64_t i = 0; i < h.cols; ++i) variance += (h(row, i) - mean) * (h(row, i) - mean) / cols;
    const double rstd = 1 / std::sqrt(variance + kEpsilon);
    result.mean(0, row) = mean;
    result.rstd(0, row) = rstd;
    for (int64_t i = 0; i < h.cols; ++i) {
      result.y(row, i) = (h(row, i) - mean) * rstd * weight(0, i) + bias(0, i);
    }
  }
  return result;
}

struct Gradients {
  reference::Matrix h;
  reference::Matrix weight;
  reference::Matrix bias;
};
// By the definition's derivative, element by element: of y[j] = h_hat[j] w[j] by h[i].
Gradients LayerNormBackward(const reference::Matrix& h, const reference::Matrix& weight,
                            const Reference& forward, const reference::Matrix& grad_y) {
  Gradients grads{reference::Matrix(h.rows, h.cols), reference::Matrix(1, h.cols),
                  reference::Matrix(1, h.cols)};
  const auto cols = static_cast<double>(h.cols);
  for (int64_t row = 0; row < h.rows; ++row) {
    const double mean = forward.mean(0, row);
    const double rstd = forward.rstd(0, row);
    double plain = 0;
    double along = 0;
    for (int64_t j = 0; j < h.cols; ++j) {
      const double g = grad_y(row, j) * weight(0, j);
      plain += g / cols;
      along += g * (h(row, j) - mean) * rstd / cols;
      grads.weight(0, j) += grad_y(row, j) * (h(row, j) - mean) * rstd;
      grads.bias(0, j) += grad_y(row, j);
    }
    for (int64_t i = 0; i < h.cols; ++i) {
      grads.h(row, i) =
          rstd * (grad_y(row, i) * weight(0, i) - plain - (h(row, i) - mean) * rstd * along);
    }
  }
  return grads;
}

void CheckForward(const Case& c, DType dtype, DType weight_type) {
  SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.cols << ", " << dtype);
  const MatrixShape shape{.rows = c.rows, .cols = c.cols};
  const DeviceMatrix::Options options{
      .dtype = dtype, .rows = c.rows, .cols = c.cols, .gap = c.gap, .offset = c.offset};
  DeviceMatrix x(options, RandomMatrix(shape, 1, 2.0));
  DeviceMatrix residual(options, RandomMatrix(shape, 2, 2.0));
  DeviceMatrix weight({.dtype = weight_type, .rows = 1, .cols = c.cols},
                      RandomMatrix({.rows = 1, .cols = c.cols}, 3, 1.0));
  DeviceMatrix bias({.dtype = weight_type, .rows = 1, .cols = c.cols},
                    RandomMatrix({.rows = 1, .cols = c.cols}, 6, 1.0));
  reference::Matrix h;
  reference::Matrix y_values;
  reference::Matrix mean_values;
  reference::Matrix rstd_values;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    DeviceMatrix sum(options, run.poison);
    DeviceMatrix y(options, run.poison);
    DeviceMatrix rstd({.dtype = DType::kF32, .rows = 1, .cols = c.rows}, run.poison);
    DeviceMatrix mean({.dtype = DType::kF32, .rows = 1, .cols = c.rows}, run.poison);
    cuda::LayerNormForwardArgs args{.x = x.view(),
                                    .residual = std::nullopt,
                                    .sum = std::nullopt,
                                    .weight = weight.vector(),
                                    .bias = bias.vector(),
                                    .epsilon = kEpsilon,
                                    .y = y.view(),
                                    .mean = mean.span<float>(),
                                    .rstd = rstd.span<float>()};
    if (c.residual) {
      args.residual = residual.view();
      args.sum = sum.view();
    }
    EXPECT_EQ(cuda::LayerNormForward(run.stream, args), 0);
    for (const DeviceMatrix* written : {&sum, &y, &mean, &rstd}) written->ExpectIntact();
    mean_values = mean.values();
    rstd_values = rstd.values();
    h = c.residual ? sum.values() : x.values();
    y_values = y.values();
    std::vector<std::byte> bytes;
    y.AppendTo(bytes);
    rstd.AppendTo(bytes);
    if (c.residual) sum.AppendTo(bytes);
    return bytes;
  });
  if (c.residual) {
    ExpectNear(h, Sum(x.values(), residual.values()), Near(dtype, 1), "sum");
  }
  const Reference expected = LayerNorm(h, weight.values(), bias.values());
  ExpectNear(y_values, expected.y, Near(dtype, 1), "y");
  ExpectNear(mean_values, expected.mean, Near(DType::kF32, 1), "mean");
  ExpectNear(rstd_values, expected.rstd, Near(DType::kF32, 1), "rstd");
}

void CheckBackward(const Case& c, DType dtype, DType weight_type, Accumulate accumulate) {
  SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.cols << ", " << dtype);
  const MatrixShape shape{.rows = c.rows, .cols = c.cols};
  const MatrixShape row{.rows = 1, .cols = c.cols};
  const DeviceMatrix::Options options{
      .dtype = dtype, .rows = c.rows, .cols = c.cols, .gap = c.gap, .offset = c.offset};
  const DeviceMatrix::Options row_options{.dtype = weight_type, .rows = 1, .cols = c.cols};
  DeviceMatrix h(options, RandomMatrix(shape, 1, 2.0));
  DeviceMatrix grad_y(options, RandomMatrix(shape, 2, 1.0));
  DeviceMatrix grad_residual(options, RandomMatrix(shape, 4, 1.0));
  DeviceMatrix weight(row_options, RandomMatrix(row, 3, 1.0));
  const DeviceMatrix before(row_options, RandomMatrix(row, 5, 1.0));
  const Reference forward = LayerNorm(h.values(), weight.values(), weight.values());
  DeviceMatrix mean({.dtype = DType::kF32, .rows = 1, .cols = c.rows}, forward.mean);
  DeviceMatrix rstd({.dtype = DType::kF32, .rows = 1, .cols = c.rows}, forward.rstd);
  reference::Matrix grad_h_values;
  reference::Matrix grad_weight_values;
  reference::Matrix grad_bias_values;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    DeviceMatrix grad_h(options, run.poison);
    DeviceMatrix grad_weight =
        accumulate == Accumulate::kAdd ? before : DeviceMatrix(row_options, run.poison);
    DeviceMatrix grad_bias = grad_weight;
    DeviceBytes workspace(cuda::LayerNormBackwardWorkspace(shape).count(), run.poison);
    cuda::LayerNormBackwardArgs args{.h = h.view(),
                                     .weight = weight.vector(),
                                     .mean = mean.span<float>(),
                                     .rstd = rstd.span<float>(),
                                     .grad_y = grad_y.view(),
                                     .grad_residual = std::nullopt,
                                     .grad_h = grad_h.view(),
                                     .grad_weight = grad_weight.vector(),
                                     .grad_bias = grad_bias.vector(),
                                     .accumulate = accumulate,
                                     .workspace = workspace.span()};
    if (c.residual) args.grad_residual = grad_residual.view();
    EXPECT_EQ(cuda::LayerNormBackward(run.stream, args), 0);
    grad_h.ExpectIntact();
    grad_weight.ExpectIntact();
    grad_h_values = grad_h.values();
    grad_bias.ExpectIntact();
    grad_weight_values = grad_weight.values();
    grad_bias_values = grad_bias.values();
    // The weight's gradient apart must not change the rows'.
    DeviceMatrix frozen(options, run.poison);
    args.grad_h = frozen.view();
    args.grad_weight = std::nullopt;
    args.grad_bias = std::nullopt;
    args.workspace = {};
    EXPECT_EQ(cuda::LayerNormBackward(run.stream, args), 0);
    std::vector<std::byte> bytes;
    std::vector<std::byte> frozen_bytes;
    grad_h.AppendTo(bytes);
    frozen.AppendTo(frozen_bytes);
    EXPECT_TRUE(bytes == frozen_bytes);
    grad_weight.AppendTo(bytes);
    grad_bias.AppendTo(bytes);
    return bytes;
  });
  Gradients expected = LayerNormBackward(h.values(), weight.values(), forward, grad_y.values());
  if (c.residual) expected.h = Sum(expected.h, grad_residual.values());
  if (accumulate == Accumulate::kAdd) {
    expected.weight = Sum(expected.weight, before.values());
    expected.bias = Sum(expected.bias, before.values());
  }
  ExpectNear(grad_h_values, expected.h, Near(dtype, 1), "grad_h");
  ExpectNear(grad_weight_values, expected.weight, Near(weight_type, 1), "grad_weight");
  ExpectNear(grad_bias_values, expected.bias, Near(weight_type, 1), "grad_bias");
}

TEST(CudaLayerNorm, TheReferencesGradientIsThatOfDifferences) {
  reference::Matrix h = RandomMatrix({.rows = 1, .cols = 7}, 1, 1.0);
  const reference::Matrix weight = RandomMatrix({.rows = 1, .cols = 7}, 2, 1.0);
  const reference::Matrix grad_y = RandomMatrix({.rows = 1, .cols = 7}, 3, 1.0);
  const auto loss = [&] {
    const Reference forward = LayerNorm(h, weight, weight);
    double sum = 0;
    for (size_t i = 0; i < 7; ++i) sum += forward.y.values[i] * grad_y.values[i];
    return sum;
  };
  const Gradients grads = LayerNormBackward(h, weight, LayerNorm(h, weight, weight), grad_y);
  for (size_t i = 0; i < 7; ++i) {
    const double kept = h.values[i];
    h.values[i] = kept + 1e-6;
    const double above = loss();
    h.values[i] = kept - 1e-6;
    const double below = loss();
    h.values[i] = kept;
    EXPECT_NEAR((above - below) / 2e-6, grads.h.values[i], 1e-8);
  }
}

TEST(CudaLayerNorm, ForwardIsTheReference) {
  for (const Case& c : kCases) {
    CheckForward(c, DType::kF32, DType::kF32);
    CheckForward(c, DType::kF16, DType::kF32);
    CheckForward(c, DType::kBF16, DType::kBF16);
    if (HasFailure()) return;
  }
}

TEST(CudaLayerNorm, BackwardIsTheReference) {
  for (const Case& c : kCases) {
    const Accumulate accumulate = c.residual ? Accumulate::kAdd : Accumulate::kOverwrite;
    CheckBackward(c, DType::kF32, DType::kF32, Accumulate::kOverwrite);
    CheckBackward(c, DType::kBF16, DType::kF32, Accumulate::kAdd);
    if (c.rows % 2 == 1) CheckBackward(c, DType::kF16, DType::kF16, accumulate);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace gantry::testing
