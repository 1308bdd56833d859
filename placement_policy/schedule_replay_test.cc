// Recorded schedules of the simulator keep the model's rules; schedules with one event changed do
// not.
#include "placement_policy/schedule_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/keep_set.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/policy.h"
#include "placement_policy/simulator.h"
#include "placement_policy/testing/random_problem.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

using Events = std::vector<SimulatedEvent>;
constexpr auto kMoment = SimulatedEvent::Kind::kMoment;
constexpr auto kTransfer = SimulatedEvent::Kind::kTransfer;

std::vector<MovementPlan> PlansFor(const MovementProblem& problem) {
  const UseCycle cycle = LinkUses(problem);
  std::vector<MovementPlan> plans;
  for (const int64_t reserve : {0, 2}) {
    plans.push_back(
        {.keep = ChooseKeepSet(problem, cycle, {.reserve = reserve}), .write_reserve = reserve});
  }
  for (const EvictionOrder order :
       {EvictionOrder::kFurthestNextUse, EvictionOrder::kLeastRecentlyUsed}) {
    for (const int64_t look_ahead : {0, 3}) {
      plans.push_back({.mode = MovementPlan::Mode::kOnDemand,
                       .eviction = order,
                       .look_ahead = look_ahead,
                       .update_order = MovementPlan::UpdateOrder::kArrival});
    }
  }
  return plans;
}

Events Record(const MovementProblem& problem, const MovementPlan& plan) {
  const auto step = Simulate(problem, plan, {.steps_max = 6, .record = true});
  EXPECT_THAT(step, IsOk());
  return step.ok() ? step->events : Events();
}

TEST(ScheduleReplay, SmallProblems) {
  for (const SmallProblem kind : kSmallProblems) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
      SCOPED_TRACE(testing::Message() << ToString(kind) << " seed " << seed);
      const MovementProblem problem = RandomSmallProblem(kind, seed);
      for (const MovementPlan& plan : PlansFor(problem)) {
        EXPECT_THAT(ReplaySchedule(problem, Record(problem, plan)), IsOk());
      }
    }
  }
}

TEST(ScheduleReplay, TrainingSteps) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    problem.link_half_duplex = seed % 5 == 0;
    if (seed % 3 == 0) LetBlocksStay(problem, seed);
    for (const MovementPlan& plan : PlansFor(problem)) {
      EXPECT_THAT(ReplaySchedule(problem, Record(problem, plan)), IsOk());
    }
  }
}

// However many buffers there are, and whatever waits for them.
TEST(ScheduleReplay, FewBuffers) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    for (const int64_t buffers : {2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << buffers << " buffers");
      problem.host_buffers = buffers;
      for (const MovementPlan& plan : PlansFor(problem)) {
        EXPECT_THAT(ReplaySchedule(problem, Record(problem, plan)), IsOk());
      }
    }
  }
}

TEST(ScheduleReplay, NothingHappened) {
  EXPECT_THAT(ReplaySchedule(MovementProblem(), {}), IsOk());
  EXPECT_THAT(ReplaySchedule(RandomSmallProblem(SmallProblem::kClean, 1), {}), IsOk());
}

// Every event is needed and cannot be earlier: changes that a rule must catch.
struct Change {
  const char* name;
  // Changes an event of `events` and says whether it did.
  std::function<bool(const MovementProblem&, size_t, Events&)> apply;
};

bool IsLane(const SimulatedEvent& event, SimulatedLane lane) {
  return event.kind == kTransfer && event.lane == lane;
}

const std::vector<Change>& Changes() {
  static const std::vector<Change> kChanges = {
      {"a moment takes longer",
       [](const MovementProblem&, size_t i, Events& events) {
         if (events[i].kind != kMoment) return false;
         events[i].end += 1;
         return true;
       }},
      {"a moment is left out",
       [](const MovementProblem&, size_t i, Events& events) {
         if (events[i].kind != kMoment || i + 1 == events.size()) return false;
         events.erase(events.begin() + static_cast<int64_t>(i));
         return true;
       }},
      {"a transfer is shorter",
       [](const MovementProblem&, size_t i, Events& events) {
         if (events[i].kind != kTransfer || events[i].begin == events[i].end) return false;
         events[i].begin += 1;
         return true;
       }},
      {"a lane carries two",
       [](const MovementProblem&, size_t i, Events& events) {
         if (events[i].kind != kTransfer || events[i].begin == events[i].end) return false;
         events.push_back(events[i]);
         return true;
       }},
      {"a block or update that does not exist",
       [](const MovementProblem& problem, size_t i, Events& events) {
         if (events[i].kind != kTransfer) return false;
         (events[i].block >= 0 ? events[i].block : events[i].update) =
             static_cast<int32_t>(problem.block_slots.size());
         return true;
       }},
  };
  return kChanges;
}

