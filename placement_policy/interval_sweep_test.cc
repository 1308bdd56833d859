// The furthest-end rule, against a plain search and against the exhaustive optimum of problems
// whose time is their number of fetches.
#include "placement_policy/interval_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "base/random.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/exhaustive_optimum.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/testing/random_problem.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

TEST(UnitsByEnd, DropsWhatEndsLastSeenFromNow) {
  UnitsByEnd units(10);
  units.Add(8, 2);
  units.Add(12, 1);
  units.Add(15, 3);  // a whole period after 5
  EXPECT_EQ(units.size(), 6);
  UnitsByEnd::Units dropped = units.DropFurthest(/*now=*/5, /*count=*/2);
  EXPECT_EQ(dropped.end, 5);
  EXPECT_EQ(dropped.count, 2);
  dropped = units.DropFurthest(5, 2);
  EXPECT_EQ(dropped.end, 5);
  EXPECT_EQ(dropped.count, 1);
  EXPECT_EQ(units.Take(8), 2);
  EXPECT_EQ(units.Take(8), 0);
  dropped = units.DropFurthest(8, 5);
  EXPECT_EQ(dropped.end, 2);
  EXPECT_EQ(dropped.count, 1);
  EXPECT_EQ(units.size(), 0);
}

TEST(UnitsByEnd, AgreesWithAMap) {
  for (const int64_t period : {1, 2, 63, 64, 65, 4095, 4096, 4097, 10'000}) {
    const Random random({.seed = static_cast<uint64_t>(period), .stream = 0});
    uint64_t index = 0;
    UnitsByEnd units(period);
    std::map<int64_t, int64_t> expected;
    int64_t size = 0;
    for (int64_t now = 0; now < 3'000; ++now) {
      const auto at = expected.find(now);
      ASSERT_EQ(units.Take(now), at == expected.end() ? 0 : at->second);
      if (at != expected.end()) {
        size -= at->second;
        expected.erase(at);
      }
      for (int64_t i = random.Below(3, index++); i > 0; --i) {
        const int64_t end = now + 1 + random.Below(period, index++);
        units.Add(end, i);
        expected[end] += i;
        size += i;
      }
      while (size > 20) {
        const auto last = std::prev(expected.end());
        const UnitsByEnd::Units dropped = units.DropFurthest(now, size - 20);
        ASSERT_EQ(dropped.end, last->first % period) << "period " << period;
        ASSERT_EQ(dropped.count, std::min(last->second, size - 20));
        size -= dropped.count;
        last->second -= dropped.count;
        if (last->second == 0) expected.erase(last);
      }
      ASSERT_EQ(units.size(), size);
    }
  }
}

TEST(LeastDrops, CountsOverAsManyPeriodsAsTheKeptSetNeedsToRepeat) {
  // Three blocks in turn, room for one beside the one in use: each interval covers two moments, so
  // three of six can be kept.
  const std::vector<UnitInterval> intervals = {
      {.start = 0, .distance = 3}, {.start = 1, .distance = 3}, {.start = 2, .distance = 3}};
  const std::vector<int64_t> room = {1, 1, 1};
  const DropRate rate = LeastDrops(intervals, room);
  EXPECT_EQ(rate.units * 2, rate.periods * 3);
}

TEST(LeastDrops, NothingAndEverything) {
  const std::vector<int64_t> room = {0, 0};
  EXPECT_EQ(LeastDrops({}, room).units, 0);
  const std::vector<UnitInterval> neighbours = {{.start = 0, .distance = 1, .units = 5}};
  EXPECT_EQ(LeastDrops(neighbours, room).units, 0);  // needs no room in between
  const std::vector<UnitInterval> whole = {{.start = 0, .distance = 2, .units = 5}};
  const DropRate all = LeastDrops(whole, room);
  EXPECT_EQ(all.units, 5 * all.periods);
  const DropRate some = LeastDrops(whole, std::vector<int64_t>{0, 3});
  EXPECT_EQ(some.units, 2 * some.periods);
}

// Without computing, and 1 ns for each fetch, the least time of a step is the least number of
// fetches.
TEST(LeastDrops, IsTheLeastNumberOfFetches) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    MovementProblem problem = RandomSmallProblem(
        seed % 2 == 0 ? SmallProblem::kClean : SmallProblem::kCleanVarying, seed);
    problem.host_to_device.bytes_per_second = 1'000'000'000;
    std::vector<int64_t> room;
    for (MovementProblem::Moment& moment : problem.moments) {
      moment.compute = 0;
      room.push_back(moment.capacity - moment.use_count);
    }
    std::vector<UnitInterval> intervals;
    for (const UseCycle::Link& link : LinkUses(problem).links) {
      intervals.push_back({.start = link.moment, .distance = link.distance});
    }
    const DropRate rate = LeastDrops(intervals, room);
    const auto optimum = FindExhaustiveOptimum(problem, {});
    ASSERT_THAT(optimum, IsOk());
    EXPECT_EQ(rate.units * optimum->steps, optimum->time * rate.periods);
  }
}

}  // namespace
}  // namespace gantry
