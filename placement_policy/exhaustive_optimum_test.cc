// The exhaustive optimum: hand-computed cases, the choices left out against all of them, and what
// it refuses.
#include "placement_policy/exhaustive_optimum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/testing/random_problem.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

using Choices = ExhaustiveOptimumOptions::Choices;
constexpr BlockAccess kRead = BlockAccess::kRead;
constexpr BlockAccess kWrite = BlockAccess::kWrite;
constexpr BlockAccess kCreate = BlockAccess::kCreate;
constexpr BlockAccess kConsume = BlockAccess::kConsume;

struct Step {
  Nanoseconds compute;
  int64_t capacity;
  std::vector<BlockUse> uses;
};

// A slot moves up and down in 10 ns.
MovementProblem Problem(std::vector<int32_t> slots, const std::vector<Step>& steps) {
  MovementProblem problem;
  problem.in_file.assign(slots.size(), false);
  problem.block_slots = std::move(slots);
  problem.host_to_device = {.bytes_per_second = 100'000'000};
  problem.device_to_host = {.bytes_per_second = 100'000'000};
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

// Per step, with both sets of choices.
double TimeOf(const MovementProblem& problem) {
  const auto optimum = FindExhaustiveOptimum(problem, {});
  const auto all = FindExhaustiveOptimum(problem, {.choices = Choices::kAll});
  EXPECT_THAT(optimum, IsOk());
  EXPECT_THAT(all, IsOk());
  if (!optimum.ok() || !all.ok()) return -1;
  EXPECT_EQ(optimum->time * all->steps, all->time * optimum->steps);
  return static_cast<double>(optimum->time) / static_cast<double>(optimum->steps);
}

TEST(ExhaustiveOptimum, WhatFitsStays) {
  EXPECT_EQ(TimeOf(Problem({1, 1}, {{3, 2, {{0, kWrite}}}, {4, 2, {{1, kRead}}}})), 7);
}

TEST(ExhaustiveOptimum, AFetchOverlapsWithComputingWhenThereIsRoom) {
  // Two blocks, room for one: each is fetched while nothing computes.
  EXPECT_EQ(TimeOf(Problem({1, 1}, {{30, 1, {{0, kRead}}}, {30, 1, {{1, kRead}}}})), 80);
  // Room for two: both stay. With three blocks every fetch is hidden.
  EXPECT_EQ(TimeOf(Problem({1, 1, 1},
                           {{30, 2, {{0, kRead}}}, {30, 2, {{1, kRead}}}, {30, 2, {{2, kRead}}}})),
            90);
}

TEST(ExhaustiveOptimum, AStepMayRepeatOnlyEverySecondTime) {
  // Without computing, three fetches in two steps.
  MovementProblem problem =
      Problem({1, 1, 1}, {{0, 2, {{0, kRead}}}, {0, 2, {{1, kRead}}}, {0, 2, {{2, kRead}}}});
  problem.host_to_device.bytes_per_second = 1'000'000'000;
  const auto optimum = FindExhaustiveOptimum(problem, {});
  ASSERT_THAT(optimum, IsOk());
  EXPECT_EQ(optimum->time * 2, optimum->steps * 3);
  EXPECT_EQ(optimum->steps % 2, 0);
}

TEST(ExhaustiveOptimum, AChangedBlockIsWrittenBeforeItLeaves) {
  // One slot: down and up for each of the two changed blocks.
  EXPECT_EQ(TimeOf(Problem({1, 1}, {{5, 1, {{0, kWrite}}}, {5, 1, {{1, kWrite}}}})), 50);
  // Only one is changed.
  EXPECT_EQ(TimeOf(Problem({1, 1}, {{5, 1, {{0, kWrite}}}, {5, 1, {{1, kRead}}}})), 40);
  // What is overwritten before it is read, or consumed, need not be written down or fetched.
  EXPECT_EQ(TimeOf(Problem({1, 1}, {{5, 1, {{0, kCreate}}}, {5, 1, {{1, kRead}}}})), 20);
  EXPECT_EQ(TimeOf(Problem(
                {1, 1}, {{5, 1, {{0, kCreate}}}, {5, 1, {{0, kConsume}}}, {5, 1, {{1, kRead}}}})),
            25);
}

TEST(ExhaustiveOptimum, ABlockIsNotWrittenBackWhileItChanges) {
  // Block 0 changes in a long moment, which leaves no time for its way down before block 1 comes.
  EXPECT_EQ(TimeOf(Problem({1, 1}, {{100, 1, {{0, kWrite}}}, {1, 1, {{1, kRead}}}})), 131);
  // A moment that only reads it leaves the time; then both ways up remain.
  EXPECT_EQ(TimeOf(Problem({1, 1},
                           {{1, 1, {{0, kWrite}}}, {100, 1, {{0, kRead}}}, {1, 1, {{1, kRead}}}})),
            122);
}

TEST(ExhaustiveOptimum, SizesCount) {
  EXPECT_EQ(TimeOf(Problem({2, 1}, {{5, 2, {{0, kRead}}}, {5, 2, {{1, kRead}}}})), 40);
  EXPECT_EQ(TimeOf(Problem({2, 1}, {{5, 3, {{0, kRead}}}, {5, 3, {{1, kRead}}}})), 10);
}

// The exchanges that justify leaving choices out keep the optimum, with whole nanoseconds between
// any two starts.
TEST(ExhaustiveOptimum, LeavingChoicesOutLosesNothing) {
  for (const SmallProblem kind : kSmallProblems) {
    SCOPED_TRACE(std::string(ToString(kind)));
    for (uint64_t seed = 0; seed < 100; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      TimeOf(RandomSmallProblem(kind, seed));
    }
  }
}

TEST(ExhaustiveOptimum, RefusesWhatItCannotSolve) {
  const auto status = [](const MovementProblem& problem) {
    return FindExhaustiveOptimum(problem, {}).status();
  };
  const auto invalid = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, text);
  };
  const MovementProblem good = RandomSmallProblem(SmallProblem::kDirtyVarying, 1);
  EXPECT_THAT(status(good), IsOk());
  EXPECT_THAT(FindExhaustiveOptimum(good, {.states_max = 10}),
              StatusIs(absl::StatusCode::kResourceExhausted, "more than 10 states"));
  MovementProblem problem = good;
  problem.moments.clear();
  EXPECT_THAT(status(problem), invalid("0 moments"));
  problem = good;
  problem.moments.resize(63, {.capacity = 1});
  EXPECT_THAT(status(problem), invalid("63 moments"));
  problem.moments.resize(62);
  EXPECT_THAT(status(problem), IsOk());
  problem = good;
  problem.block_slots.resize(9, 1);
  problem.in_file.resize(9, false);
  EXPECT_THAT(status(problem), invalid("9 blocks"));
  problem = good;
  problem.moments[2].compute = 1001;
  EXPECT_THAT(status(problem), invalid("1001 ns"));
  problem = good;
  problem.moments[0].norm = MovementProblem::Norm::kOfThisStep;
  EXPECT_THAT(status(problem), invalid("norm"));
  problem = good;
  problem.in_file[0] = true;
  EXPECT_THAT(status(problem), invalid("file"));
  problem = good;
  problem.link_half_duplex = true;
  EXPECT_THAT(status(problem), invalid("half-duplex"));
  problem = good;
  problem.host_to_device.latency_nanoseconds = 1000;
  EXPECT_THAT(status(problem), invalid("ns up"));
  problem = good;
  problem.updates.push_back({});
  EXPECT_THAT(status(problem), invalid("updates"));
}

}  // namespace
}  // namespace gantry
