// Each part of the bound on a case computed by hand; the whole against the exhaustive optimum of
// thousands of small problems; and that faster lanes and more slots never raise it.
#include "placement_policy/lower_bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/exhaustive_optimum.h"
#include "placement_policy/keep_set.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/simulator.h"
#include "placement_policy/testing/random_problem.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

constexpr BlockAccess kRead = BlockAccess::kRead;
constexpr BlockAccess kWrite = BlockAccess::kWrite;
constexpr BlockAccess kCreate = BlockAccess::kCreate;
using Limit = LowerBound::Limit;
using Edge = LowerBound::Edge;

struct Step {
  Nanoseconds compute;
  int64_t capacity;
  std::vector<BlockUse> uses;
};

Lane LaneOf(Nanoseconds slot_time) { return {.bytes_per_second = 1'000'000'000 / slot_time}; }

// A slot moves up and down in 10 ns.
MovementProblem Problem(std::vector<int32_t> slots, const std::vector<Step>& steps,
                        std::vector<MovementProblem::HostUpdate> updates = {}) {
  MovementProblem problem;
  problem.in_file.assign(slots.size(), false);
  problem.block_slots = std::move(slots);
  problem.host_to_device = LaneOf(10);
  problem.device_to_host = LaneOf(10);
  problem.updates = std::move(updates);
  for (const Step& step : steps) {
    problem.moments.push_back({.first_use = static_cast<int64_t>(problem.uses.size()),
                               .use_count = static_cast<int64_t>(step.uses.size()),
                               .compute = step.compute,
                               .capacity = step.capacity});
    problem.uses.insert(problem.uses.end(), step.uses.begin(), step.uses.end());
  }
  EXPECT_THAT(problem.Validate(), IsOk());
  return problem;
}

// Windows from every moment, cut at every moment.
LowerBound FullBound(const MovementProblem& problem) {
  LowerBoundOptions options = {.start_stride = 1};
  options.anchors.resize(problem.moments.size());
  std::iota(options.anchors.begin(), options.anchors.end(), 0);
  return ComputeLowerBound(problem, options);
}

LowerBound DefaultBound(const MovementProblem& problem) { return ComputeLowerBound(problem, {}); }

TEST(LowerBound, WhatFitsLeavesTheComputing) {
  const LowerBound bound =
      FullBound(Problem({1, 1}, {{3, 2, {{0, kWrite}}}, {4, 2, {{1, kRead}}}}));
  EXPECT_EQ(bound.total, 7);
  EXPECT_EQ(bound.limit, Limit::kCompute);
  EXPECT_EQ(bound.host_to_device, 0);
  EXPECT_EQ(bound.slots_fetched, 0);
  EXPECT_EQ(bound.device_to_host, 0);
  EXPECT_TRUE(bound.windows.empty());
  EXPECT_EQ(FullBound(MovementProblem()).total, 0);
}

TEST(LowerBound, FetchesAndWritesThatNoKeepingAvoids) {
  // Room for one block beside the one in use: half of the three intervals are kept.
  const std::vector<Step> steps = {
      {1, 2, {{0, kWrite}}}, {1, 2, {{1, kWrite}}}, {1, 2, {{2, kRead}}}};
  const LowerBound bound = DefaultBound(Problem({1, 1, 1}, steps));
  EXPECT_EQ(bound.host_to_device, 15);
  EXPECT_EQ(bound.slots_fetched, 1);  // three in two steps
  // Of the two changed blocks one may stay for good.
  EXPECT_EQ(bound.device_to_host, 10);
  EXPECT_EQ(bound.limit, Limit::kHostToDevice);
  EXPECT_EQ(bound.total, 15);
  MovementProblem shared = Problem({1, 1, 1}, steps);
  shared.link_half_duplex = true;
  EXPECT_EQ(DefaultBound(shared).limit, Limit::kLink);
  EXPECT_EQ(DefaultBound(shared).total, 25);
  // Sizes count, and a latency counts for each transfer.
  MovementProblem large = Problem({2, 2}, {{1, 2, {{0, kRead}}}, {1, 2, {{1, kRead}}}});
  EXPECT_EQ(DefaultBound(large).host_to_device, 40);
  large.host_to_device.latency_nanoseconds = 7;
  EXPECT_EQ(DefaultBound(large).host_to_device, 54);
}

TEST(LowerBound, AChangedBlockIsWrittenBackOnceHoweverOftenItIsReadAfter) {
  const LowerBound bound = DefaultBound(Problem(
      {1, 1},
      {{1, 1, {{0, kWrite}}}, {1, 1, {{1, kRead}}}, {1, 1, {{0, kRead}}}, {1, 1, {{1, kRead}}}}));
  EXPECT_EQ(bound.host_to_device, 40);
  EXPECT_EQ(bound.device_to_host, 10);
  // Also when only the gap after the read has no room.
  EXPECT_EQ(DefaultBound(Problem({1, 1}, {{1, 1, {{0, kWrite}}},
                                          {1, 2, {{1, kRead}}},
                                          {1, 1, {{0, kRead}}},
                                          {1, 1, {{1, kRead}}}}))
                .device_to_host,
            10);
  // It stays through the reads where there is room at the other moments.
  EXPECT_EQ(DefaultBound(Problem({1, 1}, {{1, 1, {{0, kWrite}}},
                                          {1, 2, {{1, kRead}}},
                                          {1, 1, {{0, kRead}}},
                                          {1, 2, {{1, kRead}}}}))
                .device_to_host,
            0);
}

TEST(LowerBound, AShortPhaseWaitsForItsFetches) {
  // Two slots hold two of the four blocks when the short phase begins; two are fetched within it.
  const MovementProblem problem = Problem({1, 1, 1, 1}, {{1, 2, {{0, kRead}}},
                                                         {1, 2, {{1, kRead}}},
                                                         {1, 2, {{2, kRead}}},
                                                         {1, 2, {{3, kRead}}},
                                                         {100, 2, {{0, kRead}}}});
  const LowerBound bound = FullBound(problem);
  EXPECT_EQ(bound.compute, 104);
  // Moment 3 starts 20 after the end of moment 0, where 2 are computed.
  EXPECT_EQ(bound.path, 122);
  EXPECT_EQ(bound.fetch_stall, 18);
  EXPECT_EQ(bound.limit, Limit::kPath);
  ASSERT_EQ(bound.windows.size(), 1U);
  EXPECT_EQ(bound.windows[0].edge, Edge::kFetch);
  EXPECT_EQ(bound.windows[0].begin, 0);
  EXPECT_EQ(bound.windows[0].end, 3);
  EXPECT_EQ(bound.windows[0].stall, 18);
  EXPECT_EQ(DefaultBound(problem).path, 122);  // the step's start is an anchor
}

// The uses of the window's last moment count; what it frees does not.
TEST(LowerBound, AWindowEndsWhenItsLastMomentStarts) {
  // Blocks 1 and 2 cannot both be there at the start, but the second may be fetched later on.
  const MovementProblem problem =
      Problem({1, 1, 1}, {{1, 2, {{0, kRead}}}, {1, 2, {{1, kRead}}}, {50, 2, {{2, kRead}}}});
  const auto optimum = FindExhaustiveOptimum(problem, {});
  ASSERT_THAT(optimum, IsOk());
  EXPECT_LE(FullBound(problem).total * optimum->steps, optimum->time);
  EXPECT_EQ(FullBound(problem).path, 52 + 9);  // between moments 0 and 2, a fetch; 1 is computed
}

TEST(LowerBound, GradientsLeaveBeforeTheNextOnesHaveRoom) {
  // Room for one gradient at a time; the parameters 0..2 stay.
  std::vector<Step> steps;
  std::vector<MovementProblem::HostUpdate> updates;
  for (int32_t b = 0; b < 3; ++b) {
    steps.push_back({1, 4, {{b, kRead}, {3 + b, kCreate}}});
    updates.push_back({.parameter = b, .gradient = 3 + b, .complete = b});
  }
  steps.push_back({100, 4, {}});
  const LowerBound bound = FullBound(Problem({1, 1, 1, 1, 1, 1}, steps, updates));
  EXPECT_EQ(bound.device_to_host, 30);
  EXPECT_EQ(bound.host_to_device, 30);
  // Three gradients and a new version of each parameter; 4 slots hold at most two beside a moment's
  // own two blocks, so nothing must wait.
  EXPECT_EQ(bound.write_stall, 0);
  for (Step& step : steps) step.capacity = 2;
  const LowerBound tight = FullBound(Problem({1, 1, 1, 1, 1, 1}, steps, updates));
  // start(1) >= end(0) + 10 and start(2) >= end(1) + 10; the rest is hidden in the long moment.
  EXPECT_EQ(tight.path, 123);
}

// One parameter: forward, backward, gradient down, update, up.
TEST(LowerBound, AnUpdateLiesBetweenBackwardAndTheNextForward) {
  MovementProblem problem =
      Problem({1, 1}, {{5, 3, {{0, kRead}}}, {7, 3, {{0, kRead}, {1, kCreate}}}},
              {{.parameter = 0, .gradient = 1, .complete = 1, .update = 20}});
  problem.device_to_host = LaneOf(2);
  problem.host_to_device = LaneOf(4);
  const LowerBound bound = DefaultBound(problem);
  EXPECT_EQ(bound.compute, 12);
  EXPECT_EQ(bound.host_update, 20);
  EXPECT_EQ(bound.path, 5 + 7 + 2 + 20 + 4);
  EXPECT_EQ(bound.release_stall, 26);
  ASSERT_EQ(bound.windows.size(), 1U);
  EXPECT_EQ(bound.windows[0].edge, Edge::kRelease);
  EXPECT_EQ(bound.windows[0].begin, 1);
  EXPECT_EQ(bound.windows[0].end, 2);  // the next step's first moment
}

// What is computed after a gradient is complete hides its update, wherever a window begins.
TEST(LowerBound, ALongMomentHidesTheUpdate) {
  const MovementProblem problem = Problem(
      {1, 1}, {{1, 4, {{0, kRead}}}, {1, 4, {{0, kRead}, {1, kCreate}}}, {100, 4, {}}, {1, 4, {}}},
      {{.parameter = 0, .gradient = 1, .complete = 1, .update = 5}});
  EXPECT_EQ(FullBound(problem).total, 103);
  EXPECT_EQ(FullBound(problem).limit, Limit::kCompute);
}

TEST(LowerBound, AGradientHoldsItsSlotsUntilItIsComplete) {
  // Block 3 cannot stay over moment 2, which leaves room for its own block and the gradient only.
  const MovementProblem problem = Problem({1, 1, 1, 1},
                                          {{1, 4, {{0, kRead}, {1, kCreate}}},
                                           {1, 4, {{3, kRead}}},
                                           {1, 2, {{2, kRead}}},
                                           {1, 4, {{3, kRead}}}},
                                          {{.parameter = 0, .gradient = 1, .complete = 3}});
  EXPECT_EQ(DefaultBound(problem).host_to_device, 20);
}

TEST(LowerBound, ChangedBlocksLeaveBeforeTheNextMomentHasRoom) {
  // Two slots go down, and the last of the two that replace them comes after that.
  const LowerBound bound = FullBound(Problem(
      {1, 1, 1, 1}, {{5, 2, {{0, kWrite}, {1, kWrite}}}, {5, 2, {{2, kRead}, {3, kRead}}}}));
  EXPECT_EQ(bound.path, 5 + 20 + 10 + 5 + 20);
  EXPECT_EQ(bound.fetch_stall + bound.write_stall, 50);
  // Blocks that are created need no fetch.
  EXPECT_EQ(FullBound(Problem({1, 1, 1, 1}, {{5, 2, {{0, kWrite}, {1, kWrite}}},
                                             {5, 2, {{2, kCreate}, {3, kCreate}}}}))
                .path,
            5 + 20 + 5 + 20);
}

// Three parameters used in order, then backward in reverse; all needed at once.
MovementProblem ThreeUpdates(std::vector<Nanoseconds> update_times) {
  std::vector<Step> steps;
  std::vector<MovementProblem::HostUpdate> updates;
  for (int32_t b = 0; b < 3; ++b) steps.push_back({0, 6, {{b, kRead}}});
  for (int32_t b = 2; b >= 0; --b) steps.push_back({1, 6, {{b, kRead}, {3 + b, kCreate}}});
  for (int32_t b = 0; b < 3; ++b) {
    updates.push_back({.parameter = b,
                       .gradient = 3 + b,
                       .complete = 5 - b,
                       .update = update_times[static_cast<size_t>(b)]});
  }
  MovementProblem problem = Problem({1, 1, 1, 1, 1, 1}, steps, updates);
  problem.device_to_host = LaneOf(2);
  problem.host_to_device = LaneOf(4);
  return problem;
}

TEST(LowerBound, UpdatesOfTheBorderAreAShopOfThreeMachines) {
  // Equal updates: from the end of moment 3, down 2, three updates, up 4; of the computing after
  // it, 2 are hidden.
  EXPECT_EQ(DefaultBound(ThreeUpdates({20, 20, 20})).path, 1 + 2 + 60 + 4);
  // The same with one long update: its time and the shorter ones', not three times the shortest.
  EXPECT_EQ(DefaultBound(ThreeUpdates({20, 1, 1})).path, 3 + 2 + 20 + 4);
  EXPECT_EQ(DefaultBound(ThreeUpdates({20, 30, 1})).path, 1 + 1 + 2 + 50 + 4);
  // Fetches are the longest: down and the shortest update, then three times up.
  MovementProblem slow_up = ThreeUpdates({1, 1, 1});
  slow_up.host_to_device = LaneOf(50);
  EXPECT_EQ(DefaultBound(slow_up).path, 1 + 2 + 1 + 150);
  // Gradients are.
  MovementProblem slow_down = ThreeUpdates({1, 1, 1});
  slow_down.device_to_host = LaneOf(50);
  EXPECT_EQ(DefaultBound(slow_down).path, 1 + 150 + 1 + 4);
}

TEST(LowerBound, UpdatesThatWaitForTheNormStartAfterTheLastGradient) {
  MovementProblem problem = ThreeUpdates({20, 20, 20});
  problem.wait_for_norm = true;
  // All gradients: the last two end at most at 1 + 3 x 2 = 7, the last at 3 + 2 = 5; then updates,
  // up.
  const LowerBound bound = DefaultBound(problem);
  EXPECT_EQ(bound.path, 7 + 60 + 4);
  ASSERT_FALSE(bound.windows.empty());
  EXPECT_EQ(bound.windows.back().edge, Edge::kNorm);
  // A late moment that the norm counts, too.
  problem.moments.push_back({.first_use = 9, .use_count = 0, .compute = 30, .capacity = 6});
  problem.norm_moment = 6;
  EXPECT_EQ(DefaultBound(problem).path, 33 + 60 + 4);
}

TEST(LowerBound, AMomentThatNeedsTheNormWaitsForTheGradients) {
  MovementProblem problem = ThreeUpdates({0, 0, 0});
  problem.device_to_host = LaneOf(50);
  problem.moments.push_back({.first_use = 9,
                             .use_count = 0,
                             .compute = 30,
                             .capacity = 6,
                             .norm = MovementProblem::Norm::kOfThisStep});
  // Gradients end at 1 + 150; then the moment. Versions end earlier.
  EXPECT_EQ(DefaultBound(problem).path, 151 + 30);
  problem.moments.back().norm = MovementProblem::Norm::kNotNeeded;
  const Nanoseconds without = DefaultBound(problem).path;
  EXPECT_LT(without, 181);
  problem.moments.front().norm = MovementProblem::Norm::kOfLastStep;
  EXPECT_GE(DefaultBound(problem).path, without);
}

TEST(LowerBound, FilesCarryTheStatesOfEachUpdate) {
  MovementProblem problem = ThreeUpdates({1, 1, 1});
  for (MovementProblem::HostUpdate& update : problem.updates) update.file_bytes = 6;
  problem.file_read = LaneOf(10);
  problem.file_write = LaneOf(20);
  problem.host_buffers = 2;
  LowerBound bound = DefaultBound(problem);
  EXPECT_EQ(bound.file_read, 180);
  EXPECT_EQ(bound.file_write, 360);
  EXPECT_EQ(bound.files, 540);
  // After the first gradient, one is read and one is written before the last update.
  EXPECT_EQ(bound.path, 1 + 180 + 1 + 4);
  EXPECT_EQ(bound.limit, Limit::kFiles);
  problem.file_half_duplex = false;
  bound = DefaultBound(problem);
  EXPECT_EQ(bound.files, 0);
  EXPECT_EQ(bound.path, 1 + 60 + 1 + 4);
  EXPECT_EQ(bound.limit, Limit::kFileWrite);
  // A parameter in a file is written with them and read by itself.
  problem.in_file[static_cast<size_t>(problem.updates[0].parameter)] = true;
  EXPECT_EQ(DefaultBound(problem).file_read, 180 + 10);
  EXPECT_EQ(DefaultBound(problem).file_write, 360 + 20);
}

TEST(LowerBound, BlocksInFilesPassTheFileLane) {
  MovementProblem problem = Problem(
      {1, 1, 1, 1},
      {{1, 1, {{0, kWrite}}}, {1, 1, {{1, kRead}}}, {1, 1, {{2, kRead}}}, {1, 1, {{3, kRead}}}});
  problem.in_file.assign(4, true);
  problem.file_read = LaneOf(5);
  problem.file_write = LaneOf(5);
  problem.host_buffers = 2;
  const LowerBound bound = DefaultBound(problem);
  EXPECT_EQ(bound.host_to_device, 40);
  EXPECT_EQ(bound.device_to_host, 10);
  EXPECT_EQ(bound.file_read, 20);
  EXPECT_EQ(bound.file_write, 5);
}

// Four blocks in turn and two slots: one stays, so that each of the others is fetched.
TEST(LowerBound, WhatStaysLeavesLessRoom) {
  MovementProblem problem = Problem(
      {1, 1, 1, 1},
      {{1, 2, {{0, kRead}}}, {1, 2, {{1, kRead}}}, {1, 2, {{2, kRead}}}, {1, 2, {{3, kRead}}}});
  EXPECT_EQ(DefaultBound(problem).host_to_device, 10 * 4 * 2 / 3);
  problem.stays = {true, false, false, false};
  EXPECT_EQ(DefaultBound(problem).host_to_device, 10 * 3);
  problem.stays = {true, true, false, false};
  problem.moments[2].capacity = problem.moments[3].capacity = 3;
  problem.moments[0].capacity = problem.moments[1].capacity = 3;
  EXPECT_EQ(DefaultBound(problem).host_to_device, 10 * 2);
}

// GANTRY_BOUND_CASES changes the number of seeds per kind.
TEST(LowerBound, IsAtMostTheExhaustiveOptimum) {
  const char* cases = std::getenv("GANTRY_BOUND_CASES");
  const uint64_t seeds = cases == nullptr ? 1000 : std::strtoull(cases, nullptr, 10);
  for (const SmallProblem kind : kSmallProblems) {
    int64_t met = 0;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      const MovementProblem problem = RandomSmallProblem(kind, seed);
      const auto optimum = FindExhaustiveOptimum(problem, {});
      ASSERT_THAT(optimum, IsOk()) << ToString(kind) << " seed " << seed;
      const LowerBound bound = FullBound(problem);
      ASSERT_LE(bound.total * optimum->steps, optimum->time)
          << ToString(kind) << " seed " << seed << ", limit " << Name(bound.limit);
      met += bound.total * optimum->steps == optimum->time ? 1 : 0;
    }
    EXPECT_GT(met * 100, static_cast<int64_t>(seeds)) << ToString(kind);  // more than one of 100
  }
}

// Every way to move, simulated until its steps repeat.
TEST(LowerBound, IsAtMostAnySimulatedStep) {
  int64_t simulated = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    problem.link_half_duplex = seed % 5 == 0;
    if (seed % 3 == 0) LetBlocksStay(problem, seed);
    const LowerBound bound = FullBound(problem);
    const UseCycle cycle = LinkUses(problem);
    std::vector<MovementPlan> plans;
    for (const int64_t reserve : {0, 2}) {
      plans.push_back(
          {.keep = ChooseKeepSet(problem, cycle, {.reserve = reserve}), .write_reserve = reserve});
    }
    plans.push_back({.mode = MovementPlan::Mode::kOnDemand, .look_ahead = 4});
    for (const MovementPlan& plan : plans) {
      const auto step = Simulate(problem, plan, {.steps_max = 60});
      ASSERT_THAT(step, IsOk());
      if (!step->steady) continue;
      EXPECT_GE(step->elapsed, bound.total) << Name(bound.limit);
      ++simulated;
    }
  }
  EXPECT_GT(simulated, 3000);
}

