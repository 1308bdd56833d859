// Plans of a real model on machines with and without files, with updates here and there, moved as
// planned and on demand: the timeline must say what the simulation said, and stay within budgets.
#include "placement_policy/report/simulated_timeline.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/hardware.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/machine.h"
#include "placement_policy/machine_catalog.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/planner.h"
#include "placement_policy/policy_plan.h"
#include "placement_policy/report/plan_certificate.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/simulator.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::SizeIs;

struct Planned {
  Trace trace;
  Machine machine;
  MovementDecision decision;
};

struct Case {
  std::string machine;
  Bytes device_memory;
  std::string policy = "planned";
};

absl::StatusOr<Planned> Plan(const Case& the_case) {
  GANTRY_ASSIGN_OR_RETURN(const ModelShape shape, BuiltInModel("gpt2"));
  GANTRY_ASSIGN_OR_RETURN(const Hardware hardware, CatalogMachine(the_case.machine));
  Planned planned;
  GANTRY_ASSIGN_OR_RETURN(
      planned.trace,
      SyntheticTrace(shape,
                     {.sequence_length = 1024,
                      .recomputation = Recomputation::kFull,
                      .flops_per_second = static_cast<double>(hardware.rates.flops_per_second)}));
  GANTRY_ASSIGN_OR_RETURN(planned.machine,
                          MachineFor(hardware, {.slot_bytes = planned.trace.slot_bytes,
                                                .device_memory = the_case.device_memory,
                                                .host_memory = std::nullopt}));
  if (the_case.policy == "planned") {
    GANTRY_ASSIGN_OR_RETURN(planned.decision, PlanMovement(planned.trace, planned.machine, {}));
  } else {
    GANTRY_ASSIGN_OR_RETURN(planned.decision,
                            PolicyPlan(the_case.policy, planned.trace, planned.machine, {}));
  }
  return planned;
}

int64_t Sum(const KindSlots& slots) {
  return std::accumulate(slots.begin(), slots.end(), int64_t{0});
}

void ExpectStep(const StepTimeline& timeline, const Planned& planned) {
  const SimulatedStep& step = planned.decision.predicted;
  ASSERT_THAT(timeline.operators, SizeIs(planned.decision.training.problem.moments.size()));
  Nanoseconds computing = 0;
  Nanoseconds before = 0;
  for (const TimelineOperator& op : timeline.operators) {
    EXPECT_GE(op.begin, before);
    before = op.end;
    computing += op.end - op.begin;
  }
  EXPECT_EQ(before, timeline.duration);
  EXPECT_EQ(computing, step.compute);
  std::array<Nanoseconds, kSimulatedStallCount> stalls{};
  Nanoseconds waiting = 0;
  for (const TimelineWait& wait : timeline.waits) {
    EXPECT_LT(wait.begin, wait.end);
    stalls[static_cast<size_t>(wait.cause)] += wait.end - wait.begin;
    waiting += wait.end - wait.begin;
  }
  EXPECT_EQ(computing + waiting, timeline.duration);
  if (!step.steady) return;
  // Of one to six steps that repeat together this is one.
  EXPECT_NEAR(static_cast<double>(timeline.duration), static_cast<double>(step.elapsed),
              0.1 * static_cast<double>(step.elapsed));
}

void ExpectLanes(const StepTimeline& timeline, const Planned& planned) {
  std::array<Nanoseconds, kSimulatedLaneCount> busy{};
  for (const TimelineMove& move : timeline.moves) {
    EXPECT_EQ(move.row, 0) << "a simulated lane carries one at a time";
    EXPECT_GT(move.bytes, 0);
    ASSERT_GE(move.subject, 0);
    busy[static_cast<size_t>(move.lane)] +=
        std::min(move.end, timeline.duration) - std::max<Nanoseconds>(move.begin, 0);
  }
  const StepFigures figures = FiguresOf(planned.decision.predicted, planned.machine);
  for (size_t lane = 0; lane < busy.size(); ++lane) {
    EXPECT_NEAR(static_cast<double>(busy[lane]), static_cast<double>(figures.lanes[lane].busy),
                0.15 * static_cast<double>(timeline.duration))
        << Name(static_cast<SimulatedLane>(lane));
  }
}

