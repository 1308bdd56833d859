// Goal: fused log-probabilities and their gradients against double, with vocabularies around the
// blocks (2048 words) and tokens around theirs (1024), ignored targets, and both accumulate modes.
#include "kernels/cross_entropy_head.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/random.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry {
namespace {

using testing::Append;
using testing::ExpectNear;
using testing::RandomMatrix;
using testing::TestContext;
using testing::TestMatrix;
using testing::TestWorkspace;

// Every fifth target is ignored.
std::vector<int32_t> RandomTargets(const HeadShape& shape) {
  const Random random({.seed = testing::kSeed, .stream = 77});
  std::vector<int32_t> targets(static_cast<size_t>(shape.tokens));
  for (size_t n = 0; n < targets.size(); ++n) {
    targets[n] =
        n % 5 == 3 ? kIgnoreTarget : static_cast<int32_t>(random.Below(shape.vocabulary, n));
  }
  return targets;
}

struct Case {
  HeadShape shape;
  DType dtype;
  DType grad_dtype;
  Accumulate accumulate;
};

class Problem {
 public:
  explicit Problem(const Case& c)
      : case_(c),
        targets_(RandomTargets(c.shape)),
        x_({.dtype = c.dtype, .shape = XShape(), .gap = 2}, RandomMatrix(XShape(), 1, 1.0)),
        weight_({.dtype = c.dtype, .shape = WShape(), .gap = 1}, RandomMatrix(WShape(), 2, 0.5)),
        grad_x_({.dtype = c.grad_dtype, .shape = XShape(), .gap = 3}),
        grad_weight_({.dtype = c.grad_dtype, .shape = WShape(), .gap = 3},
                     RandomMatrix(WShape(), 3, 0.1)),
        log_probabilities_(targets_.size(), 9.0f),
        log_sum_exp_(targets_.size()) {
    const Random random({.seed = testing::kSeed, .stream = 5});
    for (size_t n = 0; n < targets_.size(); ++n) {
      grads_.push_back(static_cast<float>(random.Normal(n)));
    }
  }

  void Run(const KernelContext& context) {
    const TestWorkspace forward(TokenLogProbabilitiesWorkspace(case_.shape));
    ASSERT_TRUE(TokenLogProbabilities(context, {.x = x_.view(),
                                                .weight = weight_.view(),
                                                .targets = targets_,
                                                .log_probabilities = log_probabilities_,
                                                .log_sum_exp = log_sum_exp_,
                                                .workspace = forward.span()})
                    .ok());
    Backward(context, grad_weight_.view());
  }
  void Backward(const KernelContext& context, std::optional<MatrixView> grad_weight) {
    const TestWorkspace backward(TokenLogProbabilitiesBackwardWorkspace(
        case_.shape, {.x = case_.dtype, .grad_x = case_.grad_dtype}));
    ASSERT_TRUE(TokenLogProbabilitiesBackward(context, {.x = x_.view(),
                                                        .weight = weight_.view(),
                                                        .targets = targets_,
                                                        .log_sum_exp = log_sum_exp_,
                                                        .grad_log_probabilities = grads_,
                                                        .grad_x = grad_x_.view(),
                                                        .grad_weight = grad_weight,
                                                        .accumulate = case_.accumulate,
                                                        .workspace = backward.span()})
                    .ok());
  }

  // Of the gradients as they will be; call before Run, which adds to grad_weight.
  reference::HeadGradients ExpectedGradients() const {
    const std::vector<double> grads(grads_.begin(), grads_.end());
    reference::HeadGradients expected =
        reference::TokenLogProbabilitiesBackward(x_.values(), weight_.values(), targets_, grads);
    const reference::Matrix before = grad_weight_.values();
    for (size_t i = 0; i < before.values.size(); ++i) {
      if (case_.accumulate == Accumulate::kAdd) expected.weight.values[i] += before.values[i];
    }
    return expected;
  }
  void Expect(const reference::HeadGradients& expected) const {
    const std::vector<double> log_probabilities =
        reference::TokenLogProbabilities(x_.values(), weight_.values(), targets_);
    for (size_t n = 0; n < targets_.size(); ++n) {
      ASSERT_NEAR(log_probabilities_[n], log_probabilities[n], 2e-5) << "token " << n;
    }
    // The logits' gradient is rounded to x's type, the results to theirs.
    const bool exact = case_.dtype == DType::kF32 && case_.grad_dtype == DType::kF32;
    const testing::Tolerance tolerance = {.absolute = 0, .relative = exact ? 1e-5 : 1.0 / 128};
    ExpectNear(grad_x_.values(), expected.x, tolerance, "grad_x");
    ExpectNear(grad_weight_.values(), expected.weight, tolerance, "grad_weight");
    EXPECT_TRUE(grad_x_.GapsAreIntact() && grad_weight_.GapsAreIntact());
  }
  std::vector<std::byte> Bytes() const {
    std::vector<std::byte> bytes;
    Append(log_probabilities_, bytes);
    Append(log_sum_exp_, bytes);
    Append(grad_x_, bytes);
    Append(grad_weight_, bytes);
    return bytes;
  }

 private:
  MatrixShape XShape() const { return {.rows = case_.shape.tokens, .cols = case_.shape.channels}; }
  MatrixShape WShape() const {
    return {.rows = case_.shape.vocabulary, .cols = case_.shape.channels};
  }

