#include "trainer/nn/swiglu.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/nn/testing/operator_checker.h"

namespace gantry {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kChannels = 7;

// What the caller does with the input after the operator.
enum class Caller { kDropsInput, kKeepsInput };

OperatorCase SwiGluCase(Caller caller, std::vector<Var>& kept) {
  OperatorCase c;
  c.inputs = {{.shape = {kRows, 2 * kChannels}}};
  c.run = [caller, &kept](Tape& tape, std::vector<Var> inputs,
                          const std::vector<Parameter>&) -> absl::StatusOr<std::vector<Var>> {
    GANTRY_ASSIGN_OR_RETURN(Var y, SwiGlu(tape, inputs[0]));
    if (caller == Caller::kKeepsInput) kept = inputs;
    return std::vector<Var>{std::move(y)};
  };
  c.reference = [](const std::vector<Values>& values) {
    Values y;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kChannels; ++i) {
        const double gate = values[0][static_cast<size_t>(row * 2 * kChannels + i)];
        const double up = values[0][static_cast<size_t>(row * 2 * kChannels + kChannels + i)];
        y.push_back(gate / (1.0 + std::exp(-gate)) * up);
      }
    }
    return y;
  };
  return c;
}

TEST(SwiGluTest, Gradients) {
  std::vector<Var> kept;
  CheckOperator(SwiGluCase(Caller::kDropsInput, kept));
}

// In the backward pass the saved input is overwritten only when nobody else holds it.
TEST(SwiGluTest, AnInputHeldElsewhereStays) {
  TestBench bench({});
  ASSERT_THAT(bench.store().Seal(), IsOk());
  bench.BeginTraining(0.0);
  Tape tape(bench.context(), Tape::Mode::kTraining);
  const Values values(static_cast<size_t>(2 * kChannels), 0.25);
  const Var x = bench.MakeInput({1, 2 * kChannels}, values);
  const auto y = SwiGlu(tape, x);
  ASSERT_THAT(y, IsOk());
  y->gradient()->sum =
      bench.MakeActivation({1, kChannels}, Values(static_cast<size_t>(kChannels), 1.0));
  ASSERT_THAT(tape.Backward(), IsOk());
  EXPECT_EQ(ValuesOf(x.value()), values);
  EXPECT_NE(x.gradient()->sum.matrix().data, x.value().matrix().data);
}

}  // namespace
}  // namespace gantry
