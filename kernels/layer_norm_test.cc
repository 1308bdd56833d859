// Goal: the norm, its residual variant and its gradients against double, odd sizes included, the
// sums of both parameters' gradients in fixed blocks (63, 64 and 65 rows, and more than 64 blocks),
// and rows whose mean is far larger than their deviation.
#include "kernels/layer_norm.h"

#include <cstddef>
#include <cstdint>
#include <optional>
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

// A norm's inputs and everything that is made of them.
struct Problem {
  Problem(DType dtype, DType weight_dtype, MatrixShape shape_in)
      : shape(shape_in),
        h(Random(dtype, shape, 1)),
        weight(Random(weight_dtype, Row(), 2)),
        bias(Random(weight_dtype, Row(), 3)),
        grad_y(Random(dtype, shape, 4)),
        grad_residual(Random(dtype, shape, 5)),
        y({.dtype = dtype, .shape = shape, .gap = 2}),
        grad_h({.dtype = dtype, .shape = shape, .gap = 2}),
        grad_weight(Random(DType::kF32, Row(), 6)),
        grad_bias(Random(DType::kF32, Row(), 7)),
        mean(static_cast<size_t>(shape.rows)),
        rstd(mean.size()) {}

  MatrixShape Row() const { return {.rows = 1, .cols = shape.cols}; }
  LayerNormStatistics statistics() { return {.mean = mean, .rstd = rstd}; }
  reference::LayerNormWeights weights() const {
    return {.weight = weight.values(), .bias = bias.values(), .epsilon = kEpsilon};
  }

  void Forward(const KernelContext& context) {
    LayerNormForward(context, {.x = h.view(),
                               .residual = std::nullopt,
                               .sum = std::nullopt,
                               .weight = weight.vector(),
                               .bias = bias.vector(),
                               .epsilon = kEpsilon,
                               .y = y.view(),
                               .statistics = statistics()});
  }
  LayerNormBackwardArgs BackwardArgs(Accumulate accumulate) {
    return {
        .h = h.view(),
        .weight = weight.vector(),
        .statistics = statistics(),
        .grad_y = grad_y.view(),
        .grad_residual = std::nullopt,
        .grad_h = grad_h.view(),
        .grad_weight = LayerNormBackwardArgs::ParameterGradient{grad_weight.vector(), accumulate},
        .grad_bias = LayerNormBackwardArgs::ParameterGradient{grad_bias.vector(), accumulate},
        .workspace = {}};
  }

  MatrixShape shape;
  TestMatrix h;
  TestMatrix weight;
  TestMatrix bias;
  TestMatrix grad_y;
  TestMatrix grad_residual;
  TestMatrix y;
  TestMatrix grad_h;
  TestMatrix grad_weight;
  TestMatrix grad_bias;
  std::vector<float> mean;
  std::vector<float> rstd;
};

void AddTo(reference::Matrix& sum, const reference::Matrix& other) {
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += other.values[i];
}

TEST(LayerNormTest, ForwardMatchesReference) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const DType weight_dtype : testing::StoredTypes()) {
      for (const MatrixShape shape : kShapes) {
        Problem problem(dtype, weight_dtype, shape);
        problem.Forward(context.context());
        ExpectNear(problem.y.values(), reference::LayerNorm(problem.h.values(), problem.weights()),
                   RoundingOf(dtype, 2), "y");
        EXPECT_TRUE(problem.y.GapsAreIntact());
      }
    }
  }
}

TEST(LayerNormTest, LargeMeansKeepTheDeviation) {
  const TestContext context(1);
  Problem problem(DType::kF32, DType::kF32, {.rows = 5, .cols = 97});
  reference::Matrix shifted = problem.h.values();
  for (double& value : shifted.values) value += 1000;
  problem.h = TestMatrix({.dtype = DType::kF32, .shape = problem.shape, .gap = 2}, shifted);
  problem.Forward(context.context());
  // The mean itself is good to 1e-7 of 1000, a deviation is about 1.5.
  ExpectNear(problem.y.values(), reference::LayerNorm(problem.h.values(), problem.weights()),
             {.absolute = 0, .relative = 1e-4}, "y");
}

