#include "trainer/nn/residual_add.h"

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "trainer/nn/testing/operator_checker.h"

namespace gantry {
namespace {

constexpr MatrixShape kShape{.rows = 3, .cols = 5};

OperatorCase AddCase(Trainability a, Trainability b) {
  OperatorCase c;
  c.inputs = {{.shape = kShape, .trainability = a}, {.shape = kShape, .trainability = b}};
  c.run = [](Tape& tape, std::vector<Var> inputs,
             const std::vector<Parameter>&) -> absl::StatusOr<std::vector<Var>> {
    GANTRY_ASSIGN_OR_RETURN(Var y, ResidualAdd(tape, inputs[0], inputs[1]));
    return std::vector<Var>{std::move(y)};
  };
  c.reference = [](const std::vector<Values>& values) {
    Values y = values[0];
    for (size_t i = 0; i < y.size(); ++i) y[i] += values[1][i];
    return y;
  };
  return c;
}

TEST(ResidualAddTest, Gradients) {
  CheckOperator(AddCase(Trainability::kTrainable, Trainability::kTrainable));
}

TEST(ResidualAddTest, OneInputWithoutGradient) {
  CheckOperator(AddCase(Trainability::kTrainable, Trainability::kFrozen));
  CheckOperator(AddCase(Trainability::kFrozen, Trainability::kTrainable));
}

}  // namespace
}  // namespace gantry
