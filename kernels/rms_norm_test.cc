// Goal: the norm, its residual variant and its gradients against double, odd sizes included, and
// the weight gradient's sum in fixed blocks (63, 64 and 65 rows, and more than 64 blocks).
#include "kernels/rms_norm.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "gtest/gtest.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry {
namespace {

using testing::Append;
using testing::ExpectNear;
using testing::RandomMatrix;
using testing::RoundingOf;
using testing::TestContext;
using testing::TestMatrix;
using testing::TestWorkspace;

constexpr float kEpsilon = 1e-5f;
constexpr MatrixShape kShapes[] = {{1, 1},   {3, 3},    {17, 17},   {63, 100},
                                   {64, 64}, {65, 130}, {200, 768}, {4200, 5}};

TestMatrix Random(DType dtype, MatrixShape shape, uint64_t stream) {
  return TestMatrix({.dtype = dtype, .shape = shape, .gap = 2}, RandomMatrix(shape, stream, 1.5));
}

TEST(RmsNormTest, ForwardMatchesReference) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const DType weight_dtype : testing::StoredTypes()) {
      for (const MatrixShape shape : kShapes) {
        TestMatrix x = Random(dtype, shape, 1);
        TestMatrix weight = Random(weight_dtype, {.rows = 1, .cols = shape.cols}, 2);
        TestMatrix y({.dtype = dtype, .shape = shape, .gap = 2});
        std::vector<float> rstd(static_cast<size_t>(shape.rows));
        RmsNormForward(context.context(), {.x = x.view(),
                                           .residual = std::nullopt,
                                           .sum = std::nullopt,
                                           .weight = weight.vector(),
                                           .epsilon = kEpsilon,
                                           .y = y.view(),
                                           .rstd = rstd});
        ExpectNear(y.values(), reference::RmsNorm(x.values(), weight.values(), kEpsilon),
                   RoundingOf(dtype, 2), "y");
        EXPECT_TRUE(y.GapsAreIntact());
      }
    }
  }
}

TEST(RmsNormTest, ResidualIsAddedAndKept) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    const MatrixShape shape = {.rows = 19, .cols = 37};
    TestMatrix x = Random(dtype, shape, 1);
    TestMatrix residual = Random(dtype, shape, 2);
    TestMatrix weight = Random(dtype, {.rows = 1, .cols = shape.cols}, 3);
    TestMatrix y({.dtype = dtype, .shape = shape, .gap = 2});
    reference::Matrix exact = x.values();
    const reference::Matrix added = residual.values();
    for (size_t i = 0; i < exact.values.size(); ++i) exact.values[i] += added.values[i];
    std::vector<float> rstd(static_cast<size_t>(shape.rows));
    RmsNormForward(context.context(), {.x = x.view(),
                                       .residual = residual.view(),
                                       .sum = residual.view(),
                                       .weight = weight.vector(),
                                       .epsilon = kEpsilon,
                                       .y = y.view(),
                                       .rstd = rstd});
    ExpectNear(residual.values(), exact, RoundingOf(dtype, 0.6), "sum");
    ExpectNear(y.values(), reference::RmsNorm(residual.values(), weight.values(), kEpsilon),
               RoundingOf(dtype, 2), "y");
  }
}

TEST(RmsNormTest, RoundsTheNormalisedValueBeforeTheWeight) {
  // One channel of value 1: h * rstd is 1 / sqrt(1.05) = 0.97590, in bf16 0.97656. Times 3 that
  // rounds to 2.9375; unrounded, 2.92770, it would round to 2.921875.
  const TestContext context(1);
  const MatrixShape shape = {.rows = 1, .cols = 1};
  reference::Matrix value(1, 1);
  value.values = {1.0};
  TestMatrix x({.dtype = DType::kBF16, .shape = shape, .gap = 0}, value);
  value.values = {3.0};
  TestMatrix weight({.dtype = DType::kBF16, .shape = shape, .gap = 0}, value);
  TestMatrix y({.dtype = DType::kBF16, .shape = shape, .gap = 0});
  std::vector<float> rstd(1);
  RmsNormForward(context.context(), {.x = x.view(),
                                     .residual = std::nullopt,
                                     .sum = std::nullopt,
                                     .weight = weight.vector(),
                                     .epsilon = 0.05f,
                                     .y = y.view(),
                                     .rstd = rstd});
  const float once = static_cast<float>(BFloat16(rstd[0] * 3.0f));
  const float twice = static_cast<float>(BFloat16(static_cast<float>(BFloat16(rstd[0])) * 3.0f));
  ASSERT_NE(once, twice);
  EXPECT_EQ(y.values()(0, 0), twice);
}

struct BackwardCase {
  DType dtype;
  MatrixShape shape;
  Accumulate accumulate;
  bool with_residual;
};

