#include "base/wall_clock.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace gantry {
namespace {

// Between the year this was written in and 2100.
TEST(WallClockTest, CountsFrom1970) {
  constexpr Nanoseconds kYear = 31'556'952'000'000'000;
  EXPECT_GT(WallClock().Now(), 55 * kYear);
  EXPECT_LT(WallClock().Now(), 130 * kYear);
}

TEST(WallClockTest, PastDeadlinesReturnAtOnce) {
  WallClock clock;
  clock.SleepUntil(clock.Now());
  clock.SleepUntil(0);
  clock.SleepUntil(-1);
}

// The sleep is the subject here, and a millisecond long.
TEST(WallClockTest, SleepsUntilTheDeadline) {
  WallClock clock;
  const Nanoseconds deadline = clock.Now() + 1'000'000;
  clock.SleepUntil(deadline);
  EXPECT_GE(clock.Now(), deadline);
}

}  // namespace
}  // namespace gantry
