#include "trainer/nn/embedding.h"

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/nn/testing/operator_checker.h"

namespace gantry {
namespace {

constexpr MatrixShape kShape{.rows = 6, .cols = 5};
const std::vector<int32_t> kTokens = {3, 0, 3, 5, 3, 0, 1};  // repeated, and some never

TEST(EmbeddingTest, Gradients) {
  OperatorCase c;
  c.parameters = {{.shape = kShape}};
  c.run = [](Tape& tape, std::vector<Var>,
             const std::vector<Parameter>& parameters) -> absl::StatusOr<std::vector<Var>> {
    GANTRY_ASSIGN_OR_RETURN(
        Var y, Embedding(tape, kTokens, {.parameter = parameters[0], .shape = kShape}));
    return std::vector<Var>{std::move(y)};
  };
  c.reference = [](const std::vector<Values>& values) {
    Values y;
    for (const int32_t token : kTokens) {
      for (int64_t i = 0; i < kShape.cols; ++i) {
        y.push_back(values[0][static_cast<size_t>(token * kShape.cols + i)]);
      }
    }
    return y;
  };
  CheckOperator(c);
}

TEST(EmbeddingTest, FrozenTablesRecordNothing) {
  TestBench bench({});
  const auto id = bench.store().Register({.name = "table",
                                          .shape = {kShape.rows, kShape.cols},
                                          .dtype = DType::kF32,
                                          .trainability = Trainability::kFrozen},
                                         {});
  ASSERT_THAT(id, IsOk());
  ASSERT_THAT(bench.store().Seal(), IsOk());
  bench.BeginTraining(0.0);
  Tape tape(bench.context(), Tape::Mode::kTraining);
  const auto y = Embedding(
      tape, kTokens,
      {.parameter = {.tensor = *id, .trainability = Trainability::kFrozen}, .shape = kShape});
  ASSERT_THAT(y, IsOk());
  EXPECT_FALSE(y->requires_gradient());
  EXPECT_EQ(y->value().rows(), 7);
  ASSERT_THAT(tape.Backward(), IsOk());
}

}  // namespace
}  // namespace gantry