void RunBackward(const TestContext& context, const BackwardCase& c) {
  TestMatrix h = Random(c.dtype, c.shape, 1);
  TestMatrix weight = Random(c.dtype, {.rows = 1, .cols = c.shape.cols}, 2);
  TestMatrix grad_y = Random(c.dtype, c.shape, 3);
  TestMatrix grad_residual = Random(c.dtype, c.shape, 4);
  TestMatrix y({.dtype = c.dtype, .shape = c.shape, .gap = 2});
  TestMatrix grad_h({.dtype = c.dtype, .shape = c.shape, .gap = 2});
  TestMatrix grad_weight = Random(DType::kF32, {.rows = 1, .cols = c.shape.cols}, 5);
  reference::RmsNormGradients expected =
      reference::RmsNormBackward(h.values(), weight.values(), kEpsilon, grad_y.values());
  for (size_t i = 0; c.with_residual && i < expected.h.values.size(); ++i) {
    expected.h.values[i] += grad_residual.values().values[i];
  }
  for (size_t i = 0; c.accumulate == Accumulate::kAdd && i < expected.weight.values.size(); ++i) {
    expected.weight.values[i] += grad_weight.values().values[i];
  }
  std::vector<float> rstd(static_cast<size_t>(c.shape.rows));
  RmsNormForward(context.context(), {.x = h.view(),
                                     .residual = std::nullopt,
                                     .sum = std::nullopt,
                                     .weight = weight.vector(),
                                     .epsilon = kEpsilon,
                                     .y = y.view(),
                                     .rstd = rstd});
  const TestWorkspace workspace(RmsNormBackwardWorkspace(c.shape));
  RmsNormBackwardArgs args = {.h = h.view(),
                              .weight = weight.vector(),
                              .rstd = rstd,
                              .grad_y = grad_y.view(),
                              .grad_residual = std::nullopt,
                              .grad_h = grad_h.view(),
                              .grad_weight = grad_weight.vector(),
                              .accumulate = c.accumulate,
                              .workspace = workspace.span()};
  if (c.with_residual) args.grad_residual = grad_residual.view();
  RmsNormBackward(context.context(), args);
  testing::Tolerance tolerance = RoundingOf(c.dtype, 4);
  tolerance.absolute = 1e-6;  // one channel: two equal terms cancel
  ExpectNear(grad_h.values(), expected.h, tolerance, "grad_h");
  ExpectNear(grad_weight.values(), expected.weight, {.absolute = 1e-5, .relative = 1e-5},
             "grad_weight");
  EXPECT_TRUE(grad_h.GapsAreIntact() && grad_weight.GapsAreIntact());
}

TEST(RmsNormTest, BackwardMatchesReference) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const MatrixShape shape : kShapes) {
      if (shape.rows > 1000 && dtype == DType::kBF16) continue;  // the same path, slow reference
      for (const Accumulate accumulate : {Accumulate::kOverwrite, Accumulate::kAdd}) {
        RunBackward(context, {.dtype = dtype,
                              .shape = shape,
                              .accumulate = accumulate,
                              .with_residual = accumulate == Accumulate::kAdd && shape.rows < 100});
      }
    }
  }
}

TEST(RmsNormTest, FrozenWeightNeedsNoWorkspaceAndGradientMayReplaceItsInput) {
  const TestContext context(2);
  const MatrixShape shape = {.rows = 9, .cols = 33};
  TestMatrix h = Random(DType::kF32, shape, 1);
  TestMatrix weight = Random(DType::kF32, {.rows = 1, .cols = 33}, 2);
  TestMatrix grad_y = Random(DType::kF32, shape, 3);
  TestMatrix y({.dtype = DType::kF32, .shape = shape, .gap = 2});
  const auto expected =
      reference::RmsNormBackward(h.values(), weight.values(), kEpsilon, grad_y.values());
  std::vector<float> rstd(9);
  RmsNormForward(context.context(), {.x = h.view(),
                                     .residual = std::nullopt,
                                     .sum = std::nullopt,
                                     .weight = weight.vector(),
                                     .epsilon = kEpsilon,
                                     .y = y.view(),
                                     .rstd = rstd});
  RmsNormBackward(context.context(), {.h = h.view(),
                                      .weight = weight.vector(),
                                      .rstd = rstd,
                                      .grad_y = grad_y.view(),
                                      .grad_residual = std::nullopt,
                                      .grad_h = grad_y.view(),
                                      .grad_weight = std::nullopt,
                                      .accumulate = Accumulate::kOverwrite,
                                      .workspace = {}});
  ExpectNear(grad_y.values(), expected.h, RoundingOf(DType::kF32, 4), "grad_h in place");
}

// The rows of a matrix [rows * groups, channels], side by side in a [rows, groups * channels].
reference::Matrix Regrouped(const reference::Matrix& from, int64_t rows) {
  reference::Matrix to(rows, static_cast<int64_t>(from.values.size()) / rows);
  to.values = from.values;
  return to;
}

