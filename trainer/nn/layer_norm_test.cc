#include "trainer/nn/layer_norm.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "trainer/nn/testing/operator_checker.h"

namespace gantry {
namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kWidth = 9;
constexpr double kEpsilon = 1e-3;

// values[first] is the weight, the next the bias.
Values Normalize(const Values& h, const std::vector<Values>& values, size_t first) {
  Values y(h.size());
  for (int64_t row = 0; row < kRows; ++row) {
    const double* x = h.data() + row * kWidth;
    double mean = 0;
    for (int64_t i = 0; i < kWidth; ++i) mean += x[i] / static_cast<double>(kWidth);
    double variance = 0;
    for (int64_t i = 0; i < kWidth; ++i) {
      variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(kWidth);
    }
    for (int64_t i = 0; i < kWidth; ++i) {
      const auto at = static_cast<size_t>(i);
      y[static_cast<size_t>(row * kWidth + i)] =
          values[first][at] * (x[i] - mean) / std::sqrt(variance + kEpsilon) +
          values[first + 1][at];
    }
  }
  return y;
}

OperatorCase NormCase(Trainability input, Trainability weight, Trainability bias) {
  OperatorCase c;
  c.inputs = {{.shape = {kRows, kWidth}, .trainability = input}};
  c.parameters = {{.shape = {1, kWidth}, .trainability = weight},
                  {.shape = {1, kWidth}, .trainability = bias}};
  c.run = [](Tape& tape, std::vector<Var> inputs,
             const std::vector<Parameter>& parameters) -> absl::StatusOr<std::vector<Var>> {
    GANTRY_ASSIGN_OR_RETURN(Var y, LayerNorm(tape, inputs[0],
                                             {.parameter = parameters[0],
                                              .bias = parameters[1],
                                              .epsilon = static_cast<float>(kEpsilon)}));
    return std::vector<Var>{std::move(y)};
  };
  c.reference = [](const std::vector<Values>& values) { return Normalize(values[0], values, 1); };
  return c;
}

OperatorCase AddNormCase(Trainability x, Trainability residual, Trainability weight,
                         Trainability bias) {
  OperatorCase c;
  c.inputs = {{.shape = {kRows, kWidth}, .trainability = x},
              {.shape = {kRows, kWidth}, .trainability = residual}};
  c.parameters = {{.shape = {1, kWidth}, .trainability = weight},
                  {.shape = {1, kWidth}, .trainability = bias}};
  c.run = [](Tape& tape, std::vector<Var> inputs,
             const std::vector<Parameter>& parameters) -> absl::StatusOr<std::vector<Var>> {
    GANTRY_ASSIGN_OR_RETURN(SumAndNorm result,
                            AddLayerNorm(tape, inputs[0], inputs[1],
                                         {.parameter = parameters[0],
                                          .bias = parameters[1],
                                          .epsilon = static_cast<float>(kEpsilon)}));
    return std::vector<Var>{std::move(result.sum), std::move(result.normalized)};
  };
  c.reference = [](const std::vector<Values>& values) {
    Values outputs = values[0];
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i] += values[1][i];
    const Values y = Normalize(outputs, values, 2);
    outputs.insert(outputs.end(), y.begin(), y.end());
    return outputs;
  };
  return c;
}

constexpr Trainability kTrained = Trainability::kTrainable;
constexpr Trainability kFrozen = Trainability::kFrozen;

TEST(LayerNormTest, Gradients) { CheckOperator(NormCase(kTrained, kTrained, kTrained)); }
TEST(LayerNormTest, FrozenParameters) {
  CheckOperator(NormCase(kTrained, kFrozen, kTrained));
  CheckOperator(NormCase(kTrained, kTrained, kFrozen));
  CheckOperator(NormCase(kTrained, kFrozen, kFrozen));
}
TEST(LayerNormTest, InputWithoutGradient) { CheckOperator(NormCase(kFrozen, kTrained, kTrained)); }

TEST(AddLayerNormTest, Gradients) {
  CheckOperator(AddNormCase(kTrained, kTrained, kTrained, kTrained));
}
TEST(AddLayerNormTest, FrozenParameters) {
  CheckOperator(AddNormCase(kTrained, kTrained, kFrozen, kTrained));
  CheckOperator(AddNormCase(kTrained, kTrained, kFrozen, kFrozen));
}
TEST(AddLayerNormTest, OneInputWithoutGradient) {
  CheckOperator(AddNormCase(kTrained, kFrozen, kTrained, kTrained));
  CheckOperator(AddNormCase(kFrozen, kTrained, kTrained, kTrained));
}
TEST(AddLayerNormTest, OnlyTheParametersAreTrained) {
  CheckOperator(AddNormCase(kFrozen, kFrozen, kTrained, kTrained));
}

}  // namespace
}  // namespace gantry
