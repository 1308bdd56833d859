// The head against softmax in double: log-probabilities, and gradients by central differences of
// sum over n of c[n] log p(target[n]) with arbitrary derivatives c.
#include "trainer/nn/token_log_probability.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/autograd/testing/test_bench.h"

namespace gantry {
namespace {

using Values = std::vector<double>;

constexpr uint64_t kSeed = 77;
constexpr int64_t kRows = 4;
constexpr int64_t kWidth = 5;
constexpr int64_t kVocabulary = 9;
const std::vector<int32_t> kTargets = {8, kIgnoreTarget, 0, 3};
const std::vector<float> kDerivatives = {-0.25F, -7.0F, 0.5F, -1.0F};

Values LogProbabilitiesOf(const Values& x, const Values& weight) {
  Values result;
  for (int64_t n = 0; n < kRows; ++n) {
    const int32_t target = kTargets[static_cast<size_t>(n)];
    if (target == kIgnoreTarget) {
      result.push_back(0.0);
      continue;
    }
    Values logits;
    double sum = 0;
    for (int64_t v = 0; v < kVocabulary; ++v) {
      double logit = 0;
      for (int64_t i = 0; i < kWidth; ++i) {
        logit +=
            x[static_cast<size_t>(n * kWidth + i)] * weight[static_cast<size_t>(v * kWidth + i)];
      }
      logits.push_back(logit);
      sum += std::exp(logit);
    }
    result.push_back(logits[static_cast<size_t>(target)] - std::log(sum));
  }
  return result;
}

double LossOf(const Values& x, const Values& weight) {
  const Values log_probabilities = LogProbabilitiesOf(x, weight);
  double loss = 0;
  for (size_t n = 0; n < log_probabilities.size(); ++n) {
    loss += kDerivatives[n] * log_probabilities[n];
  }
  return loss;
}

template <typename Loss>
Values Differences(Values values, const Loss& loss) {
  constexpr double kStep = 1e-5;
  Values result;
  for (double& value : values) {
    const double center = value;
    value = center + kStep;
    const double above = loss(values);
    value = center - kStep;
    const double below = loss(values);
    value = center;
    result.push_back((above - below) / (2 * kStep));
  }
  return result;
}

Values Draw(uint64_t stream, int64_t count, DType dtype) {
  const Random random({.seed = kSeed, .stream = stream});
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(RoundTo(dtype, random.Normal(static_cast<uint64_t>(i))));
  }
  return values;
}

class TokenLogProbabilityTest : public ::testing::TestWithParam<DType> {
 protected:
  TokenLogProbabilityTest()
      : bench_({.compute_dtype = GetParam()}),
        x_(Draw(1, kRows * kWidth, GetParam())),
        weight_(Draw(2, kVocabulary * kWidth, GetParam())) {}

  HeadWeight Register(Trainability trainability) {
    const auto id = bench_.store().Register({.name = "head",
                                             .shape = {kVocabulary, kWidth},
                                             .dtype = DType::kF32,
                                             .trainability = trainability},
                                            {});
    EXPECT_THAT(id, IsOk());
    EXPECT_THAT(bench_.store().Seal(), IsOk());
    const std::vector<float> values(weight_.begin(), weight_.end());
    EXPECT_THAT(
        bench_.store().WriteState(StateKind::kParameter, *id, 0, std::as_bytes(std::span(values))),
        IsOk());
    return {.parameter = {.tensor = *id, .trainability = trainability},
            .shape = {kVocabulary, kWidth}};
  }
  double tolerance() const { return GetParam() == DType::kF32 ? 1e-5 : 3e-2; }

  static void ExpectNear(const Values& actual, const Values& expected, double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << i;
  }

  TestBench bench_;
  Values x_;
  Values weight_;
};

TEST_P(TokenLogProbabilityTest, Gradients) {
  const HeadWeight head = Register(Trainability::kTrainable);
  bench_.BeginTraining(0.0);
  Tape tape(bench_.context(), Tape::Mode::kTraining);
  std::vector<float> log_probabilities(kRows, -99.0F);
  GradientCellPtr cell;
  {
    const Var hidden = bench_.MakeInput({kRows, kWidth}, x_);
    cell = hidden.gradient();
    ASSERT_THAT(TokenLogProbability(tape, hidden, head,
                                    {.targets = kTargets,
                                     .log_probabilities = log_probabilities,
                                     .grad_log_probabilities = kDerivatives}),
                IsOk());
  }
  ExpectNear(Values(log_probabilities.begin(), log_probabilities.end()),
             LogProbabilitiesOf(x_, weight_), tolerance());
  ASSERT_THAT(tape.Backward(), IsOk());
  ExpectNear(ValuesOf(cell->sum),
             Differences(x_, [&](const Values& x) { return LossOf(x, weight_); }), tolerance());
  const auto gradient = bench_.store().Gradient(head.parameter.tensor);
  ASSERT_THAT(gradient, IsOk());
  ExpectNear(Values(gradient->begin(), gradient->end()),
             Differences(weight_, [&](const Values& weight) { return LossOf(x_, weight); }),
             tolerance());
}

TEST_P(TokenLogProbabilityTest, FrozenHeadAndEarlierGradient) {
  const HeadWeight head = Register(Trainability::kFrozen);
  bench_.BeginTraining(0.0);
  Tape tape(bench_.context(), Tape::Mode::kTraining);
  std::vector<float> log_probabilities(kRows);
  const Var hidden = bench_.MakeInput({kRows, kWidth}, x_);
  hidden.gradient()->sum = bench_.MakeActivation({kRows, kWidth}, Values(kRows * kWidth, 2.0));
  ASSERT_THAT(TokenLogProbability(tape, hidden, head,
                                  {.targets = kTargets,
                                   .log_probabilities = log_probabilities,
                                   .grad_log_probabilities = kDerivatives}),
              IsOk());
  ASSERT_THAT(tape.Backward(), IsOk());
  Values expected = Differences(x_, [&](const Values& x) { return LossOf(x, weight_); });
  for (double& value : expected) value += 2.0;
  ExpectNear(ValuesOf(hidden.gradient()->sum), expected, tolerance());
}

TEST_P(TokenLogProbabilityTest, OnlyTheHeadIsTrained) {
  const HeadWeight head = Register(Trainability::kTrainable);
  bench_.BeginTraining(0.0);
  Tape tape(bench_.context(), Tape::Mode::kTraining);
  std::vector<float> log_probabilities(kRows);
  const Var hidden(bench_.MakeActivation({kRows, kWidth}, x_), nullptr);
  ASSERT_THAT(TokenLogProbability(tape, hidden, head,
                                  {.targets = kTargets,
                                   .log_probabilities = log_probabilities,
                                   .grad_log_probabilities = kDerivatives}),
              IsOk());
  ASSERT_THAT(tape.Backward(), IsOk());
  const auto gradient = bench_.store().Gradient(head.parameter.tensor);
  ASSERT_THAT(gradient, IsOk());
  ExpectNear(Values(gradient->begin(), gradient->end()),
             Differences(weight_, [&](const Values& weight) { return LossOf(x_, weight); }),
             tolerance());
}

INSTANTIATE_TEST_SUITE_P(ComputeTypes, TokenLogProbabilityTest,
                         ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace gantry
