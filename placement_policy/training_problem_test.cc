// BuildProblem on a step of two chunks, field by field, for each place of an update; and what it
// promises on synthetic traces of whole models.
#include "placement_policy/training_problem.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSlot = 1000;

void Add(Phase phase, Nanoseconds compute, int64_t activations, const std::vector<BlockUse>& uses,
         Trace& trace) {
  trace.moments.push_back({.phase = phase,
                           .name = 0,
                           .first_use = static_cast<int64_t>(trace.uses.size()),
                           .use_count = static_cast<int64_t>(uses.size()),
                           .compute = compute,
                           .activation_slots = activations});
  trace.uses.insert(trace.uses.end(), uses.begin(), uses.end());
}

// Blocks: parameters 0 and 1, gradients 2 and 3, states 4 to 9. Forward 0 1, backward 1 0.
Trace TwoChunks() {
  Trace trace;
  trace.names = {"layer"};
  trace.block_slots = {1, 1, 1, 1, 2, 2, 2, 2, 2, 2};
  trace.chunks = {{.parameter = 0, .gradient = 2, .states = {4, 5, 6}},
                  {.parameter = 1, .gradient = 3, .states = {7, 8, 9}}};
  trace.slot_bytes = Bytes(kSlot);
  Add(Phase::kForward, 10, 1, {{0, BlockAccess::kRead}}, trace);
  Add(Phase::kForward, 11, 2, {{1, BlockAccess::kRead}}, trace);
  Add(Phase::kBackward, 20, 3, {{1, BlockAccess::kRead}, {3, BlockAccess::kCreate}}, trace);
  Add(Phase::kBackward, 21, 2, {{0, BlockAccess::kRead}, {2, BlockAccess::kCreate}}, trace);
  for (const int32_t c : {0, 1}) {
    Add(Phase::kOptimizer, 0, 0,
        {{c + 2, BlockAccess::kConsume},
         {3 * c + 4, BlockAccess::kWrite},
         {3 * c + 5, BlockAccess::kWrite},
         {3 * c + 6, BlockAccess::kWrite},
         {c, BlockAccess::kCreate}},
        trace);
  }
  return trace;
}

