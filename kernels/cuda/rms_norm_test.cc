// Norms against the reference in double. Tolerances are relative to the largest value: 3e-6 and,
// for 16-bit types, three roundings forward (sum, normalised, product) and one backward.
#include "kernels/cuda/rms_norm.h"

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
                           {9, 331, 1, 0, false}, {3, 2061, 3, 8, true}, {11, 300, 4, 1, true},
                           {203, 16, 0, 0, false}};

reference::Matrix Sum(const reference::Matrix& a, const reference::Matrix& b) {
  reference::Matrix sum = a;
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += b.values[i];
  return sum;
}

Tolerance Near(DType dtype, double factor) {
  return {.absolute = 0, .relative = RoundingError(dtype, factor) + 2e-6};
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
  reference::Matrix h;
  reference::Matrix y_values;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    DeviceMatrix sum(options, run.poison);
    DeviceMatrix y(options, run.poison);
    DeviceMatrix rstd({.dtype = DType::kF32, .rows = 1, .cols = c.rows}, run.poison);
    RmsNormForwardArgs args{.x = x.view(),
                            .residual = std::nullopt,
                            .sum = std::nullopt,
                            .weight = weight.vector(),
                            .epsilon = kEpsilon,
                            .y = y.view(),
                            .rstd = rstd.span<float>()};
    if (c.residual) {
      args.residual = residual.view();
      args.sum = sum.view();
    }
    EXPECT_EQ(cuda::RmsNormForward(run.stream, args), 0);
    for (const DeviceMatrix* written : {&sum, &y, &rstd}) written->ExpectIntact();
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
  ExpectNear(y_values, reference::RmsNorm(h, weight.values(), kEpsilon), Near(dtype, 2), "y");
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
  reference::Matrix rstd_values(1, c.rows);
  const reference::Matrix h_values = h.values();
  for (int64_t i = 0; i < c.rows; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < c.cols; ++j) squares += h_values(i, j) * h_values(i, j);
    rstd_values(0, i) = 1 / std::sqrt(squares / static_cast<double>(c.cols) + kEpsilon);
  }
  DeviceMatrix rstd({.dtype = DType::kF32, .rows = 1, .cols = c.rows}, rstd_values);
  reference::Matrix grad_h_values;
  reference::Matrix grad_weight_values;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    DeviceMatrix grad_h(options, run.poison);
    DeviceMatrix grad_weight =
        accumulate == Accumulate::kAdd ? before : DeviceMatrix(row_options, run.poison);
    DeviceBytes workspace(cuda::RmsNormBackwardWorkspace(shape).count(), run.poison);
    RmsNormBackwardArgs args{.h = h.view(),
                             .weight = weight.vector(),
                             .rstd = rstd.span<float>(),
                             .grad_y = grad_y.view(),
                             .grad_residual = std::nullopt,
                             .grad_h = grad_h.view(),
                             .grad_weight = grad_weight.vector(),
                             .accumulate = accumulate,
                             .workspace = workspace.span()};
    if (c.residual) args.grad_residual = grad_residual.view();
    EXPECT_EQ(cuda::RmsNormBackward(run.stream, args), 0);
    grad_h.ExpectIntact();
    grad_weight.ExpectIntact();
    grad_h_values = grad_h.values();
    grad_weight_values = grad_weight.values();
    // The weight's gradient apart must not change the rows'.
    DeviceMatrix frozen(options, run.poison);
    args.grad_h = frozen.view();
    args.grad_weight = std::nullopt;
    args.workspace = {};
    EXPECT_EQ(cuda::RmsNormBackward(run.stream, args), 0);
    std::vector<std::byte> bytes;
    std::vector<std::byte> frozen_bytes;
    grad_h.AppendTo(bytes);
    frozen.AppendTo(frozen_bytes);
    EXPECT_TRUE(bytes == frozen_bytes);
    grad_weight.AppendTo(bytes);
    return bytes;
  });
  reference::RmsNormGradients expected =
      reference::RmsNormBackward(h.values(), weight.values(), kEpsilon, grad_y.values());
  if (c.residual) expected.h = Sum(expected.h, grad_residual.values());
  if (accumulate == Accumulate::kAdd) expected.weight = Sum(expected.weight, before.values());
  ExpectNear(grad_h_values, expected.h, Near(dtype, 1), "grad_h");
  ExpectNear(grad_weight_values, expected.weight, Near(weight_type, 1), "grad_weight");
}

