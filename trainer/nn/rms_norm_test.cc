#include "trainer/nn/rms_norm.h"

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/nn/testing/operator_checker.h"

namespace gantry {
namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kWidth = 9;
constexpr double kEpsilon = 1e-3;

Values Normalize(const Values& h, const Values& weight) {
  Values y(h.size());
  for (int64_t row = 0; row < kRows; ++row) {
    double squares = 0;
    for (int64_t i = 0; i < kWidth; ++i) {
      const double value = h[static_cast<size_t>(row * kWidth + i)];
      squares += value * value;
    }
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(kWidth) + kEpsilon);
    for (int64_t i = 0; i < kWidth; ++i) {
      const auto at = static_cast<size_t>(row * kWidth + i);
      y[at] = weight[static_cast<size_t>(i)] * h[at] * rstd;
    }
  }
  return y;
}

OperatorCase NormCase(Trainability input, Trainability weight) {
  OperatorCase c;
  c.inputs = {{.shape = {kRows, kWidth}, .trainability = input}};
  c.parameters = {{.shape = {1, kWidth}, .trainability = weight}};
  c.run = [](Tape& tape, std::vector<Var> inputs,
             const std::vector<Parameter>& parameters) -> absl::StatusOr<std::vector<Var>> {
    GANTRY_ASSIGN_OR_RETURN(
        Var y, RmsNorm(tape, inputs[0],
                       {.parameter = parameters[0], .epsilon = static_cast<float>(kEpsilon)}));
    return std::vector<Var>{std::move(y)};
  };
  c.reference = [](const std::vector<Values>& values) { return Normalize(values[0], values[1]); };
  return c;
}

OperatorCase AddNormCase(Trainability x, Trainability residual, Trainability weight) {
  OperatorCase c;
  c.inputs = {{.shape = {kRows, kWidth}, .trainability = x},
              {.shape = {kRows, kWidth}, .trainability = residual}};
  c.parameters = {{.shape = {1, kWidth}, .trainability = weight}};
  c.run = [](Tape& tape, std::vector<Var> inputs,
             const std::vector<Parameter>& parameters) -> absl::StatusOr<std::vector<Var>> {
    GANTRY_ASSIGN_OR_RETURN(
        SumAndNorm result,
        AddRmsNorm(tape, inputs[0], inputs[1],
                   {.parameter = parameters[0], .epsilon = static_cast<float>(kEpsilon)}));
    return std::vector<Var>{std::move(result.sum), std::move(result.normalized)};
  };
  c.reference = [](const std::vector<Values>& values) {
    Values outputs = values[0];
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i] += values[1][i];
    const Values y = Normalize(outputs, values[2]);
    outputs.insert(outputs.end(), y.begin(), y.end());
    return outputs;
  };
  return c;
}

constexpr Trainability kTrained = Trainability::kTrainable;
constexpr Trainability kFrozen = Trainability::kFrozen;

TEST(RmsNormTest, Gradients) { CheckOperator(NormCase(kTrained, kTrained)); }
TEST(RmsNormTest, FrozenWeight) { CheckOperator(NormCase(kTrained, kFrozen)); }
TEST(RmsNormTest, InputWithoutGradient) { CheckOperator(NormCase(kFrozen, kTrained)); }

TEST(AddRmsNormTest, Gradients) { CheckOperator(AddNormCase(kTrained, kTrained, kTrained)); }
TEST(AddRmsNormTest, FrozenWeight) { CheckOperator(AddNormCase(kTrained, kTrained, kFrozen)); }
TEST(AddRmsNormTest, OneInputWithoutGradient) {
  CheckOperator(AddNormCase(kTrained, kFrozen, kTrained));
  CheckOperator(AddNormCase(kFrozen, kTrained, kTrained));
}
TEST(AddRmsNormTest, OnlyTheWeightIsTrained) {
  CheckOperator(AddNormCase(kFrozen, kFrozen, kTrained));
}

// The sum's gradient is written over only when nobody else holds it.
TEST(AddRmsNormTest, ASharedGradientStays) {
  TestBench bench({});
  const auto id =
      bench.store().Register({.name = "w", .shape = {kWidth}, .dtype = DType::kF32}, {});
  ASSERT_THAT(id, IsOk());
  ASSERT_THAT(bench.store().Seal(), IsOk());
  const std::vector<float> weight(static_cast<size_t>(kWidth), 1.0F);
  ASSERT_THAT(
      bench.store().WriteState(StateKind::kParameter, *id, 0, std::as_bytes(std::span(weight))),
      IsOk());
  bench.BeginTraining(0.0);
  Tape tape(bench.context(), Tape::Mode::kTraining);
  const Values ones(static_cast<size_t>(kRows * kWidth), 1.0);
  Values slope = ones;
  for (size_t i = 0; i < slope.size(); ++i) slope[i] = static_cast<double>(i);
  const Var x = bench.MakeInput({kRows, kWidth}, slope);
  const auto result = AddRmsNorm(
      tape, x, x, {.parameter = {.tensor = *id}, .epsilon = static_cast<float>(kEpsilon)});
  ASSERT_THAT(result, IsOk());
  const Activation shared = bench.MakeActivation({kRows, kWidth}, ones);
  result->sum.gradient()->sum = shared;
  result->normalized.gradient()->sum = bench.MakeActivation({kRows, kWidth}, ones);
  ASSERT_THAT(tape.Backward(), IsOk());
  EXPECT_EQ(ValuesOf(shared), ones);
}

}  // namespace
}  // namespace gantry
