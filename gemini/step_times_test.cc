#include "gemini/step_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace gantry {
namespace {

TEST(RecentTimesTest, MedianOfTheLast) {
  RecentTimes times(2);
  EXPECT_EQ(times.Median(0), 0);
  const Random random({.seed = 5, .stream = 0});
  std::vector<Nanoseconds> all;
  for (uint64_t i = 0; i < 100; ++i) {
    all.push_back(random.Below(1000, i));
    times.Add(0, all.back());
    const size_t count = std::min<size_t>(all.size(), RecentTimes::kKept);
    std::vector<Nanoseconds> last(all.end() - static_cast<std::ptrdiff_t>(count), all.end());
    std::sort(last.begin(), last.end());
    ASSERT_EQ(times.Median(0), last[(count - 1) / 2]) << i;
  }
  EXPECT_EQ(times.Median(1), 0);
}

TEST(StepTimerTest, MomentsReachFromLeaseToLease) {
  StepTimer timer(3);
  timer.Begin(100);
  timer.OnMoment(0, 105);  // what comes before is the first moment's
  timer.OnMoment(1, 130);
  timer.OnMoment(2, 131);
  timer.End(171);
  EXPECT_EQ(timer.Median(0), 30);
  EXPECT_EQ(timer.Median(1), 1);
  EXPECT_EQ(timer.Median(2), 40);
}

TEST(StepTimerTest, OtherStepsDoNotCount) {
  StepTimer timer(3);
  const auto step = [&](const std::vector<int64_t>& moments) {
    timer.Begin(0);
    Nanoseconds busy = 0;
    for (const int64_t moment : moments) timer.OnMoment(moment, busy += 10);
    timer.End(busy + 10);
    return timer.Median(1) > 0;
  };
  EXPECT_FALSE(step({}));
  EXPECT_FALSE(step({0, 1}));         // one is missing
  EXPECT_FALSE(step({0, 2}));         // left out
  EXPECT_FALSE(step({0, 0, 1, 2}));   // another lease in between
  EXPECT_FALSE(step({-1, 0, 1, 2}));  // before
  EXPECT_FALSE(step({0, 1, 2, 2}));   // behind
  timer.Begin(0);
  timer.OnMoment(0, 5);  // given up: no End
  EXPECT_TRUE(step({0, 1, 2}));
  EXPECT_EQ(timer.Median(0), 20);
}

TEST(StepTimerTest, StepsWithoutMoments) {
  StepTimer timer(0);
  timer.Begin(0);
  timer.End(10);
  timer.Begin(0);
  timer.OnMoment(-1, 5);
  timer.OnMoment(0, 5);
  timer.End(10);
}

}  // namespace
}  // namespace gantry