TEST(RmsNormTest, GroupsAreNormedOneByOneInFusedRows) {
  const TestContext context(2);
  constexpr int64_t kRows = 70;
  constexpr int64_t kGroups = 3;
  constexpr int64_t kChannels = 18;
  const MatrixShape shape = {.rows = kRows, .cols = kGroups * kChannels};
  const MatrixShape fused_shape = {.rows = kRows, .cols = 2 * shape.cols};
  for (const DType dtype : testing::StoredTypes()) {
    TestMatrix fused = Random(dtype, fused_shape, 1);
    const MatrixView h = fused.view().Columns(shape.cols, shape.cols);
    TestMatrix weight = Random(dtype, {.rows = 1, .cols = kChannels}, 2);
    TestMatrix grad_y = Random(dtype, shape, 3);
    TestMatrix y({.dtype = dtype, .shape = shape, .gap = 2});
    TestMatrix grad_h({.dtype = dtype, .shape = shape, .gap = 2});
    TestMatrix grad_weight({.dtype = DType::kF32, .shape = {1, kChannels}, .gap = 0});
    reference::Matrix values(kRows, shape.cols);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < shape.cols; ++i) {
        values(row, i) = fused.values()(row, shape.cols + i);
      }
    }
    std::vector<float> rstd(static_cast<size_t>(kRows * kGroups));
    RmsNormForward(context.context(), {.x = h,
                                       .residual = std::nullopt,
                                       .sum = std::nullopt,
                                       .weight = weight.vector(),
                                       .epsilon = kEpsilon,
                                       .y = y.view(),
                                       .rstd = rstd,
                                       .groups = kGroups});
    const TestWorkspace workspace(RmsNormBackwardWorkspace({.rows = kRows, .cols = kChannels}));
    RmsNormBackward(context.context(), {.h = h,
                                        .weight = weight.vector(),
                                        .rstd = rstd,
                                        .grad_y = grad_y.view(),
                                        .grad_residual = std::nullopt,
                                        .grad_h = grad_h.view(),
                                        .grad_weight = grad_weight.vector(),
                                        .accumulate = Accumulate::kOverwrite,
                                        .workspace = workspace.span(),
                                        .groups = kGroups});
    const reference::Matrix heads = Regrouped(values, kRows * kGroups);
    const reference::RmsNormGradients expected = reference::RmsNormBackward(
        heads, weight.values(), kEpsilon, Regrouped(grad_y.values(), kRows * kGroups));
    ExpectNear(Regrouped(y.values(), kRows * kGroups),
               reference::RmsNorm(heads, weight.values(), kEpsilon), RoundingOf(dtype, 2), "y");
    ExpectNear(Regrouped(grad_h.values(), kRows * kGroups), expected.h, RoundingOf(dtype, 4),
               "grad_h");
    ExpectNear(grad_weight.values(), expected.weight, {.absolute = 1e-5, .relative = 1e-5},
               "grad_weight");
    EXPECT_TRUE(y.GapsAreIntact() && grad_h.GapsAreIntact() && fused.GapsAreIntact());
  }
}

TEST(RmsNormTest, BitsDoNotDependOnThreadsOrTarget) {
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
      const MatrixShape shape = {.rows = 300, .cols = 333};
      TestMatrix h = Random(dtype, shape, 1);
      TestMatrix weight = Random(dtype, {.rows = 1, .cols = shape.cols}, 2);
      TestMatrix residual = Random(dtype, shape, 3);
      TestMatrix y({.dtype = dtype, .shape = shape, .gap = 2});
      TestMatrix grad_weight({.dtype = dtype, .shape = {.rows = 1, .cols = shape.cols}, .gap = 0});
      std::vector<float> rstd(300);
      RmsNormForward(context, {.x = h.view(),
                               .residual = residual.view(),
                               .sum = h.view(),
                               .weight = weight.vector(),
                               .epsilon = kEpsilon,
                               .y = y.view(),
                               .rstd = rstd});
      const TestWorkspace workspace(RmsNormBackwardWorkspace(shape));
      RmsNormBackward(context, {.h = h.view(),
                                .weight = weight.vector(),
                                .rstd = rstd,
                                .grad_y = y.view(),
                                .grad_residual = residual.view(),
                                .grad_h = residual.view(),
                                .grad_weight = grad_weight.vector(),
                                .accumulate = Accumulate::kOverwrite,
                                .workspace = workspace.span()});
      std::vector<std::byte> bytes;
      for (const TestMatrix* matrix : {&h, &y, &residual, &grad_weight}) Append(*matrix, bytes);
      Append(rstd, bytes);
      return bytes;
    });
  }
}

}  // namespace
}  // namespace gantry