TEST(ExhaustiveOptimum, IsAtMostAnySimulatedStep) {
  int64_t met = 0;
  for (const SmallProblem kind : kSmallProblems) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(testing::Message() << ToString(kind) << " seed " << seed);
      const MovementProblem problem = RandomSmallProblem(kind, seed);
      const auto optimum = FindExhaustiveOptimum(problem, {});
      ASSERT_THAT(optimum, IsOk());
      const UseCycle cycle = LinkUses(problem);
      for (const int64_t reserve : {0, 1}) {
        const MovementPlan plan = {.keep = ChooseKeepSet(problem, cycle, {.reserve = reserve}),
                                   .write_reserve = 0};
        const auto step = Simulate(problem, plan, {.steps_max = 60});
        ASSERT_THAT(step, IsOk());
        if (!step->steady) continue;
        EXPECT_GE(step->elapsed * optimum->steps, optimum->time);
        met += step->elapsed * optimum->steps == optimum->time ? 1 : 0;
      }
    }
  }
  EXPECT_GT(met, 1000);
}

// What can only help a schedule: a faster lane, a shorter moment or update, another slot or buffer.
void Ease(MovementProblem& problem, uint64_t choice) {
  switch (choice % 8) {
    case 0:
      problem.host_to_device.bytes_per_second *= 2;
      break;
    case 1:
      problem.device_to_host.bytes_per_second *= 2;
      break;
    case 2:
      for (MovementProblem::Moment& moment : problem.moments) ++moment.capacity;
      break;
    case 3:
      problem.moments[choice / 8 % problem.moments.size()].capacity += 2;
      break;
    case 4:
      problem.file_read.bytes_per_second *= 2;
      problem.file_write.bytes_per_second *= 2;
      break;
    case 5:
      ++problem.host_buffers;
      break;
    case 6:
      for (MovementProblem::HostUpdate& update : problem.updates) update.update /= 2;
      break;
    default:
      problem.wait_for_norm = false;
      break;
  }
}

TEST(LowerBound, EasierProblemsHaveNoHigherBound) {
  int64_t lower = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    if (seed % 4 == 0) problem = RandomSmallProblem(kSmallProblems[seed / 4 % 6], seed);
    const Nanoseconds before = FullBound(problem).total;
    Ease(problem, seed / 4);
    ASSERT_THAT(problem.Validate(), IsOk());
    const Nanoseconds after = FullBound(problem).total;
    // A rounded-down rate may differ by less than 1 ns.
    EXPECT_LE(after, before + 1) << "seed " << seed;
    lower += after < before ? 1 : 0;
  }
  EXPECT_GT(lower, 40);
}

TEST(LowerBound, PartsAddUp) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    const LowerBound bound = DefaultBound(problem);
    EXPECT_EQ(bound.path,
              bound.compute + bound.fetch_stall + bound.write_stall + bound.release_stall);
    int32_t end = -1;
    for (const LowerBound::Window& window : bound.windows) {
      EXPECT_GE(window.begin, end);
      EXPECT_GT(window.end, window.begin);
      EXPECT_GT(window.stall, 0);
      end = window.end;
    }
    EXPECT_GE(FullBound(problem).total, bound.total);
  }
}

}  // namespace
}  // namespace gantry
