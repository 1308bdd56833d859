#include "placement_policy/report/step_timeline.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/machine.h"
#include "placement_policy/simulator.h"

namespace gantry {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// Moves that overlap at random, on all lanes.
StepTimeline RandomTimeline(uint64_t seed, int64_t moves) {
  const Random random({.seed = seed, .stream = 7});
  uint64_t index = 0;
  StepTimeline timeline{.duration = 1000 * moves};
  for (int64_t i = 0; i < moves; ++i) {
    const auto begin = random.Below(1000 * moves, index++);
    const auto lane = static_cast<SimulatedLane>(random.Below(kSimulatedLaneCount, index++));
    timeline.moves.push_back({.lane = lane,
                              .begin = begin,
                              .end = begin + random.Below(4000, index++),
                              .bytes = 1 + random.Below(100, index++),
                              .subject = 0,
                              .serves = static_cast<int32_t>(i)});
    timeline.operators.push_back({.begin = 1000 * i,
                                  .end = 1000 * i + 1000,
                                  .phase = i % 3 == 0 ? Phase::kForward : Phase::kBackward});
    timeline.waits.push_back({.begin = 1000 * i, .end = 1000 * i + i % 7});
  }
  timeline.subjects.push_back({.what = "parameter", .chunk = 0});
  timeline.names.push_back("op");
  TierCurve tier{.name = "device"};
  for (int64_t i = 0; i < moves; ++i) {
    tier.points.push_back({.time = 1000 * i, .slots = {i % 5, 0, 0, 0, 0}});
  }
  timeline.tiers.push_back(tier);
  return timeline;
}

void ExpectRowsDoNotOverlap(const StepTimeline& timeline) {
  std::map<std::pair<SimulatedLane, int32_t>, Nanoseconds> ends;
  Nanoseconds before = 0;
  for (const TimelineMove& move : timeline.moves) {
    EXPECT_GE(move.begin, before);
    before = move.begin;
    Nanoseconds& end = ends[{move.lane, move.row}];
    EXPECT_GE(move.begin, end) << "lane " << Name(move.lane) << ", row " << move.row;
    end = move.end;
  }
}

TEST(StepTimelineTest, OverlappingMovesGetRowsOfTheirOwn) {
  StepTimeline timeline;
  timeline.moves = {{.begin = 5, .end = 9}, {.begin = 0, .end = 6}, {.begin = 6, .end = 7}};
  ArrangeMoves(timeline);
  ASSERT_THAT(timeline.moves, SizeIs(3));
  EXPECT_EQ(timeline.moves[0].row, 0);  // 0 to 6
  EXPECT_EQ(timeline.moves[1].row, 1);  // 5 to 9
  EXPECT_EQ(timeline.moves[2].row, 0);  // 6 to 7, where the first has ended
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    StepTimeline random = RandomTimeline(seed, 200);
    ArrangeMoves(random);
    ExpectRowsDoNotOverlap(random);
  }
}

TEST(StepTimelineTest, WhatIsWithinTheLimitsStays) {
  StepTimeline timeline = RandomTimeline(1, 50);
  ArrangeMoves(timeline);
  LimitTimeline({.operators = 50, .moves = 50, .waits = 50, .points = 50}, timeline);
  EXPECT_THAT(timeline.moves, SizeIs(50));
  EXPECT_THAT(timeline.operators, SizeIs(50));
  EXPECT_THAT(timeline.waits, SizeIs(50));
  EXPECT_THAT(timeline.tiers[0].points, SizeIs(50));
  EXPECT_THAT(timeline.notes, IsEmpty());
  StepTimeline empty;
  ArrangeMoves(empty);
  LimitTimeline({}, empty);
  EXPECT_THAT(empty.notes, IsEmpty());
}

TEST(StepTimelineTest, WhatIsBeyondTheLimitsIsMergedAndSaid) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const int64_t moves : {51, 99, 1000}) {
      SCOPED_TRACE(StrCat("seed ", seed, ", ", moves, " moves"));
      StepTimeline timeline = RandomTimeline(seed, moves);
      ArrangeMoves(timeline);
      const StepTimeline before = timeline;
      LimitTimeline({.operators = 50, .moves = 50, .waits = 50, .points = 50}, timeline);
      EXPECT_LE(timeline.moves.size(), 50u);
      EXPECT_LE(timeline.operators.size(), 50u);
      EXPECT_LE(timeline.waits.size(), 50u);
      EXPECT_LE(timeline.tiers[0].points.size(), 50u);
      EXPECT_THAT(timeline.notes, SizeIs(4));
      int64_t bytes = 0;
      int64_t count = 0;
      for (const TimelineMove& move : timeline.moves) {
        bytes += move.bytes;
        count += move.count;
        EXPECT_LT(move.serves, static_cast<int32_t>(timeline.operators.size()));
      }
      int64_t bytes_before = 0;
      for (const TimelineMove& move : before.moves) bytes_before += move.bytes;
      EXPECT_EQ(bytes, bytes_before);
      EXPECT_EQ(count, moves);
      ExpectRowsDoNotOverlap(timeline);
      int64_t operators = 0;
      for (const TimelineOperator& op : timeline.operators) operators += op.count;
      EXPECT_EQ(operators, moves);
      EXPECT_EQ(timeline.operators.back().end, before.operators.back().end);
      int64_t peak = 0;
      for (const TierPoint& point : timeline.tiers[0].points) {
        peak = std::max(peak, point.slots[0]);
      }
      EXPECT_EQ(peak, 4);
    }
  }
}

TEST(StepTimelineTest, FilesBelowTheDeviceAreItsLanes) {
  const Machine unified{.unified = true};
  EXPECT_EQ(ShownLane(unified, SimulatedLane::kHostToDevice), SimulatedLane::kFileRead);
  EXPECT_EQ(ShownLane(unified, SimulatedLane::kDeviceToHost), SimulatedLane::kFileWrite);
  EXPECT_EQ(ShownLane(Machine(), SimulatedLane::kHostToDevice), SimulatedLane::kHostToDevice);
}

}  // namespace
}  // namespace gantry
