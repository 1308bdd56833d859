#include "base/clock.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

namespace gantry {
namespace {

TEST(MonotonicClockTest, NeverRunsBackwards) {
  const MonotonicClock clock;
  Nanoseconds last = clock.Now();
  for (int i = 0; i < 1000; ++i) {
    const Nanoseconds now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(MonotonicClockTest, InstancesShareTheirEpoch) {
  const Nanoseconds first = MonotonicClock().Now();
  const Nanoseconds second = MonotonicClock().Now();
  EXPECT_GE(second, first);
}

// The sleep is the subject here, and a millisecond long.
TEST(MonotonicClockTest, SleepsUntilTheDeadlineAndNotLess) {
  MonotonicClock clock;
  const Nanoseconds deadline = clock.Now() + 1'000'000;
  clock.SleepUntil(deadline);
  EXPECT_GE(clock.Now(), deadline);
}

TEST(MonotonicClockTest, PastDeadlinesReturnAtOnce) {
  MonotonicClock clock;
  clock.SleepUntil(clock.Now());
  clock.SleepUntil(0);
  clock.SleepUntil(-1);
  clock.SleepUntil(std::numeric_limits<Nanoseconds>::min());
}

TEST(VirtualClockTest, MovesOnlyWhenTold) {
  VirtualClock clock;
  EXPECT_EQ(clock.Now(), 0);
  clock.Advance(5);
  EXPECT_EQ(clock.Now(), 5);
  clock.Advance(0);
  EXPECT_EQ(clock.Now(), 5);
}

TEST(VirtualClockTest, SleepingMovesItToTheDeadlineButNeverBack) {
  VirtualClock clock;
  clock.SleepUntil(100);
  EXPECT_EQ(clock.Now(), 100);
  clock.SleepUntil(50);
  EXPECT_EQ(clock.Now(), 100);
}

TEST(VirtualClockTest, CountsEveryAdvanceOfSeveralThreads) {
  VirtualClock clock;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 1000; ++round) clock.Advance(3);
      });
    }
  }
  EXPECT_EQ(clock.Now(), 4 * 1000 * 3);
}

TEST(VirtualClockDeathTest, DoesNotAdvanceBackwards) {
  VirtualClock clock;
  EXPECT_DEATH(clock.Advance(-1), "backwards");
}

}  // namespace
}  // namespace gantry
