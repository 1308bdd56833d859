// The simulator on problems whose schedule is worked out by hand. Copies up take 10 ns a slot, down
// 20; t counts from the end of the moment that each comment names.
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/simulator.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr auto kUp = static_cast<size_t>(SimulatedLane::kHostToDevice);
constexpr auto kDown = static_cast<size_t>(SimulatedLane::kDeviceToHost);
constexpr auto kUpdate = static_cast<size_t>(SimulatedLane::kHostUpdate);
constexpr auto kRead = static_cast<size_t>(SimulatedLane::kFileRead);
constexpr auto kWrite = static_cast<size_t>(SimulatedLane::kFileWrite);
constexpr int64_t kSlot = 10;

size_t Index(SimulatedStall stall) { return static_cast<size_t>(stall); }

// A problem of `blocks` blocks of one slot; moments are added.
MovementProblem Blocks(size_t blocks) {
  MovementProblem problem;
  problem.block_slots.assign(blocks, 1);
  problem.in_file.assign(blocks, false);
  problem.slot_bytes = kSlot;
  problem.host_to_device = {.bytes_per_second = 1'000'000'000};
  problem.device_to_host = {.bytes_per_second = 500'000'000};
  problem.file_read = {.bytes_per_second = 250'000'000};         // 40 ns a slot
  problem.file_write = {.bytes_per_second = 1'000'000'000 / 6};  // 61 ns a slot
  return problem;
}

void Add(Nanoseconds compute, int64_t capacity, std::initializer_list<BlockUse> uses,
         MovementProblem& problem) {
  problem.moments.push_back({.first_use = static_cast<int64_t>(problem.uses.size()),
                             .use_count = static_cast<int64_t>(uses.size()),
                             .compute = compute,
                             .capacity = capacity});
  problem.uses.insert(problem.uses.end(), uses);
}

// What the plan that keeps these gaps comes to.
SimulatedStep StepOf(const MovementProblem& problem, std::vector<bool> keep,
                     int64_t write_reserve = 0) {
  EXPECT_THAT(problem.Validate(), IsOk());
  const auto step = Simulate(problem, {.keep = std::move(keep), .write_reserve = write_reserve},
                             {.steps_max = 40});
  EXPECT_THAT(step, IsOk());
  if (!step.ok()) return {};
  EXPECT_TRUE(step->steady);
  return *step;
}

std::vector<bool> None(const MovementProblem& problem) {
  return std::vector<bool>(problem.uses.size(), false);
}

// Moments that each do this to one block, in turn.
MovementProblem InTurn(size_t blocks, BlockAccess access, Nanoseconds compute, int64_t capacity) {
  MovementProblem problem = Blocks(blocks);
  for (int32_t b = 0; b < static_cast<int32_t>(blocks); ++b) {
    Add(compute, capacity, {{b, access}}, problem);
  }
  return problem;
}

TEST(SimulatedSchedulesTest, WhatIsKeptNeverMoves) {
  const SimulatedStep step = StepOf(InTurn(3, BlockAccess::kWrite, 7, 3), {true, true, true});
  EXPECT_EQ(step.elapsed, 21);
  EXPECT_EQ(step.compute, 21);
  EXPECT_EQ(step.bytes[kUp], 0);
  EXPECT_EQ(step.bytes[kDown], 0);
}

TEST(SimulatedSchedulesTest, FetchesOverlapComputing) {
  const MovementProblem problem = InTurn(3, BlockAccess::kRead, 12, 2);
  const SimulatedStep step = StepOf(problem, None(problem));
  EXPECT_EQ(step.elapsed, 36);
  EXPECT_EQ(step.bytes[kUp], 3 * kSlot);
  EXPECT_EQ(step.busy[kUp], 30);
  EXPECT_EQ(step.moves[kUp], 3);
}

TEST(SimulatedSchedulesTest, TheLaneUpCanBeTheLongest) {
  const MovementProblem problem = InTurn(3, BlockAccess::kRead, 4, 2);
  const SimulatedStep step = StepOf(problem, None(problem));
  EXPECT_EQ(step.elapsed, 30);
  EXPECT_EQ(step.stalls[Index(SimulatedStall::kFetch)], 18);
}

TEST(SimulatedSchedulesTest, WithoutRoomFetchesWait) {
  const MovementProblem tight = InTurn(3, BlockAccess::kRead, 12, 1);
  EXPECT_EQ(StepOf(tight, None(tight)).elapsed, 3 * (12 + 10));
  // The second slot is left free for what goes out, so it comes to the same.
  const MovementProblem problem = InTurn(3, BlockAccess::kRead, 12, 2);
  EXPECT_EQ(StepOf(problem, None(problem), 1).elapsed, 3 * (12 + 10));
}

TEST(SimulatedSchedulesTest, ALatencyIsPaidPerMove) {
  MovementProblem problem = InTurn(3, BlockAccess::kRead, 4, 2);
  problem.host_to_device.latency_nanoseconds = 5;
  EXPECT_EQ(StepOf(problem, None(problem)).elapsed, 45);
}

TEST(SimulatedSchedulesTest, ChangedBlocksHoldTheirSlotUntilTheyAreWrittenBack) {
  const MovementProblem problem = InTurn(2, BlockAccess::kWrite, 10, 1);
  const SimulatedStep step = StepOf(problem, None(problem));
  EXPECT_EQ(step.elapsed, 2 * (10 + 20 + 10));
  EXPECT_EQ(step.bytes[kDown], 2 * kSlot);
}

TEST(SimulatedSchedulesTest, WriteBacksOverlapFetches) {
  const MovementProblem problem = InTurn(3, BlockAccess::kWrite, 10, 2);
  EXPECT_EQ(StepOf(problem, None(problem)).elapsed, 60);  // the lane down
}

TEST(SimulatedSchedulesTest, OnALinkOfOneDirectionAtATimeTheyTakeTurns) {
  MovementProblem problem = InTurn(3, BlockAccess::kWrite, 10, 2);
  problem.link_half_duplex = true;
  EXPECT_EQ(StepOf(problem, None(problem)).elapsed, 90);
}

// Block 0 is written, read, and then dropped; the write-back happens while it is read.
TEST(SimulatedSchedulesTest, WhatWillBeDroppedIsWrittenBackEarly) {
  MovementProblem problem = Blocks(2);
  Add(10, 1, {{0, BlockAccess::kWrite}}, problem);
  Add(30, 1, {{0, BlockAccess::kRead}}, problem);
  Add(10, 1, {{1, BlockAccess::kRead}}, problem);
  const SimulatedStep step = StepOf(problem, {true, false, false});
  EXPECT_EQ(step.elapsed, 10 + 30 + 10 + 10 + 10);
  EXPECT_EQ(step.bytes[kDown], kSlot);
}

TEST(SimulatedSchedulesTest, CreatedContentNeedsNoFetch) {
  MovementProblem problem = Blocks(1);
  Add(10, 1, {{0, BlockAccess::kCreate}}, problem);
  Add(10, 1, {{0, BlockAccess::kConsume}}, problem);
  const SimulatedStep kept = StepOf(problem, {true, true});
  EXPECT_EQ(kept.elapsed, 20);
  EXPECT_EQ(kept.bytes[kUp] + kept.bytes[kDown], 0);
  const SimulatedStep dropped = StepOf(problem, None(problem));
  EXPECT_EQ(dropped.elapsed, 10 + 20 + 10 + 10);
  EXPECT_EQ(dropped.bytes[kUp], kSlot);
  EXPECT_EQ(dropped.bytes[kDown], kSlot);
}

// Parameter 0, gradient 1: forward and backward of one chunk.
MovementProblem OneChunk() {
  MovementProblem problem = Blocks(2);
  Add(10, 3, {{0, BlockAccess::kRead}}, problem);
  Add(10, 3, {{0, BlockAccess::kRead}, {1, BlockAccess::kCreate}}, problem);
  problem.updates = {{.parameter = 0, .gradient = 1, .complete = 1, .update = 30}};
  return problem;
}

// After moment 1: gradient down to 20, update to 50, parameter up to 60, two moments to 80.
TEST(SimulatedSchedulesTest, AHostUpdateIsAChain) {
  const MovementProblem problem = OneChunk();
  const SimulatedStep step = StepOf(problem, {true, true, true});
  EXPECT_EQ(step.elapsed, 80);
  EXPECT_EQ(step.stalls[Index(SimulatedStall::kUpdate)], 50);
  EXPECT_EQ(step.stalls[Index(SimulatedStall::kFetch)], 10);
  EXPECT_EQ(step.bytes[kUp], kSlot);
  EXPECT_EQ(step.bytes[kDown], kSlot);
  EXPECT_EQ(step.busy[kUpdate], 30);
}

TEST(SimulatedSchedulesTest, AGradientStaysUntilItIsComplete) {
  MovementProblem problem = OneChunk();
  Add(25, 3, {}, problem);
  problem.updates[0].complete = 2;
  // As above, but from the end of moment 2, 25 later.
  EXPECT_EQ(StepOf(problem, {true, true, true}).elapsed, 80 + 25);
  // Complete at once, it goes down while moment 2 computes.
  problem.updates[0].complete = 1;
  EXPECT_EQ(StepOf(problem, {true, true, true}).elapsed, 80);
}

// Gradients that several moments add to are blocks like others in between.
TEST(SimulatedSchedulesTest, AnAccumulatingGradientMayLeaveAndComeBack) {
  MovementProblem problem = Blocks(2);
  Add(10, 2, {{0, BlockAccess::kRead}, {1, BlockAccess::kCreate}}, problem);
  Add(100, 2, {}, problem);
  Add(10, 2, {{0, BlockAccess::kRead}, {1, BlockAccess::kWrite}}, problem);
  problem.updates = {{.parameter = 0, .gradient = 1, .complete = 2, .update = 30}};
  const SimulatedStep kept = StepOf(problem, {true, true, true, true});
  EXPECT_EQ(kept.bytes[kDown], kSlot);
  const SimulatedStep moved = StepOf(problem, {true, false, true, true});
  EXPECT_EQ(moved.bytes[kDown], 2 * kSlot);
  EXPECT_EQ(moved.bytes[kUp], 2 * kSlot);
  EXPECT_EQ(moved.elapsed, kept.elapsed);  // it does so within the 100
}

// Three chunks: forward 0 1 2, backward 2 1 0. After moment 3 (the first of backward): gradient 2
// is down at 10 and updated to 50, by when all others are there.
MovementProblem ThreeChunks() {
  MovementProblem problem = Blocks(6);
  problem.device_to_host = problem.host_to_device;
  for (const int32_t c : {0, 1, 2}) Add(10, 9, {{c, BlockAccess::kRead}}, problem);
  for (const int32_t c : {2, 1, 0}) {
    Add(10, 9, {{c, BlockAccess::kRead}, {c + 3, BlockAccess::kCreate}}, problem);
  }
  for (const int32_t c : {0, 1, 2}) {
    problem.updates.push_back({.parameter = c, .gradient = c + 3, .complete = 5 - c, .update = 40});
  }
  return problem;
}

TEST(SimulatedSchedulesTest, UpdatesAreInTheOrderOfTheNextUse) {
  const MovementProblem problem = ThreeChunks();
  MovementPlan plan = {.keep = std::vector<bool>(problem.uses.size(), true)};
  // 0 to 90 and up at 100, moment 0 to 110; 1 to 130, up at 140, moments 1, 2 and 3 to 170.
  const auto next_use = Simulate(problem, plan, {});
  ASSERT_THAT(next_use, IsOk());
  EXPECT_EQ(next_use->elapsed, 170);
  // 1 to 90, 0 to 130, up at 140, moments 0 to 3 to 180.
  plan.update_order = MovementPlan::UpdateOrder::kArrival;
  const auto arrival = Simulate(problem, plan, {});
  ASSERT_THAT(arrival, IsOk());
  EXPECT_EQ(arrival->elapsed, 180);
}

// The norm is known after moment 2, at 50: update to 80, up at 90, moments 0 and 1 to 110.
TEST(SimulatedSchedulesTest, UpdatesCanWaitForTheNorm) {
  MovementProblem problem = OneChunk();
  Add(50, 3, {}, problem);
  problem.norm_moment = 2;
  EXPECT_EQ(StepOf(problem, {true, true, true}).elapsed, 80);
  problem.wait_for_norm = true;
  EXPECT_EQ(StepOf(problem, {true, true, true}).elapsed, 110);
}

// The gradient is down at 70, and so known is the norm, for which moment 3 waits from 50.
TEST(SimulatedSchedulesTest, MomentsCanWaitForTheNorm) {
  MovementProblem problem = OneChunk();
  Add(50, 3, {}, problem);
  Add(5, 3, {}, problem);
  problem.norm_moment = 2;
  problem.wait_for_norm = true;
  problem.moments[3].norm = MovementProblem::Norm::kOfThisStep;
  problem.device_to_host.bytes_per_second = 1'000'000'000 / 7;  // 71 ns
  const SimulatedStep step = StepOf(problem, {true, true, true});
  EXPECT_EQ(step.stalls[Index(SimulatedStall::kNorm)], 71 - 50);
  EXPECT_EQ(step.elapsed, 71 + 30 + 10 + 20);
}

// The states are written, and only then read again, behind the update; more buffers do not help.
TEST(SimulatedSchedulesTest, StatesInFilesAreReadBeforeAndWrittenAfter) {
  MovementProblem problem = OneChunk();
  problem.updates[0].file_bytes = kSlot;
  for (const int64_t buffers : {2, 3}) {
    problem.host_buffers = buffers;
    const SimulatedStep step = StepOf(problem, {true, true, true});
    EXPECT_EQ(step.elapsed, 30 + 61 + 40);
    EXPECT_EQ(step.bytes[kRead], kSlot);
    EXPECT_EQ(step.bytes[kWrite], kSlot);
  }
}

// One slot beside it is left: the two others take turns, whatever the plan says of the block that
// stays, and whatever is nearest.
TEST(SimulatedSchedulesTest, ABlockThatStaysIsNeverDropped) {
  MovementProblem problem = InTurn(3, BlockAccess::kWrite, 12, 2);
  problem.stays = {false, true, false};
  const SimulatedStep step = StepOf(problem, None(problem));
  EXPECT_EQ(step.moves[kUp], 2);
  EXPECT_EQ(step.moves[kDown], 2);
  for (const EvictionOrder order :
       {EvictionOrder::kFurthestNextUse, EvictionOrder::kLeastRecentlyUsed}) {
    const auto on_demand = Simulate(
        problem, {.mode = MovementPlan::Mode::kOnDemand, .eviction = order, .look_ahead = 1}, {});
    ASSERT_THAT(on_demand, IsOk());
    EXPECT_EQ(on_demand->moves[kUp], 2);
  }
  problem.stays = {false, true, true};
  EXPECT_THAT(Simulate(problem, {.keep = None(problem)}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("keeps 1 slots more")));
}

// Whether some transfer of one lane overlaps one of another.
bool Overlap(const SimulatedStep& step, SimulatedLane a, SimulatedLane b) {
  for (const SimulatedEvent& x : step.events) {
    for (const SimulatedEvent& y : step.events) {
      const bool both = x.kind == SimulatedEvent::Kind::kTransfer && x.kind == y.kind;
      if (both && x.lane == a && y.lane == b && x.begin < y.end && y.begin < x.end) return true;
    }
  }
  return false;
}

// While update 2 runs, the gradients of 1, whose states are in a buffer, and 0 come down.
TEST(SimulatedSchedulesTest, UpdatesThatFreeABufferMayComeFirst) {
  MovementProblem problem = ThreeChunks();
  problem.updates[1].file_bytes = kSlot;
  MovementPlan plan = {.keep = std::vector<bool>(problem.uses.size(), true)};
  const auto order = [&] {
    std::vector<int32_t> updates;
    const auto step = Simulate(problem, plan, {.record = true});
    EXPECT_THAT(step, IsOk());
    for (const SimulatedEvent& event : step->events) {
      const bool update =
          event.kind == SimulatedEvent::Kind::kTransfer && event.lane == SimulatedLane::kHostUpdate;
      if (update && updates.size() < 3) updates.push_back(event.update);
    }
    return updates;
  };
  problem.host_buffers = 2;
  EXPECT_EQ(order(), (std::vector<int32_t>{2, 0, 1}));
  plan.free_buffers_first = true;
  EXPECT_EQ(order(), (std::vector<int32_t>{2, 1, 0}));
  // Two buffers are free: nothing waits for the third.
  problem.host_buffers = 3;
  EXPECT_EQ(order(), (std::vector<int32_t>{2, 0, 1}));
}

TEST(SimulatedSchedulesTest, FilesMayReadOrWriteOrBoth) {
  MovementProblem problem = ThreeChunks();
  for (MovementProblem::HostUpdate& update : problem.updates) update.file_bytes = 2 * kSlot;
  problem.host_buffers = 3;
  const MovementPlan plan = {.keep = std::vector<bool>(problem.uses.size(), true)};
  const auto half = Simulate(problem, plan, {.record = true});
  ASSERT_THAT(half, IsOk());
  EXPECT_FALSE(Overlap(*half, SimulatedLane::kFileRead, SimulatedLane::kFileWrite));
  EXPECT_GE(half->elapsed, half->busy[kRead] + half->busy[kWrite]);
  problem.file_half_duplex = false;
  const auto full = Simulate(problem, plan, {.record = true});
  ASSERT_THAT(full, IsOk());
  EXPECT_TRUE(Overlap(*full, SimulatedLane::kFileRead, SimulatedLane::kFileWrite));
  EXPECT_LT(full->elapsed, half->elapsed);
}

// Down at 20, written to 81, read to 121, up at 131, computed to 141.
TEST(SimulatedSchedulesTest, ABlockOfAFileGoesThroughABuffer) {
  MovementProblem problem = Blocks(1);
  problem.in_file[0] = true;
  Add(10, 1, {{0, BlockAccess::kWrite}}, problem);
  Add(5, 1, {}, problem);
  for (const int64_t buffers : {2, 3}) {
    problem.host_buffers = buffers;
    const SimulatedStep step = StepOf(problem, {false});
    EXPECT_EQ(step.elapsed, 141);
    EXPECT_EQ(step.bytes[kRead], kSlot);
    EXPECT_EQ(step.bytes[kWrite], kSlot);
  }
}

// A block that one moment changes and the next only reads is dropped between and after them. What
// was changed is in the file before it is read from there: it is written in each step, and never
// lost for a copy that is used from its buffer and then dropped.
TEST(SimulatedSchedulesTest, AChangedBlockIsInItsFileBeforeItIsDroppedUnchanged) {
  MovementProblem problem = Blocks(1);
  problem.in_file[0] = true;
  Add(10, 1, {{0, BlockAccess::kWrite}}, problem);
  Add(10, 1, {{0, BlockAccess::kRead}}, problem);
  for (const int64_t buffers : {2, 3, 8}) {
    problem.host_buffers = buffers;
    const SimulatedStep step = StepOf(problem, {false, false});
    EXPECT_EQ(step.bytes[kWrite], kSlot);
    EXPECT_EQ(step.bytes[kRead], 2 * kSlot);
    // Changed, down, written; read, up, read by a moment and dropped; read, up.
    EXPECT_EQ(step.elapsed, 10 + 20 + 61 + 40 + 10 + 10 + 40 + 10);
  }
}

// ------------------------------------------------------------------ on demand

TEST(SimulatedSchedulesTest, OnDemandFetchesWhenTheMomentIsNext) {
  const MovementProblem problem = InTurn(3, BlockAccess::kRead, 12, 2);
  MovementPlan plan = {.mode = MovementPlan::Mode::kOnDemand};
  const auto demand = Simulate(problem, plan, {});
  ASSERT_THAT(demand, IsOk());
  // Two slots for three blocks in turn: furthest-first misses every other time.
  EXPECT_TRUE(demand->steady);
  EXPECT_EQ(demand->bytes[kUp], 15);
  EXPECT_EQ(demand->elapsed, 36 + 15);
  plan.eviction = EvictionOrder::kLeastRecentlyUsed;
  const auto lru = Simulate(problem, plan, {});
  ASSERT_THAT(lru, IsOk());
  EXPECT_EQ(lru->elapsed, 3 * (12 + 10));
  EXPECT_EQ(lru->moves[kUp], 3);
  plan.look_ahead = 1;
  const auto ahead = Simulate(problem, plan, {});
  ASSERT_THAT(ahead, IsOk());
  EXPECT_EQ(ahead->elapsed, 36);
}

TEST(SimulatedSchedulesTest, TransientBlocksLeaveAtOnceAndPinnedOnesLast) {
  const MovementProblem problem = InTurn(3, BlockAccess::kRead, 12, 2);
  MovementPlan plan = {
      .mode = MovementPlan::Mode::kOnDemand,
      .residency = {Residency::kPinned, Residency::kFloating, Residency::kTransient}};
  const auto pinned = Simulate(problem, plan, {});
  ASSERT_THAT(pinned, IsOk());
  EXPECT_EQ(pinned->moves[kUp], 2);
  plan.residency.assign(3, Residency::kTransient);
  const auto transient = Simulate(problem, plan, {});
  ASSERT_THAT(transient, IsOk());
  EXPECT_EQ(transient->moves[kUp], 3);
}

// ------------------------------------------------------------------ what is refused

TEST(SimulatedSchedulesTest, PlansThatDoNotMatchAreRefused) {
  const MovementProblem problem = InTurn(3, BlockAccess::kRead, 12, 2);
  EXPECT_THAT(
      Simulate(problem, {.keep = {true}}, {}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("keep has 1 entries for 3 uses")));
  EXPECT_THAT(Simulate(problem, {.keep = {true, true, true}}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("keeps 1 slots more")));
  EXPECT_THAT(Simulate(problem,
                       {.mode = MovementPlan::Mode::kOnDemand,
                        .residency = {Residency::kPinned, Residency::kPinned}},
                       {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("residency has 2 entries for 3 blocks")));
  EXPECT_THAT(Simulate(Blocks(1), {}, {}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Simulate(problem, {.keep = None(problem)}, {.moves_max = 5}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("did not end it")));
}

}  // namespace
}  // namespace gantry
