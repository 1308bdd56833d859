// The simulator on problems whose schedule can be worked out by hand, and on random ones, where it
// must keep what the model promises: it ends, repeats, never beats compute, moves what is needed.
#include "placement_policy/simulator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
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

// What a step must carry up and down, from the plan alone.
struct Demand {
  int64_t up = 0;
  int64_t down = 0;
};

// Without gradients of host updates: of the blocks that count.
Demand DemandOfBlocks(const MovementProblem& problem, const std::vector<bool>& keep,
                      const std::vector<bool>& counts) {
  const UseCycle cycle = LinkUses(problem);
  Demand demand;
  for (size_t use = 0; use < keep.size(); ++use) {
    const BlockUse& what = problem.uses[use];
    if (!counts[static_cast<size_t>(what.block)]) continue;
    const Gap gap = cycle.links[use].gap;
    const bool dropped = gap == Gap::kSame && !keep[use];
    if (gap == Gap::kNew || dropped) demand.up += problem.block_bytes(what.block);
    if (what.access == BlockAccess::kRead || what.access == BlockAccess::kConsume) continue;
    // Changed content goes down when it is dropped before it changes again.
    size_t at = use;
    while (cycle.links[at].gap == Gap::kSame) {
      if (!keep[at]) {
        demand.down += problem.block_bytes(what.block);
        break;
      }
      at = static_cast<size_t>(cycle.links[at].next);
      if (at == use || problem.uses[at].access != BlockAccess::kRead) break;
    }
  }
  return demand;
}

Demand DemandOf(const MovementProblem& problem, const std::vector<bool>& keep) {
  Demand demand =
      DemandOfBlocks(problem, keep, std::vector<bool>(problem.block_slots.size(), true));
  for (const MovementProblem::HostUpdate& update : problem.updates) {
    demand.down += problem.block_bytes(update.gradient);
  }
  return demand;
}

// Lanes carry one transfer at a time and moments come one after the other, in order.
void CheckEvents(const MovementProblem& problem, const SimulatedStep& step) {
  std::array<Nanoseconds, kSimulatedLaneCount> lane_free{};
  Nanoseconds moment_free = 0;
  int64_t moment = 0;
  std::vector<SimulatedEvent> events = step.events;
  std::ranges::stable_sort(events, {}, &SimulatedEvent::begin);
  for (const SimulatedEvent& event : events) {
    ASSERT_LE(event.begin, event.end);
    if (event.kind == SimulatedEvent::Kind::kMoment) {
      ASSERT_EQ(event.moment, moment++);
      ASSERT_GE(event.begin, moment_free);
      moment_free = event.end;
      continue;
    }
    const auto lane = static_cast<size_t>(event.lane);
    ASSERT_GE(event.begin, lane_free[lane]) << Name(event.lane);
    lane_free[lane] = event.end;
    const bool files =
        event.lane == SimulatedLane::kFileRead || event.lane == SimulatedLane::kFileWrite;
    const bool link =
        event.lane == SimulatedLane::kHostToDevice || event.lane == SimulatedLane::kDeviceToHost;
    if (files && problem.file_half_duplex) {
      const size_t other =
          lane == static_cast<size_t>(SimulatedLane::kFileRead) ? lane + 1 : lane - 1;
      ASSERT_GE(event.begin, lane_free[other]);
    }
    if (link && problem.link_half_duplex) {
      ASSERT_GE(event.begin, lane_free[lane == kUp ? kDown : kUp]);
    }
  }
}

TEST(SimulatorTest, RandomSmallProblemsMoveWhatThePlanSays) {
  int64_t steady = 0;
  int64_t all = 0;
  for (const SmallProblem kind : kSmallProblems) {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
      SCOPED_TRACE(StrCat(ToString(kind), ", seed ", seed));
      MovementProblem problem = RandomSmallProblem(kind, seed);
      problem.link_half_duplex = seed % 4 == 0;
      for (const int64_t reserve : {0, 1, 2}) {
        const MovementPlan plan = KeepSetPlan(problem, reserve, 0);
        const auto step = Simulate(problem, plan, {.steps_max = 40, .record = true});
        ASSERT_THAT(step, IsOk());
        EXPECT_GE(step->elapsed, step->compute);
        CheckEvents(problem, *step);
        ++all;
        if (!step->steady) continue;
        ++steady;
        const Demand demand = DemandOf(problem, plan.keep);
        EXPECT_EQ(step->bytes[kUp], demand.up);
        EXPECT_EQ(step->bytes[kDown], demand.down);
      }
    }
  }
  EXPECT_GT(steady * 100, all * 99) << steady << " of " << all;
}