void ExpectTiers(const StepTimeline& timeline, const Planned& planned) {
  for (const TierCurve& tier : timeline.tiers) {
    SCOPED_TRACE(tier.name);
    ASSERT_FALSE(tier.points.empty());
    EXPECT_EQ(tier.points.front().time, 0);
    for (const TierPoint& point : tier.points) {
      for (const int64_t slots : point.slots) EXPECT_GE(slots, 0);
      EXPECT_LT(point.time, timeline.duration);
    }
  }
  // On the device the budget holds at every instant.
  const TierCurve& device = timeline.tiers.front();
  int64_t most = 0;
  for (const TierPoint& point : device.points) most = std::max(most, Sum(point.slots));
  EXPECT_LE(most, planned.machine.device_slots);
  EXPECT_GT(most, 0);
  EXPECT_EQ(device.budget, planned.machine.slot_bytes * planned.machine.device_slots);
  EXPECT_EQ(PeakOf(device, planned.machine.slot_bytes), planned.machine.slot_bytes * most);
}

TEST(SimulatedTimelineTest, SaysWhatTheSimulationSaid) {
  const Case cases[] = {
      {"rtx4090", 400_MiB},
      {"rtx4090+gen4+host=1GiB", 400_MiB},
      {"rtx4090+gen4+host=1GiB", 1200_MiB},
      {"rtx4090", 400_MiB, "auto"},
      {"rtx4090+gen4+host=1GiB", 400_MiB, "lru"},
      {"rtx4090", 4_GiB, "device"},
  };
  for (const Case& the_case : cases) {
    SCOPED_TRACE(
        StrCat(the_case.policy, " on ", the_case.machine, " with ", the_case.device_memory));
    const absl::StatusOr<Planned> planned = Plan(the_case);
    ASSERT_THAT(planned, IsOk());
    const absl::StatusOr<StepTimeline> timeline = SimulatedTimeline(
        {.trace = &planned->trace, .machine = &planned->machine, .decision = &planned->decision});
    ASSERT_THAT(timeline, IsOk());
    ExpectStep(*timeline, *planned);
    ExpectLanes(*timeline, *planned);
    ExpectTiers(*timeline, *planned);
  }
}

TEST(SimulatedTimelineTest, NamesWhatMovesAndWhy) {
  const absl::StatusOr<Planned> planned = Plan({"rtx4090+gen4+host=1GiB", 400_MiB});
  ASSERT_THAT(planned, IsOk());
  const absl::StatusOr<StepTimeline> timeline = SimulatedTimeline(
      {.trace = &planned->trace, .machine = &planned->machine, .decision = &planned->decision});
  ASSERT_THAT(timeline, IsOk());
  for (const char* const what : {"parameter", "gradient", "optimizer states"}) {
    EXPECT_THAT(timeline->subjects, Contains(Field(&MoveSubject::what, what)));
  }
  for (const TimelineMove& move : timeline->moves) {
    const MoveSubject& subject = timeline->subjects[static_cast<size_t>(move.subject)];
    EXPECT_GE(subject.chunk, 0);
    EXPECT_LT(subject.chunk, static_cast<int64_t>(planned->trace.chunks.size()));
    if (move.lane != SimulatedLane::kHostToDevice) continue;
    // It serves an operator that begins when it has come, in this step or the next.
    ASSERT_GE(move.serves, 0);
    if (move.serves_step != 0) continue;
    EXPECT_GE(timeline->operators[static_cast<size_t>(move.serves)].begin, move.end);
  }
}

TEST(PlanCertificateTest, SaysHowGoodThePlanIs) {
  const absl::StatusOr<Planned> planned = Plan({"rtx4090", 400_MiB});
  ASSERT_THAT(planned, IsOk());
  const std::vector<ReportFact> facts =
      PlanCertificate(planned->trace, planned->machine, planned->decision);
  for (const char* const name :
       {"placement", "clipping", "simulated step", "window bound", "free-placement bound",
        "limiting lane", "fetched in a step", "plan"}) {
    EXPECT_THAT(facts, Contains(Field(&ReportFact::name, name)));
  }
  const LowerBound bound = ComputeLowerBound(planned->decision.training.problem, {});
  const int64_t fetched =
      planned->decision.predicted.bytes[static_cast<size_t>(SimulatedLane::kHostToDevice)];
  EXPECT_GT(bound.slots_fetched, 0);
  EXPECT_LE(bound.slots_fetched * planned->trace.slot_bytes.count(), fetched);
}

}  // namespace
}  // namespace gantry
