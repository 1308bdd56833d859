// The simulator on problems whose schedule can be worked out by hand, and on random ones, where it
// must keep what the model promises: it ends, repeats, never beats compute, moves what is needed.
#include "placement_policy/simulator.h"

#include <cstdint>
#include <tuple>
#include <vector>

#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/keep_set.h"
#include "placement_policy/testing/random_problem.h"

namespace gantry {
namespace {

constexpr auto kUp = static_cast<size_t>(SimulatedLane::kHostToDevice);
constexpr auto kDown = static_cast<size_t>(SimulatedLane::kDeviceToHost);

MovementPlan KeepSetPlan(const MovementProblem& problem, int64_t reserve, int64_t write_reserve) {
  const UseCycle cycle = LinkUses(problem);
  return {.keep = ChooseKeepSet(problem, cycle, {.reserve = reserve}),
          .write_reserve = write_reserve};
}

TEST(SimulatorTest, RandomSmallProblemsEnd) {
  int64_t steady = 0;
  int64_t all = 0;
  for (const SmallProblem kind : kSmallProblems) {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
      SCOPED_TRACE(StrCat(ToString(kind), ", seed ", seed));
      const MovementProblem problem = RandomSmallProblem(kind, seed);
      for (const int64_t reserve : {0, 1, 2}) {
        const auto step = Simulate(problem, KeepSetPlan(problem, reserve, 0), {.steps_max = 40});
        ASSERT_THAT(step, IsOk());
        EXPECT_GE(step->elapsed, step->compute);
        ++all;
        steady += step->steady ? 1 : 0;
      }
      for (const EvictionOrder order :
           {EvictionOrder::kFurthestNextUse, EvictionOrder::kLeastRecentlyUsed}) {
        for (const int64_t look_ahead : {0, 1, 3}) {
          const auto step = Simulate(
              problem,
              {.mode = MovementPlan::Mode::kOnDemand, .eviction = order, .look_ahead = look_ahead},
              {.steps_max = 40});
          ASSERT_THAT(step, IsOk());
          EXPECT_GE(step->elapsed, step->compute);
        }
      }
    }
  }
  EXPECT_GT(steady * 10, all * 9);
}

TEST(SimulatorTest, RandomTrainingProblemsEnd) {
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    const auto step = Simulate(problem, KeepSetPlan(problem, 2, 2), {.steps_max = 40});
    ASSERT_THAT(step, IsOk());
    EXPECT_GE(step->elapsed, step->compute);
    const auto reactive =
        Simulate(problem, {.mode = MovementPlan::Mode::kOnDemand, .look_ahead = 4}, {});
    ASSERT_THAT(reactive, IsOk());
  }
}

}  // namespace
}  // namespace gantry