TEST(SimulatorTest, RandomTrainingProblemsMoveWhatThePlanSays) {
  int64_t steady = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    const MovementPlan plan = KeepSetPlan(problem, 2, 2);
    const auto step = Simulate(problem, plan, {.steps_max = 40, .record = true});
    ASSERT_THAT(step, IsOk());
    EXPECT_GE(step->elapsed, step->compute);
    CheckEvents(problem, *step);
    if (!step->steady) continue;
    ++steady;
    const Demand demand = DemandOf(problem, plan.keep);
    EXPECT_EQ(step->bytes[kUp], demand.up);
    EXPECT_EQ(step->bytes[kDown], demand.down);
    int64_t updates = 0;
    for (const MovementProblem::HostUpdate& update : problem.updates) updates += update.file_bytes;
    const Demand files = DemandOfBlocks(problem, plan.keep, problem.in_file);
    EXPECT_EQ(step->bytes[static_cast<size_t>(SimulatedLane::kFileRead)], updates + files.up);
    EXPECT_EQ(step->bytes[static_cast<size_t>(SimulatedLane::kFileWrite)], updates + files.down);
  }
  EXPECT_GT(steady, 500);
}

TEST(SimulatorTest, OnDemandEnds) {
  for (const SmallProblem kind : kSmallProblems) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      SCOPED_TRACE(StrCat(ToString(kind), ", seed ", seed));
      const MovementProblem problem = RandomSmallProblem(kind, seed);
      for (const EvictionOrder order :
           {EvictionOrder::kFurthestNextUse, EvictionOrder::kLeastRecentlyUsed}) {
        for (const int64_t look_ahead : {0, 1, 3}) {
          const auto step = Simulate(
              problem,
              {.mode = MovementPlan::Mode::kOnDemand, .eviction = order, .look_ahead = look_ahead},
              {.steps_max = 40, .record = true});
          ASSERT_THAT(step, IsOk());
          EXPECT_GE(step->elapsed, step->compute);
          CheckEvents(problem, *step);
        }
      }
    }
  }
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    const auto step =
        Simulate(problem, {.mode = MovementPlan::Mode::kOnDemand, .look_ahead = 4}, {});
    ASSERT_THAT(step, IsOk());
  }
}

TEST(SimulatorTest, TheSameArgumentsGiveTheSameEvents) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    const MovementPlan plan = KeepSetPlan(problem, 2, 2);
    const SimulationOptions options = {.record = true, .noise = 0.2, .noise_seed = seed};
    const auto a = Simulate(problem, plan, options);
    const auto b = Simulate(problem, plan, options);
    ASSERT_THAT(a, IsOk());
    ASSERT_THAT(b, IsOk());
    EXPECT_EQ(a->elapsed, b->elapsed);
    ASSERT_EQ(a->events.size(), b->events.size());
    for (size_t i = 0; i < a->events.size(); ++i) {
      ASSERT_EQ(std::tuple(a->events[i].block, a->events[i].begin, a->events[i].end),
                std::tuple(b->events[i].block, b->events[i].begin, b->events[i].end));
    }
  }
}

// A schedule for slow lanes is one for fast lanes, too, and so is one for little room; but rules
// that serve what is there first can lose by more speed (Graham's anomalies). So a single problem
// may become a little slower, never by much, and all of them together become faster.
TEST(SimulatorTest, FasterLanesAndMoreRoomHelp) {
  int64_t before = 0;
  int64_t faster = 0;
  int64_t roomier = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    const MovementPlan plan = KeepSetPlan(problem, 2, 2);
    const auto step = Simulate(problem, plan, {.steps_max = 40});
    ASSERT_THAT(step, IsOk());
    MovementProblem fast = problem;
    for (Lane* lane :
         {&fast.host_to_device, &fast.device_to_host, &fast.file_read, &fast.file_write}) {
      lane->bytes_per_second *= 2;
    }
    const auto with_fast = Simulate(fast, plan, {.steps_max = 40});
    ASSERT_THAT(with_fast, IsOk());
    EXPECT_LE(with_fast->elapsed, step->elapsed + step->elapsed / 50);
    MovementProblem large = problem;
    for (MovementProblem::Moment& moment : large.moments) moment.capacity += 4;
    const auto with_large = Simulate(large, KeepSetPlan(large, 2, 2), {.steps_max = 40});
    ASSERT_THAT(with_large, IsOk());
    EXPECT_LE(with_large->elapsed, step->elapsed + step->elapsed / 10);
    before += step->elapsed;
    faster += with_fast->elapsed;
    roomier += with_large->elapsed;
  }
  EXPECT_LT(faster, before);
  EXPECT_LT(roomier, before);
}