TEST(ScheduleReplay, ChangedEventsAreFound) {
  for (const Change& change : Changes()) {
    int64_t changed = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
      const Events events = Record(problem, PlansFor(problem)[seed % 6]);
      const Random random({.seed = seed, .stream = 0});
      for (uint64_t draw = 0; draw < 5; ++draw) {
        const auto i = static_cast<size_t>(random.Below(std::ssize(events), draw));
        Events other = events;
        if (!change.apply(problem, i, other)) continue;
        ++changed;
        EXPECT_THAT(ReplaySchedule(problem, other),
                    StatusIs(absl::StatusCode::kFailedPrecondition, "schedule: "))
            << change.name << ", seed " << seed << ", event " << i;
      }
    }
    EXPECT_GT(changed, 20) << change.name;
  }
}

// The events of a recording in which block `block` moves on `lane`.
std::vector<size_t> Moves(const Events& events, SimulatedLane lane) {
  std::vector<size_t> found;
  for (size_t i = 0; i < events.size(); ++i) {
    if (IsLane(events[i], lane)) found.push_back(i);
  }
  return found;
}

// Two changed blocks that share one slot: nothing can be left out or come earlier.
TEST(ScheduleReplay, ATightScheduleHasNoSlack) {
  MovementProblem problem;
  problem.block_slots = {1, 1};
  problem.in_file = {false, false};
  problem.host_to_device = {.bytes_per_second = 100'000'000};
  problem.device_to_host = {.bytes_per_second = 100'000'000};
  for (int32_t b = 0; b < 2; ++b) {
    problem.uses.push_back({b, BlockAccess::kWrite});
    problem.moments.push_back({.first_use = b, .use_count = 1, .compute = 5, .capacity = 1});
  }
  const MovementPlan plan = {.keep = {false, false}, .write_reserve = 0};
  const Events events = Record(problem, plan);
  ASSERT_THAT(ReplaySchedule(problem, events), IsOk());
  const auto broken = [](const char* text) {
    return StatusIs(absl::StatusCode::kFailedPrecondition, text);
  };
  const auto without = [&](size_t i) {
    Events other = events;
    other.erase(other.begin() + static_cast<int64_t>(i));
    return ReplaySchedule(problem, other);
  };
  const auto shifted = [&](size_t i, Nanoseconds by) {
    Events other = events;
    other[i].begin += by;
    other[i].end += by;
    return ReplaySchedule(problem, other);
  };
  const std::vector<size_t> ups = Moves(events, SimulatedLane::kHostToDevice);
  const std::vector<size_t> downs = Moves(events, SimulatedLane::kDeviceToHost);
  ASSERT_GT(ups.size(), 4U);
  ASSERT_GT(downs.size(), 3U);
  EXPECT_THAT(without(ups[0]), broken("misses block 0"));
  EXPECT_THAT(without(downs[0]), broken("not on the host"));
  EXPECT_THAT(shifted(ups[0], 1), broken("misses block 0"));
  EXPECT_THAT(shifted(ups[3], -1), broken("slots"));
  EXPECT_THAT(shifted(downs[2], -1), broken("changes it"));
  EXPECT_THAT(shifted(downs[2], 1), broken(""));
  for (size_t m = 0; m < problem.moments.size(); ++m) {
    MovementProblem larger = problem;
    larger.moments[m].capacity = 2;
    EXPECT_THAT(ReplaySchedule(larger, events), IsOk());
  }
}

// Nothing begins while moment 1 computes, and yet it has less room than the kept block leaves.
TEST(ScheduleReplay, AMomentHasRoomForWhatIsKept) {
  MovementProblem problem;
  problem.block_slots = {1, 1};
  problem.in_file = {false, false};
  problem.host_to_device = problem.device_to_host = {.bytes_per_second = 100'000'000};
  problem.uses = {{0, BlockAccess::kRead}, {1, BlockAccess::kRead}, {0, BlockAccess::kRead}};
  problem.moments = {{.first_use = 0, .use_count = 2, .compute = 5, .capacity = 2},
                     {.first_use = 2, .use_count = 1, .compute = 5, .capacity = 2}};
  const Events events = Record(problem, {.keep = {true, true, true}, .write_reserve = 0});
  ASSERT_THAT(ReplaySchedule(problem, events), IsOk());
  problem.moments[1].capacity = 1;
  EXPECT_THAT(ReplaySchedule(problem, events),
              StatusIs(absl::StatusCode::kFailedPrecondition, "moment 1 has 1 slots; 2 are held"));
}

