// The tape over a toy operator, y = w * x element by element, whose kernels are counted: lifetimes,
// gradient sums, readiness, frozen parameters, and that dry runs differ in nothing but the kernels.
#include "trainer/autograd/tape.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/recording_store.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/autograd/testing/toy_operator.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TapeTest : public ::testing::Test {
 protected:
  TapeTest() : bench_({}), recording_(&bench_.store()) {}

  Parameter Register(const std::string& name, Trainability trainability) {
    const auto id = bench_.store().Register(
        {.name = name, .shape = {kToyElements}, .dtype = DType::kF32, .trainability = trainability},
        {});
    GANTRY_CHECK_OK(id.status());
    return {.tensor = *id, .trainability = trainability};
  }
  void Seal(std::initializer_list<std::pair<Parameter, float>> values) {
    ASSERT_THAT(bench_.store().Seal(), IsOk());
    for (const auto& [parameter, value] : values) {
      const std::vector<float> all(kToyElements, value);
      ASSERT_THAT(bench_.store().WriteState(StateKind::kParameter, parameter.tensor, 0,
                                            std::as_bytes(std::span(all))),
                  IsOk());
    }
  }
  ExecutionContext context() { return bench_.ContextOver(&recording_); }
  Var Input(double value) {
    return bench_.MakeInput({1, kToyElements}, std::vector<double>(kToyElements, value));
  }
  // Sets the gradient of an output.
  void Seed(const Var& output, double value) {
    output.gradient()->sum =
        bench_.MakeActivation({1, kToyElements}, std::vector<double>(kToyElements, value));
  }
  static double First(const Activation& activation) { return ValuesOf(activation)[0]; }
  double FirstGradient(const Parameter& parameter) {
    return bench_.store().Gradient(parameter.tensor)->at(0);
  }
  // The events that start with `word`.
  std::vector<std::string> Events(const std::string& word) {
    std::vector<std::string> found;
    for (std::string& event : recording_.TakeEvents()) {
      if (event.starts_with(word)) found.push_back(std::move(event));
    }
    return found;
  }

  TestBench bench_;
  RecordingStore recording_;
  ToyCounts counts_;
};

TEST_F(TapeTest, GradientsOfAChain) {
  const Parameter a = Register("a", Trainability::kTrainable);
  const Parameter b = Register("b", Trainability::kTrainable);
  Seal({{a, 2.0F}, {b, 5.0F}});
  bench_.BeginTraining(0.0);
  Tape tape(context(), Tape::Mode::kTraining);
  const Var x = Input(3.0);
  {
    const auto y = Toy(tape, x, a, counts_);
    ASSERT_THAT(y, IsOk());
    const auto z = Toy(tape, *y, b, counts_);
    ASSERT_THAT(z, IsOk());
    EXPECT_EQ(First(z->value()), 30.0);
    Seed(*z, 1.0);
  }
  ASSERT_THAT(tape.Backward(), IsOk());
  EXPECT_EQ(First(x.gradient()->sum), 10.0);
  EXPECT_EQ(FirstGradient(a), 15.0);
  EXPECT_EQ(FirstGradient(b), 6.0);
  EXPECT_THAT(Events("acquire"),
              ElementsAre("acquire toy forward t0:r", "acquire toy forward t1:r",
                          "acquire toy backward t1:rg=", "acquire toy backward t0:rg="));
}

TEST_F(TapeTest, ReadyFollowsTheLastContribution) {
  const Parameter tied = Register("tied", Trainability::kTrainable);
  const Parameter other = Register("other", Trainability::kTrainable);
  Seal({{tied, 2.0F}, {other, 5.0F}});
  bench_.BeginTraining(0.0);
  Tape tape(context(), Tape::Mode::kTraining);
  const Var x = Input(3.0);
  {
    const auto y = Toy(tape, x, tied, counts_);
    ASSERT_THAT(y, IsOk());
    const auto z = Toy(tape, *y, other, counts_);
    ASSERT_THAT(z, IsOk());
    const auto last = Toy(tape, *z, tied, counts_);
    ASSERT_THAT(last, IsOk());
    Seed(*last, 1.0);
  }
  recording_.TakeEvents();
  ASSERT_THAT(tape.Backward(), IsOk());
  std::vector<std::string> events;
  for (const std::string& event : recording_.TakeEvents()) {
    if (event.starts_with("acquire") || event.starts_with("ready")) events.push_back(event);
  }
  EXPECT_THAT(events, ElementsAre("acquire toy backward t0:rg=", "acquire toy backward t1:rg=",
                                  "ready t1", "acquire toy backward t0:rg+", "ready t0"));
  EXPECT_EQ(FirstGradient(tied), 2.0 * 2.0 * 5.0 * 3.0);  // d(tied^2 other x)
}