TEST(LayerNormTest, ResidualIsAddedAndKept) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    Problem problem(dtype, dtype, {.rows = 19, .cols = 37});
    TestMatrix residual = Random(dtype, problem.shape, 9);
    reference::Matrix exact = problem.h.values();
    AddTo(exact, residual.values());
    LayerNormForward(context.context(), {.x = problem.h.view(),
                                         .residual = residual.view(),
                                         .sum = residual.view(),
                                         .weight = problem.weight.vector(),
                                         .bias = problem.bias.vector(),
                                         .epsilon = kEpsilon,
                                         .y = problem.y.view(),
                                         .statistics = problem.statistics()});
    ExpectNear(residual.values(), exact, RoundingOf(dtype, 0.6), "sum");
    ExpectNear(problem.y.values(), reference::LayerNorm(residual.values(), problem.weights()),
               RoundingOf(dtype, 2), "y");
  }
}

void CheckBackward(const TestContext& context, DType dtype, MatrixShape shape,
                   Accumulate accumulate) {
  Problem problem(dtype, dtype, shape);
  reference::LayerNormGradients expected =
      reference::LayerNormBackward(problem.h.values(), problem.weights(), problem.grad_y.values());
  const TestWorkspace workspace(LayerNormBackwardWorkspace(shape));
  LayerNormBackwardArgs args = problem.BackwardArgs(accumulate);
  args.workspace = workspace.span();
  if (accumulate == Accumulate::kAdd) {
    args.grad_residual = problem.grad_residual.view();
    AddTo(expected.h, problem.grad_residual.values());
    AddTo(expected.weight, problem.grad_weight.values());
    AddTo(expected.bias, problem.grad_bias.values());
  }
  problem.Forward(context.context());
  LayerNormBackward(context.context(), args);
  testing::Tolerance tolerance = RoundingOf(dtype, 4);
  // Rows of few channels can be nearly constant: then rstd, and with it every error, is large.
  tolerance.absolute = 2e-6;
  ExpectNear(problem.grad_h.values(), expected.h, tolerance, "grad_h");
  ExpectNear(problem.grad_weight.values(), expected.weight, {.absolute = 1e-5, .relative = 1e-5},
             "grad_weight");
  ExpectNear(problem.grad_bias.values(), expected.bias, {.absolute = 1e-5, .relative = 1e-5},
             "grad_bias");
  EXPECT_TRUE(problem.grad_h.GapsAreIntact() && problem.grad_weight.GapsAreIntact());
}

TEST(LayerNormTest, BackwardMatchesReference) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const MatrixShape shape : kShapes) {
      if (shape.rows > 1000 && dtype == DType::kBF16) continue;  // the same path, slow reference
      for (const Accumulate accumulate : {Accumulate::kOverwrite, Accumulate::kAdd}) {
        CheckBackward(context, dtype, shape, accumulate);
      }
    }
  }
}

TEST(LayerNormTest, EitherParameterMayBeFrozenAndGradientMayReplaceItsInput) {
  const TestContext context(2);
  for (const bool weight_frozen : {true, false}) {
    Problem problem(DType::kF32, DType::kF32, {.rows = 70, .cols = 33});
    const auto expected = reference::LayerNormBackward(problem.h.values(), problem.weights(),
                                                       problem.grad_y.values());
    const TestWorkspace workspace(LayerNormBackwardWorkspace(problem.shape));
    LayerNormBackwardArgs args = problem.BackwardArgs(Accumulate::kOverwrite);
    args.workspace = workspace.span();
    args.grad_h = problem.grad_y.view();
    (weight_frozen ? args.grad_weight : args.grad_bias).reset();
    problem.Forward(context.context());
    LayerNormBackward(context.context(), args);
    ExpectNear(problem.grad_y.values(), expected.h, RoundingOf(DType::kF32, 4), "in place");
    if (weight_frozen) {
      ExpectNear(problem.grad_bias.values(), expected.bias, {1e-5, 1e-5}, "grad_bias");
    } else {
      ExpectNear(problem.grad_weight.values(), expected.weight, {1e-5, 1e-5}, "grad_weight");
    }
  }
}

TEST(LayerNormTest, BitsDoNotDependOnThreadsOrTarget) {
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
      Problem problem(dtype, dtype, {.rows = 300, .cols = 333});
      problem.Forward(context);
      const TestWorkspace workspace(LayerNormBackwardWorkspace(problem.shape));
      LayerNormBackwardArgs args = problem.BackwardArgs(Accumulate::kOverwrite);
      args.workspace = workspace.span();
      args.grad_residual = problem.grad_residual.view();
      LayerNormBackward(context, args);
      std::vector<std::byte> bytes;
      for (const TestMatrix* matrix :
           {&problem.y, &problem.grad_h, &problem.grad_weight, &problem.grad_bias}) {
        Append(*matrix, bytes);
      }
      Append(problem.mean, bytes);
      Append(problem.rstd, bytes);
      return bytes;
    });
  }
}

}  // namespace
}  // namespace gantry
