// Checkpoints against the same body without: equal gradients, fewer live activations, each kernel
// recomputed at most once and the last not at all.
#include "trainer/autograd/checkpoint.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/recording_store.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/autograd/testing/toy_operator.h"

namespace gantry {
namespace {

constexpr int kWeights = 4;

enum class Shape {
  kPlain,   // four operators in a row
  kPairs,   // two checkpoints of two
  kWhole,   // one checkpoint of all
  kNested,  // one checkpoint that holds two of two
};

struct Outcome {
  double output;
  std::vector<double> gradients;  // of the input, then the weights
  ToyCounts counts;
  int64_t peak = 0;  // live allocations
  std::vector<std::string> events;
};

class CheckpointTest : public ::testing::Test {
 protected:
  // Four operators over weights 0, 1, 2 and 0 again, in some arrangement of checkpoints.
  Outcome Run(Shape shape) {
    TestBench bench({});
    RecordingStore recording(&bench.store());
    std::vector<Parameter> weights;
    for (int i = 0; i < kWeights - 1; ++i) {
      weights.push_back(
          {.tensor = *bench.store().Register(
               {.name = std::to_string(i), .shape = {kToyElements}, .dtype = DType::kF32}, {})});
    }
    Outcome outcome{};
    EXPECT_THAT(RunStep(bench.ContextOver(&recording), weights, shape, outcome), IsOk());
    outcome.events = recording.TakeEvents();  // dry
    EXPECT_EQ(outcome.counts.forward + outcome.counts.backward, 0);

    EXPECT_THAT(bench.store().Seal(), IsOk());
    for (size_t i = 0; i < weights.size(); ++i) {
      const std::vector<float> values(kToyElements, 1.1F + static_cast<float>(i));
      EXPECT_THAT(bench.store().WriteState(StateKind::kParameter, weights[i].tensor, 0,
                                           std::as_bytes(std::span(values))),
                  IsOk());
    }
    EXPECT_THAT(RunStep(bench.ContextOver(&recording), weights, shape, outcome), IsOk());
    const std::vector<std::string> events = recording.TakeEvents();
    EXPECT_EQ(events, outcome.events) << "the dry run differs";
    for (const Parameter& weight : weights) {
      outcome.gradients.push_back(bench.store().Gradient(weight.tensor)->at(3));
    }
    int64_t live = 0;
    for (const std::string& event : events) {
      live += event.starts_with("allocate") ? 1 : event.starts_with("free") ? -1 : 0;
      outcome.peak = std::max(outcome.peak, live);
    }
    EXPECT_EQ(live, 0);
    return outcome;
  }

 private:
  static absl::StatusOr<Var> Chain(Tape& tape, const Var& input, std::span<const Parameter> weights,
                                   ToyCounts& counts) {
    Var x = input;
    for (const Parameter& weight : weights) {
      GANTRY_ASSIGN_OR_RETURN(x, Toy(tape, x, weight, counts));
    }
    return x;
  }

  static absl::StatusOr<Var> Arrange(Tape& tape, const Var& x, std::span<const Parameter> weights,
                                     Shape shape, ToyCounts& counts) {
    const auto chain = [&counts](std::span<const Parameter> part) {
      return [part, &counts](Tape& inner, const Var& input) {
        return Chain(inner, input, part, counts);
      };
    };
    const auto pairs = [weights, chain](Tape& inner, const Var& input) -> absl::StatusOr<Var> {
      GANTRY_ASSIGN_OR_RETURN(const Var middle, Checkpoint(inner, input, chain(weights.first(2))));
      return Checkpoint(inner, middle, chain(weights.subspan(2)));
    };
    switch (shape) {
      case Shape::kPlain:
        return Chain(tape, x, weights, counts);
      case Shape::kPairs:
        return pairs(tape, x);
      case Shape::kWhole:
        return Checkpoint(tape, x, chain(weights));
      case Shape::kNested:
        return Checkpoint(tape, x, pairs);
    }
    return absl::InternalError("not reached");
  }

  static absl::Status RunStep(const ExecutionContext& context, std::vector<Parameter> weights,
                              Shape shape, Outcome& outcome) {
    weights.push_back(weights.front());  // tied
    StepOptions options;
    options.optimizer = OptimizerStep{.learning_rate = 0.0};
    GANTRY_RETURN_IF_ERROR(context.store->BeginStep(options));
    GANTRY_RETURN_IF_ERROR(context.store->BeginMicroBatch());
    Tape tape(context, Tape::Mode::kTraining);
    GradientCellPtr input_gradient;
    {
      GANTRY_ASSIGN_OR_RETURN(Activation start, tape.Allocate({1, kToyElements}, DType::kF32));
      const Var x = tape.MakeVar(std::move(start), {}, {&weights[0], 1});
      input_gradient = x.gradient();
      Fill(context, x.value(), 0.7F);
      GANTRY_ASSIGN_OR_RETURN(const Var y, Arrange(tape, x, weights, shape, outcome.counts));
      GANTRY_ASSIGN_OR_RETURN(y.gradient()->sum, tape.Allocate({1, kToyElements}, DType::kF32));
      Fill(context, y.gradient()->sum, 1.3F);
      if (!context.store->dry_run()) outcome.output = ValuesOf(y.value())[3];
    }
    GANTRY_RETURN_IF_ERROR(tape.Backward());
    if (!context.store->dry_run()) outcome.gradients = {ValuesOf(input_gradient->sum)[3]};
    input_gradient->sum = Activation();
    return context.store->EndStep().status();
  }