// One chunk: gradient down, norm, update, parameter up, with its states in a file.
TEST(ScheduleReplay, UpdatesHaveTheirOrder) {
  MovementProblem problem;
  problem.block_slots = {1, 1};
  problem.in_file = {false, false};
  problem.host_to_device = problem.device_to_host = {.bytes_per_second = 100'000'000};
  problem.file_read = problem.file_write = {.bytes_per_second = 100'000'000};
  problem.host_buffers = 2;
  problem.uses = {{0, BlockAccess::kRead}, {0, BlockAccess::kRead}, {1, BlockAccess::kCreate}};
  problem.moments = {{.first_use = 0, .use_count = 1, .compute = 5, .capacity = 2},
                     {.first_use = 1, .use_count = 2, .compute = 5, .capacity = 2}};
  problem.updates = {{.parameter = 0, .gradient = 1, .complete = 1, .update = 20, .file_bytes = 1}};
  problem.wait_for_norm = true;
  problem.norm_moment = 1;
  const Events events = Record(problem, {.keep = {true, true, true}});
  ASSERT_THAT(ReplaySchedule(problem, events), IsOk());
  const auto broken = [](const char* text) {
    return StatusIs(absl::StatusCode::kFailedPrecondition, text);
  };
  const auto shifted = [&](SimulatedLane lane, size_t which, Nanoseconds by) {
    Events other = events;
    const std::vector<size_t> moves = Moves(other, lane);
    EXPECT_GT(moves.size(), which);
    other[moves[which]].begin += by;
    other[moves[which]].end += by;
    return ReplaySchedule(problem, other);
  };
  EXPECT_THAT(shifted(SimulatedLane::kHostUpdate, 1, -1), broken("without its gradient"));
  EXPECT_THAT(shifted(SimulatedLane::kHostToDevice, 1, -1), broken("old version"));
  EXPECT_THAT(shifted(SimulatedLane::kDeviceToHost, 1, -1), broken("changes it"));
  EXPECT_THAT(shifted(SimulatedLane::kFileWrite, 0, -1), broken("the states of update 0"));
  Events other = events;
  other.erase(other.begin() + static_cast<int64_t>(Moves(other, SimulatedLane::kFileRead)[1]));
  EXPECT_THAT(ReplaySchedule(problem, other), broken("the states of update 0"));
  MovementProblem late = problem;  // the norm counts a moment that comes after the update began
  late.moments.push_back({.first_use = 3, .use_count = 0, .compute = 40, .capacity = 2});
  const Events three = Record(late, {.keep = {true, true, true}});
  ASSERT_THAT(ReplaySchedule(late, three), IsOk());
  late.norm_moment = 2;
  EXPECT_THAT(ReplaySchedule(late, three), broken("before the norm"));
  late.norm_moment = 1;
  late.moments[2].norm = MovementProblem::Norm::kOfThisStep;
  EXPECT_THAT(ReplaySchedule(late, three), broken("before the norm"));
}

// A schedule that drops blocks is none when one of them has to stay.
TEST(ScheduleReplay, WhatStaysIsNotFetchedAgain) {
  int64_t found = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    const Events events = Record(problem, PlansFor(problem)[0]);
    ASSERT_THAT(ReplaySchedule(problem, events), IsOk()) << "seed " << seed;
    const UseCycle cycle = LinkUses(problem);
    problem.stays.assign(problem.block_slots.size(), false);
    for (const size_t i : Moves(events, SimulatedLane::kHostToDevice)) {
      const auto block = static_cast<size_t>(events[i].block);
      problem.stays[block] = cycle.update_of[block] < 0 && !problem.in_file[block];
    }
    found += ReplaySchedule(problem, events).ok() ? 0 : 1;
  }
  EXPECT_GT(found, 20);
}

TEST(ScheduleReplay, BuffersAreCounted) {
  int64_t found = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    TrainingProblemOptions options = RandomTrainingOptions(seed);
    options.files = TrainingProblemOptions::Files::kHalfDuplex;
    MovementProblem problem = RandomTrainingProblem(options, seed);
    const Events events = Record(problem, PlansFor(problem)[0]);
    ASSERT_THAT(ReplaySchedule(problem, events), IsOk()) << "seed " << seed;
    problem.host_buffers = 1;
    found += ReplaySchedule(problem, events).ok() ? 0 : 1;
  }
  EXPECT_GT(found, 30);
}

}  // namespace
}  // namespace gantry
