// The planner on whole models: never worse than what it is compared with, within what is possible,
// the same every time, and errors that say what is missing.
#include "placement_policy/planner.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/policy.h"
#include "placement_policy/policy_plan.h"
#include "placement_policy/simulator.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Case {
  std::string_view model = "gpt2";
  double device = 0.2;  // of the model's state
  double host = 2.0;    // of the model's state
  bool files = false;
  Recomputation recomputation = Recomputation::kFull;
  int64_t sequences = 4;
};

struct Setting {
  Trace trace;
  Machine machine;
};

Setting Make(const Case& c) {
  const auto shape = BuiltInModel(c.model);
  EXPECT_THAT(shape, IsOk());
  const auto trace = SyntheticTrace(*shape, {.sequences = c.sequences,
                                             .sequence_length = 1024,
                                             .recomputation = c.recomputation,
                                             .flops_per_second = 156e12});
  EXPECT_THAT(trace, IsOk());
  Setting setting = {.trace = *trace, .machine = {}};
  int64_t state = 0;
  for (const int8_t slots : trace->block_slots) state += slots;
  Machine& machine = setting.machine;
  machine.slot_bytes = trace->slot_bytes;
  machine.device_slots = static_cast<int64_t>(c.device * static_cast<double>(state));
  machine.host_slots = static_cast<int64_t>(c.host * static_cast<double>(state));
  machine.has_file_tier = c.files;
  machine.rates.host_to_device = {.bytes_per_second = 25'000'000'000};
  machine.rates.device_to_host = {.bytes_per_second = 25'000'000'000};
  machine.rates.file_read = {.bytes_per_second = 7'000'000'000};
  machine.rates.file_write = {.bytes_per_second = 5'000'000'000};
  machine.rates.host_update_bytes_per_second = 160'000'000'000;
  machine.rates.device_memory_bytes_per_second = 1'900'000'000'000;
  return setting;
}

const std::vector<Case>& Cases() {
  static const std::vector<Case>* const cases = new std::vector<Case>{
      {},
      {.device = 0.5},
      {.device = 0.25, .host = 0.4, .files = true},
      {.host = 0.25, .files = true},
      {.model = "llama2-7b", .sequences = 2},
  };
  return *cases;
}

TEST(PlannerTest, NeverWorseThanAnyOtherPolicy) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(StrCat(std::string(c.model), " ", c.device, " ", c.host));
    const Setting setting = Make(c);
    const auto planned = PlanMovement(setting.trace, setting.machine, {});
    ASSERT_THAT(planned, IsOk());
    EXPECT_TRUE(planned->predicted.steady);
    EXPECT_GE(planned->predicted.elapsed, ComputeLowerBound(planned->training.problem, {}).total);
    int64_t compared = 0;
    for (const std::string_view name : PolicyNames()) {
      const auto other = PolicyPlan(name, setting.trace, setting.machine, {});
      if (!other.ok()) continue;
      ++compared;
      EXPECT_LE(planned->predicted.elapsed, other->predicted.elapsed) << name;
    }
    EXPECT_GE(compared, 3);
    for (const PlacementShape& shape : {PlacementShape{.host_buffers = 8},
                                        {.resident = 5, .host_buffers = 8},
                                        {.streamed = 20, .next_forward = 10, .host_buffers = 8}}) {
      const auto other = EvaluateShape(setting.trace, setting.machine, {}, shape);
      if (other.ok()) {
        EXPECT_LE(planned->predicted.elapsed, other->predicted.elapsed);
      }
    }
    const auto host = PlanMovement(setting.trace, setting.machine, {.host_updates_only = true});
    ASSERT_THAT(host, IsOk());
    EXPECT_LE(planned->predicted.elapsed, host->predicted.elapsed);
    EXPECT_EQ(host->shape.resident + host->shape.streamed, 0);
  }
}

TEST(PlannerTest, UpdatesOnTheHostComeNearTheBound) {
  for (const double device : {0.05, 0.1, 0.25, 0.5}) {
    for (const bool wait_for_norm : {false, true}) {
      SCOPED_TRACE(StrCat(device, " ", wait_for_norm));
      const Setting setting = Make({.model = "llama2-7b", .device = device, .sequences = 2});
      const auto plan = PlanMovement(setting.trace, setting.machine,
                                     {.wait_for_norm = wait_for_norm, .host_updates_only = true});
      ASSERT_THAT(plan, IsOk());
      const LowerBound bound = ComputeLowerBound(plan->training.problem, {.start_stride = 16});
      EXPECT_GE(plan->predicted.elapsed, bound.total);
      EXPECT_LE(static_cast<double>(plan->predicted.elapsed),
                1.02 * static_cast<double>(bound.total));
    }
  }
}

TEST(PlannerTest, TheSamePlanEveryTime) {
  for (const Case& c : Cases()) {
    const Setting setting = Make(c);
    const auto a = PlanMovement(setting.trace, setting.machine, {});
    const auto b = PlanMovement(setting.trace, setting.machine, {});
    ASSERT_THAT(a, IsOk());
    ASSERT_THAT(b, IsOk());
    EXPECT_EQ(a->hash, b->hash);
    EXPECT_EQ(a->hash, HashOf(*b));
    EXPECT_EQ(a->shape, b->shape);
    EXPECT_EQ(a->choices.chunks, b->choices.chunks);
    EXPECT_EQ(a->movement.keep, b->movement.keep);
    EXPECT_EQ(a->predicted.elapsed, b->predicted.elapsed);
    MovementDecision changed = *b;
    changed.movement.write_reserve += 1;
    EXPECT_NE(HashOf(changed), a->hash);
  }
}

// The order of moves is fixed, their times are not.
TEST(PlannerTest, ThePlanStandsNoise) {
  const Setting setting = Make({.model = "llama2-7b", .sequences = 8});
  const auto plan = PlanMovement(setting.trace, setting.machine, {.host_updates_only = true});
  ASSERT_THAT(plan, IsOk());
  for (const double noise : {0.1, 0.2, 0.4}) {
    const auto noisy =
        Simulate(plan->training.problem, plan->movement, {.noise = noise, .noise_seed = 5});
    ASSERT_THAT(noisy, IsOk());
    // The noisy problem's bound: the same moments with the times that the simulation gave them.
    MovementProblem problem = plan->training.problem;
    const auto events = Simulate(plan->training.problem, plan->movement,
                                 {.record = true, .noise = noise, .noise_seed = 5});
    ASSERT_THAT(events, IsOk());
    for (const SimulatedEvent& event : events->events) {
      if (event.kind != SimulatedEvent::Kind::kMoment) continue;
      const auto m = static_cast<size_t>(event.moment) % problem.moments.size();
      problem.moments[m].compute = event.end - event.begin;
    }
    const LowerBound bound = ComputeLowerBound(problem, {.start_stride = 16});
    EXPECT_GE(noisy->elapsed, bound.total);
    EXPECT_LE(static_cast<double>(noisy->elapsed), 1.01 * static_cast<double>(bound.total));
  }
}

TEST(PlannerTest, HostMemoryThatHoldsLittle) {
  // An eighth of the state is the parameters; less, and some of them lie in files.
  for (const double host : {0.3, 0.15, 0.08}) {
    for (const bool wait_for_norm : {false, true}) {
      SCOPED_TRACE(StrCat(host, " ", wait_for_norm));
      const Setting setting = Make({.device = 0.2, .host = host, .files = true});
      const auto plan =
          PlanMovement(setting.trace, setting.machine, {.wait_for_norm = wait_for_norm});
      ASSERT_THAT(plan, IsOk());
      EXPECT_GT(plan->shape.in_files, 0);
      EXPECT_EQ(plan->shape.parameters_in_files > 0, host < 0.1);
      const HostRoom room = HostRoomOf(setting.trace, setting.machine, plan->shape);
      EXPECT_GE(room.states, 0);
      EXPECT_LE(room.slots_needed, setting.machine.host_slots);
    }
  }
}

TEST(PlannerTest, WhatDoesNotFitIsNamed) {
  const Setting no_files = Make({.host = 0.3});
  EXPECT_THAT(PlanMovement(no_files.trace, no_files.machine, {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("host memory: "),
                             HasSubstr(StrCat("there are ", no_files.machine.host_slots)),
                             HasSubstr("no file tier"))));
  const Setting no_host = Make({.host = 0.001, .files = true});
  EXPECT_THAT(PlanMovement(no_host.trace, no_host.machine, {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("host memory: "), HasSubstr("buffers"),
                             HasSubstr(StrCat("there are ", no_host.machine.host_slots)))));
  Setting no_device = Make({});
  no_device.machine.device_slots = 3;
  EXPECT_THAT(PlanMovement(no_device.trace, no_device.machine, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the device has 3")));
  Setting no_lane = Make({});
  no_lane.machine.rates.device_to_host = {};
  EXPECT_THAT(PlanMovement(no_lane.trace, no_lane.machine, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("device_to_host")));
}

TEST(PlannerTest, HostRoom) {
  Setting setting = Make({});
  const auto chunks = static_cast<int64_t>(setting.trace.chunks.size());
  setting.machine.host_slots = 10 * chunks;
  const HostRoom all = HostRoomOf(setting.trace, setting.machine, {});
  EXPECT_EQ(all.slots_needed, chunks + 4);  // parameters, gradients on their way
  EXPECT_EQ(all.states, 10 * chunks - all.slots_needed);
  const HostRoom buffers = HostRoomOf(setting.trace, setting.machine, {.host_buffers = 3});
  EXPECT_EQ(buffers.slots_needed, all.slots_needed + 3 * 6);
  const HostRoom files =
      HostRoomOf(setting.trace, setting.machine, {.host_buffers = 3, .parameters_in_files = 7});
  EXPECT_EQ(files.slots_needed, all.slots_needed + 3 * 7 - 7);
  const HostRoom resident =
      HostRoomOf(setting.trace, setting.machine, {.resident = 9, .parameters_resident = 9});
  EXPECT_EQ(resident.slots_needed, all.slots_needed - 9);
}

// Chunks are numbered in the order of their first use.
TEST(PlannerTest, ShapesNameTheFirstChunks) {
  const Setting setting = Make({.device = 0.4, .host = 0.25, .files = true});
  const auto placed = [&](const PlacementShape& shape) {
    const auto decision = EvaluateShape(setting.trace, setting.machine, {}, shape);
    EXPECT_THAT(decision, IsOk());
    return decision.value_or(MovementDecision());
  };
  const MovementDecision spread = placed({.resident = 5, .streamed = 10, .host_buffers = 4});
  const MovementDecision first =
      placed({.resident = 5, .streamed = 10, .streamed_within = 1, .host_buffers = 4});
  const auto on_device = [](const MovementDecision& decision, size_t c) {
    return decision.choices.chunks[c].place == UpdatePlace::kDevice;
  };
  int64_t all = 0;
  for (size_t c = 0; c < setting.trace.chunks.size(); ++c) {
    EXPECT_EQ(first.resident[c], c < 5) << c;
    EXPECT_EQ(on_device(first, c), c < 15) << c;
    all += on_device(spread, c) ? 1 : 0;
  }
  EXPECT_EQ(all, 15);
  EXPECT_FALSE(on_device(spread, 5) && on_device(spread, 6));
  // Parameters that stay with their states leave room on the host, and nothing of them moves.
  const MovementDecision with_parameters =
      placed({.resident = 12, .parameters_resident = 12, .host_buffers = 4});
  const MovementDecision without = placed({.resident = 12, .host_buffers = 4});
  EXPECT_EQ(with_parameters.shape.parameters_resident, 12);
  EXPECT_EQ(without.shape.in_files - with_parameters.shape.in_files, 12 / 6);
  for (size_t c = 0; c < setting.trace.chunks.size(); ++c) {
    const MovementProblem& problem = with_parameters.training.problem;
    EXPECT_EQ(problem.block_stays(with_parameters.training.parameter[c]), c < 12) << c;
    const int32_t states = with_parameters.training.states[c];
    EXPECT_EQ(states >= 0 && problem.block_stays(states), c < 12) << c;
  }
}

TEST(PlannerTest, OnAUnifiedMachine) {
  Setting setting = Make({.device = 0.4, .files = true});
  setting.machine.unified = true;
  setting.machine.host_slots = 0;
  const auto plan = PlanMovement(setting.trace, setting.machine, {});
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->training.problem.updates.size(), 0);
  EXPECT_TRUE(plan->training.problem.link_half_duplex);
}

// Without recomputing, what operators save does not fit beside the blocks; so some of it leaves or
// is computed again, by which the step is possible or faster.
TEST(PlannerTest, ActivationsMakeRoom) {
  Setting setting = Make({.device = 0.6, .recomputation = Recomputation::kNone, .sequences = 8});
  int64_t most = 0;
  for (const Moment& moment : setting.trace.moments) {
    most = std::max(most, moment.activation_slots);
  }
  for (const double share : {0.6, 1.1, 3.0}) {
    SCOPED_TRACE(share);
    setting.machine.device_slots = static_cast<int64_t>(share * static_cast<double>(most));
    const auto kept = PlanMovement(setting.trace, setting.machine, {.move_activations = false});
    const auto moved = PlanMovement(setting.trace, setting.machine, {});
    ASSERT_THAT(moved, IsOk());
    EXPECT_EQ(kept.ok(), share > 1.0);
    EXPECT_GE(moved->predicted.elapsed, ComputeLowerBound(moved->training.problem, {}).total);
    if (share < 1.0) {
      EXPECT_GT(moved->shape.offloaded + moved->shape.recomputed, 0);
    }
    if (kept.ok()) {
      EXPECT_LE(moved->predicted.elapsed, kept->predicted.elapsed);
    }
  }
}

TEST(PlannerTest, ATraceWithoutChunks) {
  Setting setting = Make({});
  setting.trace.chunks.clear();
  setting.trace.activations.clear();
  const auto plan = PlanMovement(setting.trace, setting.machine, {});
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->training.problem.moments.size(), setting.trace.moments.size());
}

}  // namespace
}  // namespace gantry
