// The search against the exhaustive optimum of small problems, and what its options promise.
#include "placement_policy/movement_search.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/exhaustive_optimum.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/policy.h"
#include "placement_policy/simulator.h"
#include "placement_policy/testing/random_problem.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

// Elapsed over the optimum: half of the plans are optimal, and all but one in a hundred within 10
// %, or 15 % where blocks have different sizes. None is below it.
TEST(MovementSearchTest, SmallProblemsAgainstTheOptimum) {
  constexpr uint64_t kSeeds = 300;
  for (const SmallProblem kind : kSmallProblems) {
    std::vector<double> ratios;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      SCOPED_TRACE(StrCat(ToString(kind), ", seed ", seed));
      const MovementProblem problem = RandomSmallProblem(kind, seed);
      const auto optimum = FindExhaustiveOptimum(problem, {});
      ASSERT_THAT(optimum, IsOk());
      const auto found = SearchMovement(problem, {.bound = optimum->time / optimum->steps});
      ASSERT_THAT(found, IsOk());
      ASSERT_GE(found->step.elapsed * optimum->steps, optimum->time);
      ratios.push_back(static_cast<double>(found->step.elapsed * optimum->steps) /
                       static_cast<double>(optimum->time));
    }
    std::ranges::sort(ratios);
    const bool sizes = kind == SmallProblem::kDirtySizes || kind == SmallProblem::kPalindromeSizes;
    EXPECT_EQ(ratios[kSeeds / 2], 1.0) << ToString(kind);
    EXPECT_LE(ratios[kSeeds * 99 / 100], sizes ? 1.15 : 1.10) << ToString(kind);
  }
}

TEST(MovementSearchTest, NeverWorseThanAnyCandidate) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    const auto found = SearchMovement(problem, {.local_search_uses_max = 0});
    ASSERT_THAT(found, IsOk());
    std::vector<MovementPlan> plans = {PlainMovement(problem, LinkUses(problem), {}, {})};
    for (const EvictionOrder eviction :
         {EvictionOrder::kFurthestNextUse, EvictionOrder::kLeastRecentlyUsed}) {
      for (const int64_t look_ahead : {0, 8}) {
        plans.push_back({.mode = MovementPlan::Mode::kOnDemand,
                         .eviction = eviction,
                         .look_ahead = look_ahead});
      }
    }
    for (const MovementPlan& plan : plans) {
      const auto step = Simulate(problem, plan, {});
      ASSERT_THAT(step, IsOk());
      if (step->steady) {
        EXPECT_LE(found->step.elapsed, step->elapsed);
      }
    }
    // What it returns is what its plan comes to, and not below what is possible.
    const auto again = Simulate(problem, found->plan, {.steps_max = found->step.steps});
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(again->elapsed, found->step.elapsed);
    EXPECT_GE(found->step.elapsed, ComputeLowerBound(problem, {}).total);
  }
}

TEST(MovementSearchTest, StopsAtTheBound) {
  const MovementProblem problem = RandomSmallProblem(SmallProblem::kClean, 1);
  const auto whole = SearchMovement(problem, {});
  ASSERT_THAT(whole, IsOk());
  const auto stopped = SearchMovement(problem, {.bound = whole->step.elapsed});
  ASSERT_THAT(stopped, IsOk());
  EXPECT_EQ(stopped->step.elapsed, whole->step.elapsed);
  EXPECT_LT(stopped->simulations, whole->simulations);
}

TEST(MovementSearchTest, OnlyPlansThatAreAllowed) {
  const MovementProblem problem = RandomSmallProblem(SmallProblem::kDirtyVarying, 3);
  const auto demand = SearchMovement(problem, {.allowed = [](const MovementPlan& plan) {
                                       return plan.mode == MovementPlan::Mode::kOnDemand;
                                     }});
  ASSERT_THAT(demand, IsOk());
  EXPECT_EQ(demand->plan.mode, MovementPlan::Mode::kOnDemand);
  EXPECT_THAT(SearchMovement(problem, {.allowed = [](const MovementPlan&) { return false; }}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no plan is allowed")));
}

TEST(MovementSearchTest, EqualProblemsHaveEqualPlans) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const MovementProblem problem = RandomSmallProblem(SmallProblem::kDirtySizes, seed);
    const auto a = SearchMovement(problem, {.simulations_max = 500});
    const auto b = SearchMovement(problem, {.simulations_max = 500});
    ASSERT_THAT(a, IsOk());
    ASSERT_THAT(b, IsOk());
    EXPECT_EQ(a->plan.keep, b->plan.keep);
    EXPECT_EQ(a->plan.fetch_ahead_max, b->plan.fetch_ahead_max);
    EXPECT_EQ(a->simulations, b->simulations);
    EXPECT_LE(a->simulations, 500);
  }
}

// A moment may be the last at which its content can be fetched.
TEST(MovementSearchTest, AFetchCanBeHeldBack) {
  const MovementProblem problem = RandomSmallProblem(SmallProblem::kClean, 2);
  MovementPlan plan = PlainMovement(problem, LinkUses(problem), {}, {});
  plan.fetch_ahead_max.assign(problem.uses.size(), 0);
  const auto held_back = Simulate(problem, plan, {.record = true});
  ASSERT_THAT(held_back, IsOk());
  std::vector<Nanoseconds> ends;
  for (const SimulatedEvent& event : held_back->events) {
    if (event.kind == SimulatedEvent::Kind::kMoment) ends.push_back(event.end);
  }
  for (const SimulatedEvent& event : held_back->events) {
    if (event.kind != SimulatedEvent::Kind::kTransfer || event.moment == 0) continue;
    if (event.lane == SimulatedLane::kHostToDevice) {
      EXPECT_GE(event.begin, ends[static_cast<size_t>(event.moment) - 1]);
    }
  }
  plan.fetch_ahead_max.pop_back();
  EXPECT_THAT(Simulate(problem, plan, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fetch_ahead_max")));
}

}  // namespace
}  // namespace gantry