  Case case_;
  std::vector<int32_t> targets_;
  TestMatrix x_;
  TestMatrix weight_;
  TestMatrix grad_x_;
  TestMatrix grad_weight_;
  std::vector<float> log_probabilities_;
  std::vector<float> log_sum_exp_;
  std::vector<float> grads_;
};

std::string Describe(const Case& c) {
  return StrCat("N", c.shape.tokens, " C", c.shape.channels, " V", c.shape.vocabulary, " ", c.dtype,
                " ", c.grad_dtype);
}

TEST(CrossEntropyHeadTest, MatchesReference) {
  const TestContext context(2);
  const HeadShape shapes[] = {{.tokens = 1, .channels = 1, .vocabulary = 1},
                              {.tokens = 3, .channels = 17, .vocabulary = 3},
                              {.tokens = 17, .channels = 8, .vocabulary = 33},
                              {.tokens = 20, .channels = 24, .vocabulary = 2048},
                              {.tokens = 9, .channels = 20, .vocabulary = 4100},
                              {.tokens = 1030, .channels = 5, .vocabulary = 50}};
  for (const HeadShape& shape : shapes) {
    for (const DType dtype : testing::StoredTypes()) {
      for (const DType grad_dtype : testing::StoredTypes()) {
        for (const Accumulate accumulate : {Accumulate::kOverwrite, Accumulate::kAdd}) {
          const Case c = {
              .shape = shape, .dtype = dtype, .grad_dtype = grad_dtype, .accumulate = accumulate};
          SCOPED_TRACE(Describe(c));
          Problem problem(c);
          const reference::HeadGradients expected = problem.ExpectedGradients();
          problem.Run(context.context());
          problem.Expect(expected);
        }
      }
    }
  }
}

TEST(CrossEntropyHeadTest, FrozenHeadLeavesItsGradientAlone) {
  const TestContext context(1);
  const Case c = {.shape = {.tokens = 7, .channels = 6, .vocabulary = 11},
                  .dtype = DType::kF32,
                  .grad_dtype = DType::kF32,
                  .accumulate = Accumulate::kOverwrite};
  Problem problem(c);
  problem.Run(context.context());
  const std::vector<std::byte> before = problem.Bytes();
  problem.Backward(context.context(), std::nullopt);
  EXPECT_TRUE(problem.Bytes() == before);
}

TEST(CrossEntropyHeadTest, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kBest, [&](const KernelContext& context) {
      Problem problem({.shape = {.tokens = 130, .channels = 40, .vocabulary = 2500},
                       .dtype = dtype,
                       .grad_dtype = dtype,
                       .accumulate = Accumulate::kOverwrite});
      problem.Run(context);
      return problem.Bytes();
    });
  }
}

TEST(CrossEntropyHeadTest, BitsDoNotDependOnTheTargetOfOurOwnLoops) {
  // The products come from oneDNN, which SIMD targets do not change.
  testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
    Problem problem({.shape = {.tokens = 33, .channels = 10, .vocabulary = 301},
                     .dtype = DType::kBF16,
                     .grad_dtype = DType::kF32,
                     .accumulate = Accumulate::kOverwrite});
    problem.Run(context);
    return problem.Bytes();
  });
}

TEST(CrossEntropyHeadTest, LossIsTheScaledSumOverValidTokens) {
  const std::vector<float> log_probabilities = {-1.0f, -2.5f, 0.0f, -0.25f};
  const std::vector<int32_t> targets = {4, 0, kIgnoreTarget, 2};
  std::vector<float> grads(4, 7.0f);
  const CrossEntropyResult result = CrossEntropy({.log_probabilities = log_probabilities,
                                                  .targets = targets,
                                                  .scale = 0.5,
                                                  .grad_log_probabilities = grads});
  EXPECT_DOUBLE_EQ(result.loss, 0.5 * 3.75);
  EXPECT_EQ(result.valid_tokens, 3);
  EXPECT_EQ(grads, (std::vector<float>{-0.5f, -0.5f, 0.0f, -0.5f}));
  EXPECT_DOUBLE_EQ(CrossEntropy({.log_probabilities = log_probabilities,
                                 .targets = targets,
                                 .scale = 0.5,
                                 .grad_log_probabilities = {}})
                       .loss,
                   result.loss);
}

TEST(CrossEntropyHeadTest, WorkspaceStaysBoundedForLargeVocabularies) {
  const HeadShape shape = {.tokens = 8192, .channels = 4096, .vocabulary = 128256};
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_LE(TokenLogProbabilitiesWorkspace(shape).count(), 9 * kMiB);
  EXPECT_LE(
      TokenLogProbabilitiesBackwardWorkspace(shape, {.x = DType::kBF16, .grad_x = DType::kF32})
          .count(),
      24 * kMiB);
}

TEST(CrossEntropyHeadDeathTest, TargetsMustBeInTheVocabulary) {
  const TestContext context(1);
  TestMatrix x({.dtype = DType::kF32, .shape = {.rows = 1, .cols = 2}, .gap = 0});
  TestMatrix weight({.dtype = DType::kF32, .shape = {.rows = 3, .cols = 2}, .gap = 0});
  const TestWorkspace workspace(
      TokenLogProbabilitiesWorkspace({.tokens = 1, .channels = 2, .vocabulary = 3}));
  std::vector<float> values(2);
  for (const int32_t target : {3, -2}) {
    const std::vector<int32_t> targets = {target};
    EXPECT_DEATH((void)TokenLogProbabilities(context.context(),
                                             {.x = x.view(),
                                              .weight = weight.view(),
                                              .targets = targets,
                                              .log_probabilities = std::span(values).subspan(0, 1),
                                              .log_sum_exp = std::span(values).subspan(1, 1),
                                              .workspace = workspace.span()}),
                 "vocabulary 3");
  }
}

}  // namespace
}  // namespace gantry
