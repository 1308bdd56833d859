#include "trainer/nn/linear.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/nn/testing/operator_checker.h"

namespace gantry {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kIn = 7;

// y = x W^T for each weight, side by side; with the biases behind the weights, plus b.
Values Reference(const std::vector<Values>& values, const std::vector<int64_t>& outs) {
  const bool has_biases = values.size() > 1 + outs.size();
  int64_t width = 0;
  for (const int64_t out : outs) width += out;
  Values y(static_cast<size_t>(kRows * width));
  for (int64_t row = 0; row < kRows; ++row) {
    int64_t column = 0;
    for (size_t w = 0; w < outs.size(); ++w) {
      for (int64_t o = 0; o < outs[w]; ++o) {
        double sum = has_biases ? values[1 + outs.size() + w][static_cast<size_t>(o)] : 0.0;
        for (int64_t i = 0; i < kIn; ++i) {
          sum += values[0][static_cast<size_t>(row * kIn + i)] *
                 values[1 + w][static_cast<size_t>(o * kIn + i)];
        }
        y[static_cast<size_t>(row * width + column++)] = sum;
      }
    }
  }
  return y;
}

struct Choice {
  std::vector<Trainability> weights;
  std::vector<Trainability> biases = {};  // none, or one a weight
  Trainability input = Trainability::kTrainable;
};

OperatorCase LinearCase(const std::vector<int64_t>& outs, const Choice& choice) {
  OperatorCase c;
  c.inputs = {{.shape = {kRows, kIn}, .trainability = choice.input}};
  for (size_t i = 0; i < outs.size(); ++i) {
    c.parameters.push_back({.shape = {outs[i], kIn}, .trainability = choice.weights[i]});
  }
  for (size_t i = 0; i < choice.biases.size(); ++i) {
    c.parameters.push_back({.shape = {1, outs[i]}, .trainability = choice.biases[i]});
  }
  c.run = [outs](Tape& tape, std::vector<Var> inputs,
                 const std::vector<Parameter>& parameters) -> absl::StatusOr<std::vector<Var>> {
    std::vector<LinearWeight> weights;
    for (size_t i = 0; i < outs.size(); ++i) {
      weights.push_back({.parameter = parameters[i], .out_features = outs[i]});
      if (parameters.size() > outs.size()) weights.back().bias = parameters[outs.size() + i];
    }
    auto y = Linear(tape, inputs[0], {.name = "linear", .weights = weights});
    if (!y.ok()) return y.status();
    return std::vector<Var>{*std::move(y)};
  };
  c.reference = [outs](const std::vector<Values>& values) { return Reference(values, outs); };
  return c;
}

constexpr Trainability kTrained = Trainability::kTrainable;
constexpr Trainability kFrozen = Trainability::kFrozen;

TEST(LinearTest, OneWeight) { CheckOperator(LinearCase({3}, {.weights = {kTrained}})); }

TEST(LinearTest, ThreeWeightsSideBySide) {
  CheckOperator(LinearCase({4, 2, 3}, {.weights = {kTrained, kTrained, kTrained}}));
}

TEST(LinearTest, SomeWeightsFrozen) {
  CheckOperator(LinearCase({4, 2, 3}, {.weights = {kFrozen, kTrained, kFrozen}}));
  CheckOperator(LinearCase({4, 2}, {.weights = {kFrozen, kFrozen}}));
}

TEST(LinearTest, Biases) {
  CheckOperator(LinearCase({3}, {.weights = {kTrained}, .biases = {kTrained}}));
  CheckOperator(LinearCase({4, 2, 3}, {.weights = {kTrained, kTrained, kTrained},
                                       .biases = {kTrained, kTrained, kTrained}}));
}

TEST(LinearTest, SomeBiasesFrozen) {
  CheckOperator(LinearCase({4, 2, 3}, {.weights = {kFrozen, kTrained, kFrozen},
                                       .biases = {kTrained, kFrozen, kFrozen}}));
  CheckOperator(
      LinearCase({4, 2}, {.weights = {kFrozen, kFrozen}, .biases = {kTrained, kTrained}}));
  CheckOperator(LinearCase(
      {4, 2}, {.weights = {kFrozen, kFrozen}, .biases = {kTrained, kTrained}, .input = kFrozen}));
}

TEST(LinearTest, InputWithoutGradient) {
  CheckOperator(LinearCase({4, 2, 3}, {.weights = {kFrozen, kTrained, kFrozen}, .input = kFrozen}));
}

}  // namespace
}  // namespace gantry
