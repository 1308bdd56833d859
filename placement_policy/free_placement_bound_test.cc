// The bound over all placements: small cases by hand, and no simulated placement below it.
#include "placement_policy/free_placement_bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/keep_set.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/simulator.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

using Limit = FreePlacementBound::Limit;

Lane LaneOf(Nanoseconds slot_time) { return {.bytes_per_second = 1'000'000'000 / slot_time}; }

// Chunks read in order, then backward in reverse; each moment computes for 10 ns. Blocks c and
// chunks + c are chunk c's parameter and gradient.
FreePlacementInput Input(int32_t chunks, int64_t capacity) {
  FreePlacementInput input;
  MovementProblem& step = input.step;
  step.block_slots.assign(static_cast<size_t>(2 * chunks), 1);
  step.in_file.assign(static_cast<size_t>(2 * chunks), false);
  step.host_to_device = LaneOf(10);
  step.device_to_host = LaneOf(10);
  step.file_read = LaneOf(10);
  step.file_write = LaneOf(10);
  const auto add = [&](const std::vector<BlockUse>& uses) {
    step.moments.push_back({.first_use = static_cast<int64_t>(step.uses.size()),
                            .use_count = static_cast<int64_t>(uses.size()),
                            .compute = 10,
                            .capacity = capacity});
    step.uses.insert(step.uses.end(), uses.begin(), uses.end());
  };
  for (int32_t c = 0; c < chunks; ++c) add({{c, BlockAccess::kRead}});
  for (int32_t c = chunks - 1; c >= 0; --c) {
    add({{c, BlockAccess::kRead}, {chunks + c, BlockAccess::kCreate}});
  }
  for (int32_t c = 0; c < chunks; ++c) {
    input.chunks.push_back({.parameter = c, .gradient = chunks + c, .state_slots = 6});
  }
  EXPECT_THAT(step.Validate(), IsOk());
  return input;
}

FreePlacementBound BoundOf(const FreePlacementInput& input) {
  return ComputeFreePlacementBound(input, {.start_stride = 1});
}

TEST(FreePlacementBound, TheBestPlaceForUpdatesFollowsTheLanes) {
  // All fits: updates on the device cost their time only.
  FreePlacementInput input = Input(2, 16);
  for (FreePlacementInput::Chunk& chunk : input.chunks) {
    chunk.host_update = 500;
    chunk.device_update = 3;
  }
  FreePlacementBound bound = BoundOf(input);
  EXPECT_EQ(bound.total, 46);
  EXPECT_EQ(bound.limit, Limit::kLanes);
  EXPECT_EQ(bound.host_updates, 0);
  // No room beside two blocks: 12 slots of states stream up for the device, or 2 x 500 on the host.
  for (MovementProblem::Moment& moment : input.step.moments) moment.capacity = 2;
  bound = BoundOf(input);
  EXPECT_EQ(bound.resident_state_slots, 0);
  EXPECT_EQ(bound.host_updates, 0);
  EXPECT_GE(bound.lanes, 120);  // the states
  EXPECT_LE(bound.lanes, 120 + 20);
  // Updates on the host are short: two versions up, two gradients down.
  for (FreePlacementInput::Chunk& chunk : input.chunks) chunk.host_update = 30;
  bound = BoundOf(input);
  EXPECT_EQ(bound.host_updates, 2);
  EXPECT_EQ(bound.lanes, 60);
  // One of each when the two balance: max(50, 60 + a version).
  for (FreePlacementInput::Chunk& chunk : input.chunks) chunk.host_update = 50;
  bound = BoundOf(input);
  EXPECT_EQ(bound.host_updates, 1);
  EXPECT_GE(bound.lanes, 70);
  EXPECT_LT(bound.lanes, 100);
}

// Beside two blocks there is no room: what updates need comes after the moment that completes the
// gradient, and before the next step's first use.
TEST(FreePlacementBound, UpdatesTakeTheirTimeAcrossTheBorder) {
  FreePlacementInput input = Input(2, 2);
  for (FreePlacementInput::Chunk& chunk : input.chunks) chunk.host_update = 30;
  // Chunk 0 from the last moment to the first: down, updated and up, 50, beside 40 of computing,
  // and its parameter up for the last moment.
  FreePlacementBound bound = BoundOf(input);
  EXPECT_EQ(bound.windows, 40 + 50 + 10);
  EXPECT_EQ(bound.limit, Limit::kWindows);
  // Both states up, from moment 2 to moment 1.
  for (FreePlacementInput::Chunk& chunk : input.chunks) chunk.host_update = 500;
  EXPECT_EQ(BoundOf(input).windows, 20 + 120);
  // With room for one chunk's states, only the other's come in between; a slot counts as 11 ns.
  for (MovementProblem::Moment& moment : input.step.moments) moment.capacity = 8;
  EXPECT_EQ(BoundOf(input).windows, 20 + 120 - 66);
  for (MovementProblem::Moment& moment : input.step.moments) moment.capacity = 16;
  EXPECT_EQ(BoundOf(input).windows, 40);
}

TEST(FreePlacementBound, FilesHoldWhatMemoryDoesNot) {
  FreePlacementInput input = Input(3, 4);
  input.has_files = true;
  input.host_slots = 10;
  // 18 slots of states and 3 of parameters; 10 on the host and 4 on the device.
  EXPECT_EQ(BoundOf(input).files, 7 * 20);
  input.step.file_half_duplex = false;
  EXPECT_EQ(BoundOf(input).files, 7 * 10);
  input.host_slots = 17;
  EXPECT_EQ(BoundOf(input).files, 0);
  input.host_slots = 0;
  input.has_files = false;
  EXPECT_EQ(BoundOf(input).files, 0);
}

TEST(FreePlacementBound, NoMomentsAndNoChunks) {
  EXPECT_EQ(BoundOf({}).total, 0);
  FreePlacementInput frozen = Input(3, 2);
  frozen.chunks.clear();
  const FreePlacementBound bound = BoundOf(frozen);
  EXPECT_EQ(bound.host_updates, 0);
  EXPECT_GE(bound.total, 60);
}

TEST(FreePlacementBound, OneMemoryHasNoChoice) {
  Trace trace;
  EXPECT_THAT(FreePlacementInputOf(trace, {.unified = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, "one memory"));
}

// A step of GPT-2 on a machine with random rates and room, and a random place for each update.
struct Case {
  Trace trace;
  Machine machine;
  TrainingChoices choices;
  int64_t reserve = 0;
  bool keep_states = false;
};

Case RandomCase(uint64_t seed) {
  const Random random({.seed = seed, .stream = 0});
  uint64_t index = 0;
  const auto between = [&](int64_t low, int64_t high) {
    return low + random.Below(high - low + 1, index++);
  };
  Case result;
  const auto shape = BuiltInModel("gpt2");
  EXPECT_THAT(shape, IsOk());
  const SyntheticOptions options = {
      .chunk_elements = between(3, 12) << 20,
      .sequence_length = 256 * between(1, 4),
      .recomputation = between(0, 1) == 0 ? Recomputation::kNone : Recomputation::kFull,
      .state_slots =
          between(0, 1) == 0 ? std::array<int8_t, 3>{2, 2, 2} : std::array<int8_t, 3>{1, 2, 2}};
  auto trace = SyntheticTrace(*shape, options);
  EXPECT_THAT(trace, IsOk());
  result.trace = *std::move(trace);
  Machine& machine = result.machine;
  machine.slot_bytes = result.trace.slot_bytes;
  machine.device_slots =
      LargestNeed(result.trace, std::vector<Phase>{Phase::kForward, Phase::kBackward}).slots + 9 +
      between(0, 40);
  machine.has_file_tier = between(0, 1) == 1;
  MachineRates& rates = machine.rates;
  const auto lane = [&] { return Lane{.bytes_per_second = between(1, 40) * 1'000'000'000}; };
  rates.host_to_device = lane();
  rates.device_to_host = lane();
  rates.file_read = lane();
  rates.file_write = lane();
  rates.copy_duplex = between(0, 4) == 0 ? Duplex::kExclusive : Duplex::kIndependent;
  rates.host_update_bytes_per_second = between(5, 200) * 1'000'000'000;
  rates.device_memory_bytes_per_second = 1'000'000'000'000;
  rates.compute_scale = static_cast<double>(between(1, 30)) / 10;
  result.choices.wait_for_norm = between(0, 3) == 0;
  result.choices.host_buffers = between(3, 6);
  // Enough for what the choices keep there: parameters, gradients, buffers, and states.
  machine.host_slots = 7 * result.choices.host_buffers;
  const int64_t bias = between(0, 2);
  for (const TraceChunk& chunk : result.trace.chunks) {
    ChunkChoice choice = {.place = static_cast<UpdatePlace>(between(0, 2)),
                          .states_in_file = machine.has_file_tier && between(0, 1) == 0};
    if (between(0, 2) == 0) choice.place = static_cast<UpdatePlace>(bias);
    result.choices.chunks.push_back(choice);
    const UpdateFacts facts = UpdateFactsOf(result.trace, chunk);
    machine.host_slots += facts.parameter + facts.gradient;
    if (!choice.states_in_file) machine.host_slots += facts.states;
  }
  result.reserve = between(0, 2);
  result.keep_states = between(0, 1) == 0;
  return result;
}

TEST(FreePlacementBound, IsAtMostAnyPlacementSimulated) {
  int64_t simulated = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Case c = RandomCase(seed);
    const auto input = FreePlacementInputOf(c.trace, c.machine);
    ASSERT_THAT(input, IsOk());
    const FreePlacementBound bound = ComputeFreePlacementBound(*input, {});
    const auto training = BuildProblem(c.trace, c.machine, c.choices);
    ASSERT_THAT(training, IsOk());
    KeepSetOptions keep = {.reserve = c.reserve};
    if (c.keep_states) {
      keep.pinned.assign(training->problem.block_slots.size(), false);
      for (const int32_t states : training->states) {
        if (states >= 0) keep.pinned[static_cast<size_t>(states)] = true;
      }
    }
    const UseCycle cycle = LinkUses(training->problem);
    const MovementPlan plan = {.keep = ChooseKeepSet(training->problem, cycle, keep),
                               .write_reserve = c.reserve};
    const auto step = Simulate(training->problem, plan, {.steps_max = 60});
    if (!step.ok() || !step->steady) continue;
    EXPECT_GE(step->elapsed, bound.total) << Name(bound.limit);
    ++simulated;
  }
  EXPECT_GT(simulated, 250);
}

}  // namespace
}  // namespace gantry