TEST(SimulatorTest, GivesUpWhereNoStepIsShortEnough) {
  int64_t given_up = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    const MovementPlan plan = KeepSetPlan(problem, 2, 2);
    const auto step = Simulate(problem, plan, {.steps_max = 40});
    ASSERT_THAT(step, IsOk());
    if (!step->steady || step->steps < 4) continue;
    const auto same =
        Simulate(problem, plan, {.steps_max = 40, .give_up_above = 2 * step->elapsed});
    ASSERT_THAT(same, IsOk());
    EXPECT_EQ(same->elapsed, step->elapsed);
    EXPECT_EQ(same->steps, step->steps);
    const auto less = Simulate(problem, plan, {.steps_max = 40, .give_up_above = 1});
    ASSERT_THAT(less, IsOk());
    EXPECT_EQ(less->steps, 3);
    EXPECT_FALSE(less->steady);
    ++given_up;
  }
  EXPECT_GT(given_up, 15);
}

TEST(SimulatorTest, NoiseChangesTheMomentsAndNotTheMoves) {
  const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(3), 3);
  const MovementPlan plan = KeepSetPlan(problem, 2, 2);
  const auto exact = Simulate(problem, plan, {});
  const auto noisy = Simulate(problem, plan, {.noise = 0.4, .noise_seed = 9});
  ASSERT_THAT(exact, IsOk());
  ASSERT_THAT(noisy, IsOk());
  EXPECT_NE(exact->compute, noisy->compute);
  EXPECT_LT(noisy->compute, exact->compute * 14 / 10);
  EXPECT_GT(noisy->compute, exact->compute * 6 / 10);
  EXPECT_EQ(exact->bytes[kUp], noisy->bytes[kUp]);
  EXPECT_EQ(exact->bytes[kDown], noisy->bytes[kDown]);
}

// What lies between two moments is waited for, and what was there is dropped once.
TEST(SimulatorTest, RecordsWaitsAndDrops) {
  int64_t checked = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    const absl::StatusOr<SimulatedStep> step =
        Simulate(problem, KeepSetPlan(problem, 2, 2), {.record = true});
    if (!step.ok()) continue;  // a step that cannot go on is another test's
    ++checked;
    std::vector<Nanoseconds> waited(static_cast<size_t>(step->steps * std::ssize(problem.moments)) +
                                    1);
    for (const SimulatedWait& wait : step->waits) {
      EXPECT_LT(wait.begin, wait.end);
      waited[static_cast<size_t>(wait.moment)] += wait.end - wait.begin;
    }
    Nanoseconds before = 0;
    std::vector<int64_t> there(problem.block_slots.size(), 0);
    for (const SimulatedEvent& event : step->events) {
      if (event.kind == SimulatedEvent::Kind::kMoment) {
        EXPECT_EQ(event.begin - before, waited[static_cast<size_t>(event.moment)]) << event.moment;
        before = event.end;
        const auto moment = static_cast<size_t>(event.moment % std::ssize(problem.moments));
        for (const BlockUse& use : problem.uses_of(problem.moments[moment])) {
          if (use.access == BlockAccess::kCreate) ++there[static_cast<size_t>(use.block)];
        }
      } else if (event.lane == SimulatedLane::kHostToDevice) {
        ++there[static_cast<size_t>(event.block)];
      }
    }
    for (const SimulatedDrop& drop : step->drops) --there[static_cast<size_t>(drop.block)];
    for (const int64_t copies : there) {
      EXPECT_GE(copies, 0);
      EXPECT_LE(copies, 1);
    }
    const absl::StatusOr<SimulatedStep> silent = Simulate(problem, KeepSetPlan(problem, 2, 2), {});
    ASSERT_THAT(silent, IsOk());
    EXPECT_TRUE(silent->waits.empty() && silent->drops.empty() && silent->events.empty());
    EXPECT_EQ(silent->elapsed, step->elapsed);
  }
  EXPECT_GE(checked, 20);
}

}  // namespace
}  // namespace gantry