TEST(CudaRmsNorm, ForwardIsTheReference) {
  for (const Case& c : kCases) {
    CheckForward(c, DType::kF32, DType::kF32);
    CheckForward(c, DType::kF16, DType::kF32);
    CheckForward(c, DType::kBF16, DType::kBF16);
    if (HasFailure()) return;
  }
}

TEST(CudaRmsNorm, BackwardIsTheReference) {
  for (const Case& c : kCases) {
    const Accumulate accumulate = c.residual ? Accumulate::kAdd : Accumulate::kOverwrite;
    CheckBackward(c, DType::kF32, DType::kF32, Accumulate::kOverwrite);
    CheckBackward(c, DType::kBF16, DType::kF32, Accumulate::kAdd);
    if (c.rows % 2 == 1) CheckBackward(c, DType::kF16, DType::kF16, accumulate);
    if (HasFailure()) return;
  }
}

struct Normed {
  reference::Matrix y, grad_h, grad_weight;
};
// Both passes over [rows, groups * channels].
Normed RunGroups(DType dtype, int64_t rows, int64_t groups, int64_t channels, int64_t gap) {
  const MatrixShape vectors{.rows = 15, .cols = channels};
  const DeviceMatrix::Options options{
      .dtype = dtype, .rows = rows, .cols = groups * channels, .gap = gap};
  const auto reshaped = [&](uint64_t stream) {
    reference::Matrix values = RandomMatrix(vectors, stream, 1.0);
    values.rows = rows;
    values.cols = groups * channels;
    return values;
  };
  DeviceMatrix x(options, reshaped(1));
  DeviceMatrix grad_y(options, reshaped(2));
  DeviceMatrix weight({.dtype = DType::kF32, .rows = 1, .cols = channels},
                      RandomMatrix({.rows = 1, .cols = channels}, 3, 1.0));
  Normed result;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    DeviceMatrix y(options, run.poison);
    DeviceMatrix grad_h(options, run.poison);
    DeviceMatrix grad_weight({.dtype = DType::kF32, .rows = 1, .cols = channels}, run.poison);
    DeviceMatrix rstd({.dtype = DType::kF32, .rows = 1, .cols = 15}, run.poison);
    DeviceBytes workspace(cuda::RmsNormBackwardWorkspace(vectors).count(), run.poison);
    EXPECT_EQ(cuda::RmsNormForward(run.stream, {.x = x.view(),
                                                .residual = std::nullopt,
                                                .sum = std::nullopt,
                                                .weight = weight.vector(),
                                                .epsilon = kEpsilon,
                                                .y = y.view(),
                                                .rstd = rstd.span<float>(),
                                                .groups = groups}),
              0);
    EXPECT_EQ(cuda::RmsNormBackward(run.stream, {.h = x.view(),
                                                 .weight = weight.vector(),
                                                 .rstd = rstd.span<float>(),
                                                 .grad_y = grad_y.view(),
                                                 .grad_residual = std::nullopt,
                                                 .grad_h = grad_h.view(),
                                                 .grad_weight = grad_weight.vector(),
                                                 .accumulate = Accumulate::kOverwrite,
                                                 .workspace = workspace.span(),
                                                 .groups = groups}),
              0);
    std::vector<std::byte> bytes;
    for (const DeviceMatrix* out : {&y, &grad_h, &grad_weight}) {
      out->ExpectIntact();
      out->AppendTo(bytes);
    }
    result = {.y = y.values(), .grad_h = grad_h.values(), .grad_weight = grad_weight.values()};
    return bytes;
  });
  return result;
}

// Heads side by side are normed as if each were a row, bit for bit.
TEST(CudaRmsNorm, GroupsAreRows) {
  for (const int64_t channels : {16, 13}) {
    const Normed rows = RunGroups(DType::kBF16, 15, 1, channels, channels == 16 ? 0 : 2);
    const Normed groups = RunGroups(DType::kBF16, 5, 3, channels, 8);
    EXPECT_EQ(rows.y.values, groups.y.values);
    EXPECT_EQ(rows.grad_h.values, groups.grad_h.values);
    EXPECT_EQ(rows.grad_weight.values, groups.grad_weight.values);
  }
}

}  // namespace
}  // namespace gantry::testing
