#include "trainer/nn/gelu.h"

#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/nn/testing/operator_checker.h"

namespace gantry {
namespace {

double Reference(GeluForm form, double x) {
  if (form == GeluForm::kExact) return x * (1 + std::erf(x / std::sqrt(2.0))) / 2;
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * std::pow(x, 3));
  return x * (1 + std::tanh(u)) / 2;
}

OperatorCase GeluCase(GeluForm form) {
  OperatorCase c;
  c.inputs = {{.shape = {3, 37}}};
  c.run = [form](Tape& tape, std::vector<Var> inputs,
                 const std::vector<Parameter>&) -> absl::StatusOr<std::vector<Var>> {
    GANTRY_ASSIGN_OR_RETURN(Var y, Gelu(tape, inputs[0], form));
    return std::vector<Var>{std::move(y)};
  };
  c.reference = [form](const std::vector<Values>& values) {
    Values y;
    for (const double x : values[0]) y.push_back(Reference(form, x));
    return y;
  };
  return c;
}

TEST(GeluTest, Gradients) {
  CheckOperator(GeluCase(GeluForm::kExact));
  CheckOperator(GeluCase(GeluForm::kTanh));
}

// In the backward pass the saved input is overwritten only when nobody else holds it.
TEST(GeluTest, AnInputHeldElsewhereStays) {
  TestBench bench({});
  ASSERT_THAT(bench.store().Seal(), IsOk());
  bench.BeginTraining(0.0);
  Tape tape(bench.context(), Tape::Mode::kTraining);
  const Values values(5, 0.25);
  const Var x = bench.MakeInput({1, 5}, values);
  const auto y = Gelu(tape, x, GeluForm::kTanh);
  ASSERT_THAT(y, IsOk());
  y->gradient()->sum = bench.MakeActivation({1, 5}, Values(5, 1.0));
  ASSERT_THAT(tape.Backward(), IsOk());
  EXPECT_EQ(ValuesOf(x.value()), values);
  EXPECT_NE(x.gradient()->sum.matrix().data, x.value().matrix().data);
}

}  // namespace
}  // namespace gantry