  static void Fill(const ExecutionContext& context, const Activation& activation, float value) {
    if (context.store->dry_run()) return;
    std::fill_n(activation.flat().As<float>(), kToyElements, value);
  }
};

int Count(const std::vector<std::string>& events, const std::string& word) {
  return static_cast<int>(std::ranges::count_if(
      events, [&](const std::string& event) { return event.starts_with(word); }));
}

TEST_F(CheckpointTest, EqualsThePlainRun) {
  const Outcome plain = Run(Shape::kPlain);
  EXPECT_EQ(plain.counts.forward, 4);
  EXPECT_EQ(plain.counts.backward, 4);
  for (const Shape shape : {Shape::kPairs, Shape::kWhole, Shape::kNested}) {
    SCOPED_TRACE(static_cast<int>(shape));
    const Outcome outcome = Run(shape);
    EXPECT_EQ(outcome.output, plain.output);
    EXPECT_EQ(outcome.gradients, plain.gradients);
    EXPECT_EQ(outcome.counts.backward, 4);
    EXPECT_EQ(Count(outcome.events, "ready"), 3);
  }
}

TEST_F(CheckpointTest, RecomputesEachOperatorButTheLast) {
  const Outcome pairs = Run(Shape::kPairs);
  EXPECT_EQ(pairs.counts.forward, 4 + 2);
  EXPECT_EQ(Count(pairs.events, "acquire toy forward"), 4);
  EXPECT_EQ(Count(pairs.events, "acquire toy backward"), 2 + 4);
  EXPECT_EQ(Run(Shape::kWhole).counts.forward, 4 + 3);
  // The outer recomputation needs the input of the second pair only; each pair then recomputes one.
  EXPECT_EQ(Run(Shape::kNested).counts.forward, 4 + 2 + 2);
}

// The events about gradients, without the recomputation's reads.
std::vector<std::string> GradientEvents(const std::vector<std::string>& events) {
  std::vector<std::string> found;
  for (const std::string& event : events) {
    if (event.starts_with("ready") || event.find(":rg") != std::string::npos) {
      found.push_back(event);
    }
  }
  return found;
}

TEST_F(CheckpointTest, ReadinessDoesNotWait) {
  const std::vector<std::string> plain = GradientEvents(Run(Shape::kPlain).events);
  EXPECT_THAT(plain, ::testing::ElementsAre(
                         "acquire toy backward t0:rg=", "acquire toy backward t2:rg=", "ready t2",
                         "acquire toy backward t1:rg=", "ready t1", "acquire toy backward t0:rg+",
                         "ready t0"));
  EXPECT_EQ(GradientEvents(Run(Shape::kPairs).events), plain);
  EXPECT_EQ(GradientEvents(Run(Shape::kWhole).events), plain);
  EXPECT_EQ(GradientEvents(Run(Shape::kNested).events), plain);
}

TEST_F(CheckpointTest, LowersThePeak) {
  const int64_t plain = Run(Shape::kPlain).peak;
  EXPECT_EQ(plain, 6);
  EXPECT_EQ(Run(Shape::kPairs).peak, 5);
}

TEST_F(CheckpointTest, BodyErrorsComeThrough) {
  TestBench bench({});
  const Parameter weight{.tensor = *bench.store().Register(
                             {.name = "w", .shape = {kToyElements}, .dtype = DType::kF32}, {})};
  ASSERT_THAT(bench.store().Seal(), IsOk());
  bench.BeginTraining(0.0);
  Tape tape(bench.context(), Tape::Mode::kTraining);
  ToyCounts counts;
  const Var x = bench.MakeInput({1, kToyElements}, std::vector<double>(kToyElements, 1.0));
  const auto twice = [&](Tape& inner, const Var& input) -> absl::StatusOr<Var> {
    GANTRY_ASSIGN_OR_RETURN(const Var middle, Toy(inner, input, weight, counts));
    return Toy(inner, middle, weight, counts);
  };
  counts.forward_error = absl::InternalError("broken");
  EXPECT_THAT(Checkpoint(tape, x, twice), StatusIs(absl::StatusCode::kInternal, "broken"));
  counts.forward_error = absl::OkStatus();
  const auto y = Checkpoint(tape, x, twice);
  ASSERT_THAT(y, IsOk());
  y->gradient()->sum =
      bench.MakeActivation({1, kToyElements}, std::vector<double>(kToyElements, 1.0));
  counts.forward_error = absl::InternalError("broken later");
  EXPECT_THAT(tape.Backward(), StatusIs(absl::StatusCode::kInternal, "broken later"));
  EXPECT_EQ(bench.store().open_leases(), 0);
}

TEST_F(CheckpointTest, ABodyThatChangesAborts) {
  TestBench bench({});
  const Parameter weight{.tensor = *bench.store().Register(
                             {.name = "w", .shape = {kToyElements}, .dtype = DType::kF32}, {})};
  ASSERT_THAT(bench.store().Seal(), IsOk());
  bench.BeginTraining(0.0);
  Tape tape(bench.context(), Tape::Mode::kTraining);
  ToyCounts counts;
  const Var x = bench.MakeInput({1, kToyElements}, std::vector<double>(kToyElements, 1.0));
  int runs = 0;
  const auto y = Checkpoint(tape, x, [&](Tape& inner, const Var& input) -> absl::StatusOr<Var> {
    Var value = input;
    for (int i = runs; i < 2; ++i) {
      GANTRY_ASSIGN_OR_RETURN(value, Toy(inner, value, weight, counts));
    }
    ++runs;
    return value;
  });
  ASSERT_THAT(y, IsOk());
  y->gradient()->sum =
      bench.MakeActivation({1, kToyElements}, std::vector<double>(kToyElements, 1.0));
  EXPECT_DEATH(std::ignore = tape.Backward(), "differs between its two runs");
}

}  // namespace
}  // namespace gantry