TEST_F(TapeTest, ParametersOfUnusedOutputsAreReadyAtTheEnd) {
  const Parameter used = Register("used", Trainability::kTrainable);
  const Parameter unused = Register("unused", Trainability::kTrainable);
  Seal({{used, 2.0F}, {unused, 5.0F}});
  bench_.BeginTraining(0.0);
  Tape tape(context(), Tape::Mode::kTraining);
  const Var x = Input(3.0);
  ASSERT_THAT(Toy(tape, x, unused, counts_), IsOk());
  const auto y = Toy(tape, x, used, counts_);
  ASSERT_THAT(y, IsOk());
  Seed(*y, 1.0);
  ASSERT_THAT(tape.Backward(), IsOk());
  EXPECT_THAT(Events("ready"), ElementsAre("ready t0", "ready t1"));
  EXPECT_EQ(FirstGradient(unused), 0.0);
  EXPECT_EQ(First(x.gradient()->sum), 2.0);
}

TEST_F(TapeTest, FrozenParametersAreReadOnlyWhereAGradientFlows) {
  const Parameter frozen = Register("frozen", Trainability::kFrozen);
  Seal({{frozen, 2.0F}});
  bench_.BeginTraining(0.0);
  Tape tape(context(), Tape::Mode::kTraining);
  const Var constant(Input(3.0).value(), nullptr);
  const auto still = Toy(tape, constant, frozen, counts_);
  ASSERT_THAT(still, IsOk());
  EXPECT_FALSE(still->requires_gradient());
  const Var x = Input(3.0);
  const auto y = Toy(tape, x, frozen, counts_);
  ASSERT_THAT(y, IsOk());
  Seed(*y, 7.0);
  ASSERT_THAT(tape.Backward(), IsOk());
  EXPECT_EQ(First(x.gradient()->sum), 14.0);
  EXPECT_THAT(Events("acquire"), ElementsAre("acquire toy forward t0:r", "acquire toy forward t0:r",
                                             "acquire toy backward t0:r"));
  EXPECT_THAT(Events("ready"), ElementsAre());
}

TEST_F(TapeTest, EvaluationKeepsNothing) {
  const Parameter a = Register("a", Trainability::kTrainable);
  Seal({{a, 2.0F}});
  ASSERT_THAT(bench_.store().BeginStep({}), IsOk());
  ASSERT_THAT(bench_.store().BeginMicroBatch(), IsOk());
  Tape tape(context(), Tape::Mode::kEvaluation);
  Var x = Input(3.0);
  for (int i = 0; i < 3; ++i) {
    auto y = Toy(tape, x, a, counts_);
    ASSERT_THAT(y, IsOk());
    x = *std::move(y);
    EXPECT_FALSE(x.requires_gradient());
  }
  EXPECT_EQ(First(x.value()), 24.0);
  int live = 0;
  for (const std::string& event : recording_.TakeEvents()) {
    live += event.starts_with("allocate") ? 1 : event.starts_with("free") ? -1 : 0;
  }
  EXPECT_EQ(live, 1);  // the last value only
}

TEST_F(TapeTest, SharedGradientsAreCopiedWhenOneGrows) {
  Seal({});
  bench_.BeginTraining(0.0);
  Tape tape(context(), Tape::Mode::kTraining);
  const Var a = Input(0.0);
  const Var b = Input(0.0);
  const Activation whole =
      bench_.MakeActivation({1, kToyElements}, std::vector<double>(kToyElements, 4.0));
  ASSERT_THAT(tape.Contribute(a.gradient(), whole), IsOk());
  ASSERT_THAT(tape.Contribute(b.gradient(), whole), IsOk());
  EXPECT_EQ(a.gradient()->sum.matrix().data, b.gradient()->sum.matrix().data);
  ASSERT_THAT(tape.Contribute(a.gradient(), whole), IsOk());
  EXPECT_EQ(First(a.gradient()->sum), 8.0);
  EXPECT_EQ(First(b.gradient()->sum), 4.0);
  EXPECT_EQ(First(whole), 4.0);
  const auto target = tape.TargetOf(a.gradient(), {1, kToyElements});  // unique now: in place
  ASSERT_THAT(target, IsOk());
  EXPECT_EQ(target->accumulate, Accumulate::kAdd);
  EXPECT_EQ(target->activation.matrix().data, a.gradient()->sum.matrix().data);
}

