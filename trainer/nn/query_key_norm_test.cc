#include "trainer/nn/query_key_norm.h"

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

constexpr double kEpsilon = 1e-3;
constexpr int64_t kRows = 3;
constexpr int64_t kQueryHeads = 4;
constexpr int64_t kKeyHeads = 2;
constexpr int64_t kHeadDim = 6;
constexpr int64_t kColumns = (kQueryHeads + 2 * kKeyHeads) * kHeadDim;

Values Reference(const std::vector<Values>& values) {
  Values y = values[0];
  for (int64_t head = 0; head < kRows * (kQueryHeads + 2 * kKeyHeads); ++head) {
    const int64_t within = head % (kQueryHeads + 2 * kKeyHeads);
    if (within >= kQueryHeads + kKeyHeads) continue;  // values stay
    const Values& weight = values[within < kQueryHeads ? 1 : 2];
    double* x = y.data() + head * kHeadDim;
    double squares = 0;
    for (int64_t i = 0; i < kHeadDim; ++i) squares += x[i] * x[i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(kHeadDim) + kEpsilon);
    for (int64_t i = 0; i < kHeadDim; ++i) x[i] *= rstd * weight[static_cast<size_t>(i)];
  }
  return y;
}

struct Choice {
  Trainability input = Trainability::kTrainable;
  Trainability query = Trainability::kTrainable;
  Trainability key = Trainability::kTrainable;
};

OperatorCase NormCase(const Choice& choice) {
  OperatorCase c;
  c.inputs = {{.shape = {kRows, kColumns}, .trainability = choice.input}};
  c.parameters = {{.shape = {1, kHeadDim}, .trainability = choice.query},
                  {.shape = {1, kHeadDim}, .trainability = choice.key}};
  c.run = [](Tape& tape, std::vector<Var> inputs,
             const std::vector<Parameter>& parameters) -> absl::StatusOr<std::vector<Var>> {
    Var qkv = std::move(inputs[0]);
    inputs.clear();
    const auto epsilon = static_cast<float>(kEpsilon);
    GANTRY_ASSIGN_OR_RETURN(
        Var y, QueryKeyNorm(tape, std::move(qkv),
                            {.query_heads = kQueryHeads,
                             .kv_heads = kKeyHeads,
                             .head_dim = kHeadDim,
                             .query = {.parameter = parameters[0], .epsilon = epsilon},
                             .key = {.parameter = parameters[1], .epsilon = epsilon}}));
    return std::vector<Var>{std::move(y)};
  };
  c.reference = Reference;
  return c;
}

constexpr Trainability kFrozen = Trainability::kFrozen;

TEST(QueryKeyNormTest, Gradients) { CheckOperator(NormCase({})); }
TEST(QueryKeyNormTest, FrozenWeights) {
  CheckOperator(NormCase({.query = kFrozen}));
  CheckOperator(NormCase({.query = kFrozen, .key = kFrozen}));
}
TEST(QueryKeyNormTest, InputWithoutGradient) { CheckOperator(NormCase({.input = kFrozen})); }

}  // namespace
}  // namespace gantry