Machine AMachine() {
  Machine machine;
  machine.slot_bytes = Bytes(kSlot);
  machine.device_slots = 20;
  machine.host_slots = 100;
  machine.has_file_tier = true;
  machine.rates.host_to_device = {.bytes_per_second = 1'000'000'000};
  machine.rates.device_to_host = {.bytes_per_second = 2'000'000'000, .latency_nanoseconds = 3};
  machine.rates.file_read = {.bytes_per_second = 100'000'000};
  machine.rates.file_write = {.bytes_per_second = 50'000'000};
  machine.rates.host_update_bytes_per_second = 1'000'000'000;
  machine.rates.device_memory_bytes_per_second = 10'000'000'000;
  return machine;
}

// A moment in words: compute, capacity, and its uses as block:access.
std::string Text(const MovementProblem& problem, size_t m) {
  constexpr char kAccess[] = "rwcx";
  const MovementProblem::Moment& moment = problem.moments[m];
  std::string text = StrCat(moment.compute, " ns, ", moment.capacity, " slots:");
  for (const BlockUse& use : problem.uses_of(moment)) {
    text = StrCat(text, " ", use.block, std::string(1, kAccess[static_cast<size_t>(use.access)]));
  }
  return text;
}

std::vector<std::string> Texts(const MovementProblem& problem) {
  std::vector<std::string> texts;
  for (size_t m = 0; m < problem.moments.size(); ++m) texts.push_back(Text(problem, m));
  return texts;
}

TEST(TrainingProblemTest, UpdatesOnTheHost) {
  const auto built = BuildProblem(TwoChunks(), AMachine(), {.chunks = {{}, {}}});
  ASSERT_THAT(built, IsOk());
  const MovementProblem& problem = built->problem;
  // Parameter and gradient of a chunk are next to each other.
  EXPECT_THAT(problem.block_slots, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(problem.in_file, ElementsAre(false, false, false, false));
  EXPECT_THAT(built->parameter, ElementsAre(0, 2));
  EXPECT_THAT(built->gradient, ElementsAre(1, 3));
  EXPECT_THAT(built->states, ElementsAre(-1, -1));
  EXPECT_THAT(built->update_moment, ElementsAre(-1, -1));
  EXPECT_THAT(built->moment, ElementsAre(0, 1, 2, 3, -1, -1));
  EXPECT_THAT(Texts(problem), ElementsAre("10 ns, 19 slots: 0r", "11 ns, 18 slots: 2r",
                                          "20 ns, 17 slots: 2r 3c", "21 ns, 18 slots: 0r 1c"));
  EXPECT_EQ(problem.moments[2].source, 2);
  EXPECT_EQ(problem.slot_bytes, kSlot);
  EXPECT_EQ(problem.host_to_device, AMachine().rates.host_to_device);
  EXPECT_EQ(problem.device_to_host, AMachine().rates.device_to_host);
  EXPECT_EQ(problem.file_read, AMachine().rates.file_read);
  EXPECT_EQ(problem.file_write, AMachine().rates.file_write);
  EXPECT_TRUE(problem.file_half_duplex);
  EXPECT_FALSE(problem.link_half_duplex);
  EXPECT_FALSE(problem.wait_for_norm);
  ASSERT_EQ(problem.updates.size(), 2);
  EXPECT_EQ(problem.updates[0].parameter, 0);
  EXPECT_EQ(problem.updates[0].gradient, 1);
  EXPECT_EQ(problem.updates[0].complete, 3);
  EXPECT_EQ(problem.updates[1].complete, 2);
  // Gradient, states twice, parameter: 14 slots.
  EXPECT_EQ(problem.updates[0].update, 14 * kSlot);
  EXPECT_EQ(problem.updates[0].file_bytes, 0);
}

TEST(TrainingProblemTest, StatesInFiles) {
  const auto built = BuildProblem(TwoChunks(), AMachine(),
                                  {.chunks = {{.states_in_file = true}, {}}, .host_buffers = 2});
  ASSERT_THAT(built, IsOk());
  EXPECT_EQ(built->problem.updates[0].file_bytes, 6 * kSlot);
  EXPECT_EQ(built->problem.updates[1].file_bytes, 0);
  EXPECT_EQ(built->problem.host_buffers, 2);
}

TEST(TrainingProblemTest, AnUpdateOnTheDeviceFollowsTheGradient) {
  const auto built =
      BuildProblem(TwoChunks(), AMachine(), {.chunks = {{}, {.place = UpdatePlace::kDevice}}});
  ASSERT_THAT(built, IsOk());
  EXPECT_THAT(built->problem.block_slots, ElementsAre(1, 1, 1, 1, 6));
  EXPECT_THAT(built->states, ElementsAre(-1, 4));
  EXPECT_THAT(built->update_moment, ElementsAre(-1, 3));
  EXPECT_THAT(built->moment, ElementsAre(0, 1, 2, 4, -1, -1));
  // 14 slots at 10 GB/s, beside the activations of the moment before it.
  EXPECT_EQ(Text(built->problem, 3), "1400 ns, 17 slots: 3x 4w 2c");
  EXPECT_EQ(built->problem.moments[3].source, -1);
  EXPECT_EQ(built->problem.updates.size(), 1);
  EXPECT_EQ(built->problem.updates[0].complete, 4);
  EXPECT_EQ(built->problem.norm_moment, 4);
}

TEST(TrainingProblemTest, OrComesBeforeTheNextUse) {
  const auto built =
      BuildProblem(TwoChunks(), AMachine(), {.chunks = {{}, {.place = UpdatePlace::kNextForward}}});
  ASSERT_THAT(built, IsOk());
  EXPECT_THAT(built->update_moment, ElementsAre(-1, 1));
  EXPECT_EQ(Text(built->problem, 1), "1400 ns, 18 slots: 3x 4w 2c");
  EXPECT_EQ(Text(built->problem, 2), "11 ns, 18 slots: 2r");
  // The gradient stays over the border of the step, by choice.
  const UseCycle cycle = LinkUses(built->problem);
  const auto created = built->problem.moments[3].first_use + 1;
  EXPECT_EQ(built->problem.uses[static_cast<size_t>(created)].block, 3);
  EXPECT_EQ(cycle.links[static_cast<size_t>(created)].gap, Gap::kSame);
}

TEST(TrainingProblemTest, UpdatesThatWaitForTheNormFollowTheBackwardPass) {
  const auto built = BuildProblem(
      TwoChunks(), AMachine(),
      {.chunks = {{.place = UpdatePlace::kNextForward}, {.place = UpdatePlace::kDevice}},
       .wait_for_norm = true});
  ASSERT_THAT(built, IsOk());
  EXPECT_TRUE(built->problem.wait_for_norm);
  EXPECT_THAT(built->update_moment, ElementsAre(0, 5));
  EXPECT_EQ(built->problem.norm_moment, 4);
  EXPECT_EQ(built->problem.moments[0].norm, MovementProblem::Norm::kOfLastStep);
  EXPECT_EQ(built->problem.moments[5].norm, MovementProblem::Norm::kOfThisStep);
  EXPECT_EQ(built->problem.moments[1].norm, MovementProblem::Norm::kNotNeeded);
}

TEST(TrainingProblemTest, AFrozenChunkIsOnlyRead) {
  Trace trace = TwoChunks();
  trace.chunks[0].gradient = -1;
  trace.chunks[0].states = {-1, -1, -1};
  trace.uses[5].block = 3;  // backward of chunk 0 accumulates into the other gradient
  trace.uses[5].access = BlockAccess::kWrite;
  trace.moments.pop_back();
  trace.moments.pop_back();
  trace.uses.resize(6);
  ASSERT_THAT(trace.Validate(), IsOk());
  const auto built = BuildProblem(trace, AMachine(), {.chunks = {{}, {}}});
  ASSERT_THAT(built, IsOk());
  EXPECT_THAT(built->gradient, ElementsAre(-1, 2));
  ASSERT_EQ(built->problem.updates.size(), 1);
  EXPECT_EQ(built->problem.updates[0].parameter, 1);
  EXPECT_EQ(built->problem.updates[0].complete, 3);
}

TEST(TrainingProblemTest, ATraceWithoutChunksIsTakenAsItIs) {
  Trace trace = TwoChunks();
  trace.chunks.clear();
  const auto built = BuildProblem(trace, AMachine(), {});
  ASSERT_THAT(built, IsOk());
  EXPECT_EQ(built->problem.moments.size(), 6);
  EXPECT_EQ(built->problem.uses.size(), trace.uses.size());
  EXPECT_THAT(built->problem.updates, IsEmpty());
  EXPECT_THAT(built->problem.block_slots, ElementsAre(1, 1, 1, 1, 2, 2, 2, 2, 2, 2));
}

TEST(TrainingProblemTest, OnAUnifiedMachineTheFileIsWhatLiesBelow) {
  Machine machine = AMachine();
  machine.unified = true;
  machine.host_slots = 0;
  const auto built = BuildProblem(TwoChunks(), machine, {.chunks = {{}, {}}});
  ASSERT_THAT(built, IsOk());
  EXPECT_EQ(built->problem.host_to_device, machine.rates.file_read);
  EXPECT_EQ(built->problem.device_to_host, machine.rates.file_write);
  EXPECT_TRUE(built->problem.link_half_duplex);
  EXPECT_THAT(built->problem.updates, IsEmpty());
  // Updates run on the device, at the rate of the host's.
  EXPECT_THAT(built->update_moment, ElementsAre(5, 3));
  EXPECT_EQ(built->problem.moments[3].compute, 14 * kSlot);
}

TEST(TrainingProblemTest, LanesThatSlowEachOtherTakeHalfTheMixedRate) {
  Machine machine = AMachine();
  machine.rates.copy_duplex = Duplex::kMixed;
  machine.rates.copy_mixed_bytes_per_second = 1'600'000'000;
  machine.rates.file_duplex = Duplex::kMixed;
  machine.rates.file_mixed_bytes_per_second = 60'000'000;
  const auto built = BuildProblem(TwoChunks(), machine, {.chunks = {{}, {}}});
  ASSERT_THAT(built, IsOk());
  EXPECT_EQ(built->problem.host_to_device.bytes_per_second, 800'000'000);
  EXPECT_EQ(built->problem.device_to_host.bytes_per_second, 800'000'000);
  EXPECT_EQ(built->problem.device_to_host.latency_nanoseconds, 3);
  EXPECT_EQ(built->problem.file_read.bytes_per_second, 30'000'000);
  EXPECT_EQ(built->problem.file_write.bytes_per_second, 30'000'000);
  EXPECT_FALSE(built->problem.file_half_duplex);
}

TEST(TrainingProblemTest, MeasuredTimesAreScaled) {
  Trace trace = TwoChunks();
  trace.moments[4].compute = 500;
  Machine machine = AMachine();
  machine.rates.compute_scale = 3.0;
  const auto built = BuildProblem(trace, machine, {.chunks = {{}, {}}});
  ASSERT_THAT(built, IsOk());
  EXPECT_EQ(built->problem.moments[0].compute, 30);
  EXPECT_EQ(built->problem.updates[0].update, 1500);
  EXPECT_EQ(built->problem.updates[1].update, 14 * kSlot);
}

TEST(TrainingProblemTest, WhatDoesNotFitIsNamed) {
  Machine machine = AMachine();
  machine.device_slots = 4;
  EXPECT_THAT(BuildProblem(TwoChunks(), machine, {.chunks = {{}, {}}}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("moment 2 needs 2 slots for its blocks"),
                             HasSubstr("3 for activations; the device has 4"))));
  machine.device_slots = 10;
  EXPECT_THAT(BuildProblem(TwoChunks(), machine, {.chunks = {{}, {}}}), IsOk());
  EXPECT_THAT(BuildProblem(TwoChunks(), machine, {.chunks = {{}, {.place = UpdatePlace::kDevice}}}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("needs 8 slots beside 3 of activations"),
                             HasSubstr("there are 10"))));
  EXPECT_THAT(BuildProblem(TwoChunks(), AMachine(), {.chunks = {{}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("choices for 1 chunks")));
  Machine slow = AMachine();
  slow.rates.host_to_device = {};
  EXPECT_THAT(BuildProblem(TwoChunks(), slow, {.chunks = {{}, {}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host_to_device")));
}

// Whatever the model and the places: valid, every parameter and gradient in it, every moment but
// the optimizer's.
TEST(TrainingProblemTest, SyntheticModels) {
  for (const std::string_view model : {"gpt2", "llama2-7b", "mixtral-8x7b"}) {
    for (const UpdatePlace place :
         {UpdatePlace::kHost, UpdatePlace::kDevice, UpdatePlace::kNextForward}) {
      SCOPED_TRACE(StrCat(std::string(model), ", ", static_cast<int>(place)));
      const auto shape = BuiltInModel(model);
      ASSERT_THAT(shape, IsOk());
      const auto trace =
          SyntheticTrace(*shape, {.sequence_length = 1024, .recomputation = Recomputation::kFull});
      ASSERT_THAT(trace, IsOk());
      Machine machine = AMachine();
      machine.slot_bytes = trace->slot_bytes;
      machine.device_slots = 2000;
      TrainingChoices choices;
      choices.chunks.assign(trace->chunks.size(), {.place = place});
      const auto built = BuildProblem(*trace, machine, choices);
      ASSERT_THAT(built, IsOk());
      const bool host = place == UpdatePlace::kHost;
      EXPECT_EQ(built->problem.updates.size(), host ? trace->chunks.size() : 0);
      EXPECT_EQ(built->problem.block_slots.size(), trace->chunks.size() * (host ? 2 : 3));
      // One moment less per update on the host than in the trace.
      const size_t optimizer = trace->chunks.size();
      EXPECT_EQ(built->problem.moments.size(), trace->moments.size() - (host ? optimizer : 0));
    }
  }
}

}  // namespace
}  // namespace gantry
