#include "trainer/booster/measured_timeline.h"

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"
#include "trainer/booster/step_recorder.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Two chunks, with blocks of one slot but for the states of two.
Trace TwoChunks() {
  Trace trace;
  trace.block_slots = {1, 1, 1, 1, 2, 2, 2, 2, 2, 2};
  trace.names = {"up", "down"};
  trace.chunks = {{.parameter = 0, .gradient = 2, .states = {4, 6, 8}},
                  {.parameter = 1, .gradient = 3, .states = {5, 7, 9}}};
  trace.moments = {{Phase::kForward, 0, 0, 0, 10, 0, 0, 4},
                   {Phase::kBackward, 1, 0, 0, 10, 0, 1, 3}};
  return trace;
}

StepTimeline TimelineOf(const RecordedStep& step, const Trace* trace) {
  return MeasuredTimeline({.step = &step,
                           .trace = trace,
                           .slot_bytes = 1_MiB,
                           .device_budget = 8_MiB,
                           .host_budget = 16_MiB});
}

TEST(MeasuredTimelineTest, AnEmptyStepIsEmpty) {
  const RecordedStep step{.begin = 50, .end = 50};
  const StepTimeline timeline = TimelineOf(step, nullptr);
  EXPECT_EQ(timeline.duration, 0);
  EXPECT_THAT(timeline.operators, IsEmpty());
  EXPECT_THAT(timeline.moves, IsEmpty());
  EXPECT_THAT(timeline.tiers, SizeIs(2));
}

TEST(MeasuredTimelineTest, SlicesBecomeOperatorsWaitsAndMoves) {
  const Trace trace = TwoChunks();
  RecordedStep step{.begin = 1000, .end = 2000};
  step.slices = {{"file read", "master of chunk#1 (update)", 900, 1100},
                 {"compute forward", "up", 1000, 1300},
                 {"host to device", "parameter of chunk#0 (prefetch)", 1000, 1050},
                 {"stall", "update", 1300, 1400},
                 {"compute backward", "down (x)", 1400, 1900},
                 {"device to host", "gradient of chunk#1", 1900, 2100},
                 {"update", "norm of chunk#1", 1950, 1960},
                 {"file write", "block", 1950, 1990},
                 {"something else", "x", 1000, 1001}};
  const StepTimeline timeline = TimelineOf(step, &trace);
  EXPECT_EQ(timeline.duration, 1000);
  ASSERT_THAT(timeline.operators, SizeIs(2));
  EXPECT_EQ(timeline.operators[0].phase, Phase::kForward);
  EXPECT_EQ(timeline.operators[0].layer, 4);
  EXPECT_EQ(timeline.operators[1].layer, 3);
  EXPECT_EQ(timeline.operators[1].begin, 400);
  EXPECT_THAT(timeline.names, ElementsAre("up", "down (x)"));
  ASSERT_THAT(timeline.waits, SizeIs(1));
  EXPECT_EQ(timeline.waits[0].cause, SimulatedStall::kUpdate);
  ASSERT_THAT(timeline.moves, SizeIs(5));
  const auto expect = [&](size_t i, SimulatedLane lane, std::string what, int64_t chunk,
                          Bytes bytes, MoveReason reason) {
    const TimelineMove& move = timeline.moves[i];
    const MoveSubject& subject = timeline.subjects[static_cast<size_t>(move.subject)];
    EXPECT_EQ(move.lane, lane);
    EXPECT_EQ(subject.what, what);
    EXPECT_EQ(subject.chunk, chunk);
    EXPECT_EQ(move.bytes, bytes.count());
    EXPECT_EQ(move.reason, reason);
  };
  expect(0, SimulatedLane::kFileRead, "master", 1, 2_MiB, MoveReason::kStates);
  EXPECT_EQ(timeline.moves[0].begin, -100);
  expect(1, SimulatedLane::kHostToDevice, "parameter", 0, 1_MiB, MoveReason::kPrefetch);
  expect(2, SimulatedLane::kDeviceToHost, "gradient", 1, 1_MiB, MoveReason::kUpdate);
  EXPECT_EQ(timeline.moves[2].end, 1100);
  expect(3, SimulatedLane::kHostUpdate, "norm", 1, 0_B, MoveReason::kUpdate);
  expect(4, SimulatedLane::kFileWrite, "block", -1, 0_B, MoveReason::kSave);
}

TEST(MeasuredTimelineTest, NamesThatOnlyLookLikeBlocksAreKept) {
  const Trace trace = TwoChunks();
  RecordedStep step{.begin = 0, .end = 10};
  step.slices = {{"file read", "gradient of chunk#", 0, 1},
                 {"file read", "gradient of chunk#99999999999999999999", 1, 2},
                 {"file read", "gradient of chunk#7", 2, 3},
                 {"file read", "", 3, 4}};
  const StepTimeline timeline = TimelineOf(step, &trace);
  ASSERT_THAT(timeline.moves, SizeIs(4));
  for (const TimelineMove& move : timeline.moves) EXPECT_EQ(move.bytes, 0);
  EXPECT_EQ(timeline.subjects[0].chunk, -1);
  EXPECT_EQ(timeline.subjects[2].chunk, 7);
}

TEST(MeasuredTimelineTest, CountersBecomeLevels) {
  RecordedStep step{.begin = 100, .end = 200};
  step.counters = {{"device param bytes", 0, 3 << 20},        {"host optimizer bytes", 0, 5 << 20},
                   {"device grad bytes", 150, 1 << 20},       {"device param bytes", 150, 2 << 20},
                   {"device activation bytes", 300, 1 << 20}, {"unknown", 150, 1}};
  const StepTimeline timeline = TimelineOf(step, nullptr);
  ASSERT_THAT(timeline.tiers, SizeIs(2));
  const TierCurve& device = timeline.tiers[0];
  EXPECT_EQ(device.name, "device");
  EXPECT_EQ(device.budget, 8_MiB);
  ASSERT_THAT(device.points, SizeIs(2));
  EXPECT_THAT(device.points[0].slots, ElementsAre(3, 0, 0, 0, 0));
  EXPECT_EQ(device.points[1].time, 50);
  EXPECT_THAT(device.points[1].slots, ElementsAre(2, 1, 0, 0, 0));
  EXPECT_THAT(timeline.tiers[1].points[0].slots, ElementsAre(0, 0, 5, 0, 0));
  const StepTimeline unified =
      MeasuredTimeline({.step = &step, .slot_bytes = 1_MiB, .device_budget = 8_MiB});
  ASSERT_THAT(unified.tiers, SizeIs(1));
  EXPECT_EQ(unified.tiers[0].name, "memory");
}

}  // namespace
}  // namespace gantry