TEST_F(TapeTest, NodesFreeWhatTheySavedAsTheyRun) {
  const Parameter a = Register("a", Trainability::kTrainable);
  Seal({{a, 1.0F}});
  bench_.BeginTraining(0.0);
  Tape tape(context(), Tape::Mode::kTraining);
  {
    Var x = Input(3.0);
    for (int i = 0; i < 4; ++i) {
      auto y = Toy(tape, x, a, counts_);
      ASSERT_THAT(y, IsOk());
      x = *std::move(y);
    }
    Seed(x, 1.0);
  }
  ASSERT_THAT(tape.Backward(), IsOk());
  int64_t live = 0;
  int64_t peak = 0;
  for (const std::string& event : recording_.TakeEvents()) {
    live += event.starts_with("allocate") ? 1 : event.starts_with("free") ? -1 : 0;
    peak = std::max(peak, live);
  }
  EXPECT_EQ(live, 0);
  EXPECT_EQ(peak, 6);  // four saved inputs, the last output (or its input's gradient), the seed
}

TEST_F(TapeTest, ErrorsComeThrough) {
  const Parameter a = Register("a", Trainability::kTrainable);
  Seal({{a, 2.0F}});
  bench_.BeginTraining(0.0);
  Tape tape(context(), Tape::Mode::kTraining);
  const Var x = Input(3.0);
  counts_.forward_error = Internal("broken forward");
  EXPECT_THAT(Toy(tape, x, a, counts_), StatusIs(absl::StatusCode::kInternal, "broken forward"));
  counts_.forward_error = absl::OkStatus();
  const auto y = Toy(tape, x, a, counts_);
  ASSERT_THAT(y, IsOk());
  Seed(*y, 1.0);
  counts_.backward_error = Internal("broken backward");
  EXPECT_THAT(tape.Backward(), StatusIs(absl::StatusCode::kInternal, "broken backward"));
  EXPECT_EQ(bench_.store().open_leases(), 0);
}

TEST_F(TapeTest, ArenaErrorsComeThrough) {
  Seal({});
  bench_.BeginTraining(0.0);
  Tape tape(context(), Tape::Mode::kTraining);
  EXPECT_THAT(tape.Allocate({1 << 20, 1 << 10}, DType::kF32),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(TapeTest, MoreBackwardThanForwardUsesAbort) {
  const Parameter a = Register("a", Trainability::kTrainable);
  Seal({{a, 2.0F}});
  bench_.BeginTraining(0.0);
  Tape tape(context(), Tape::Mode::kTraining);
  const BackwardUse use{a, BackwardRead::kNone};
  const auto nothing = [](const LeasedParameters&) { return absl::OkStatus(); };
  EXPECT_DEATH(std::ignore = tape.BackwardKernels("toy", {&use, 1}, nothing),
               "more backward than forward uses");
}

// One step of a chain with a tied weight.
absl::Status RunChain(const ExecutionContext& context, const Parameter& a, const Parameter& b,
                      ToyCounts& counts) {
  StepOptions options;
  options.optimizer = OptimizerStep{.learning_rate = 0.1};
  GANTRY_RETURN_IF_ERROR(context.store->BeginStep(options));
  GANTRY_RETURN_IF_ERROR(context.store->BeginMicroBatch());
  Tape tape(context, Tape::Mode::kTraining);
  {
    GANTRY_ASSIGN_OR_RETURN(Activation start, tape.Allocate({1, kToyElements}, DType::kF32));
    Var x = tape.MakeVar(std::move(start), {}, {&a, 1});
    GANTRY_ASSIGN_OR_RETURN(x, Toy(tape, x, a, counts));
    GANTRY_ASSIGN_OR_RETURN(x, Toy(tape, x, b, counts));
    GANTRY_ASSIGN_OR_RETURN(x, Toy(tape, x, a, counts));
    GANTRY_ASSIGN_OR_RETURN(x.gradient()->sum, tape.Allocate({1, kToyElements}, DType::kF32));
  }
  GANTRY_RETURN_IF_ERROR(tape.Backward());
  return context.store->EndStep().status();
}

TEST_F(TapeTest, DryRunMakesTheSameEventsWithoutKernels) {
  const Parameter a = Register("a", Trainability::kTrainable);
  const Parameter b = Register("b", Trainability::kTrainable);
  ASSERT_THAT(RunChain(context(), a, b, counts_), IsOk());
  EXPECT_EQ(counts_.forward, 0);
  EXPECT_EQ(counts_.backward, 0);
  const std::vector<std::string> dry = recording_.TakeEvents();
  Seal({{a, 2.0F}, {b, 3.0F}});
  ASSERT_THAT(RunChain(context(), a, b, counts_), IsOk());
  EXPECT_EQ(counts_.forward, 3);
  EXPECT_EQ(counts_.backward, 3);
  EXPECT_EQ(recording_.TakeEvents(), dry);
  EXPECT_GT(dry.size(), 20U);
}

}  // namespace
}  // namespace gantry
