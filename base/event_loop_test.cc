#include "base/event_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "base/clock.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

TEST(EventLoopTest, RunsEventsInTimeAndMovesTheClock) {
  VirtualClock clock;
  EventLoop loop({.clock = &clock, .seed = 1});
  EXPECT_FALSE(loop.RunNext());
  std::vector<Nanoseconds> times;
  loop.Schedule(30, [&] { times.push_back(clock.Now()); });
  loop.Schedule(10, [&] {
    times.push_back(clock.Now());
    loop.Schedule(5, [&] { times.push_back(clock.Now()); });
  });
  EXPECT_EQ(loop.pending(), 2);
  while (loop.RunNext()) {
  }
  EXPECT_THAT(times, ElementsAre(10, 15, 30));
  EXPECT_EQ(clock.Now(), 30);
}

// What is overdue runs at once: time never goes back.
TEST(EventLoopTest, KeepsTheTimeWhenAnEventIsOverdue) {
  VirtualClock clock;
  EventLoop loop({.clock = &clock, .seed = 1});
  Nanoseconds ran = -1;
  loop.Schedule(10, [&] { ran = clock.Now(); });
  clock.Advance(100);
  EXPECT_TRUE(loop.RunNext());
  EXPECT_EQ(ran, 100);
}

std::vector<int> OrderOfFive(uint64_t seed) {
  VirtualClock clock;
  EventLoop loop({.clock = &clock, .seed = seed});
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) {
    loop.Schedule(7, [&order, i] { order.push_back(i); });
  }
  while (loop.RunNext()) {
  }
  return order;
}

TEST(EventLoopTest, TheSeedDecidesTheOrderOfEventsDueTogether) {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(OrderOfFive(seed), OrderOfFive(seed));
    orders.insert(OrderOfFive(seed));
  }
  EXPECT_GT(orders.size(), 20u);
}

TEST(EventLoopTest, RunSomeRunsNoneToThree) {
  VirtualClock clock;
  EventLoop loop({.clock = &clock, .seed = 3});
  for (int i = 0; i < 1000; ++i) loop.Schedule(i, [] {});
  std::set<int64_t> counts;
  for (int i = 0; i < 100; ++i) {
    const int64_t before = loop.pending();
    loop.RunSome();
    counts.insert(before - loop.pending());
  }
  EXPECT_THAT(counts, ElementsAre(0, 1, 2, 3));
}

TEST(EventLoopDeathTest, AnEventMayNotRunTheLoop) {
  VirtualClock clock;
  EventLoop loop({.clock = &clock, .seed = 1});
  loop.Schedule(0, [&] { loop.RunNext(); });
  EXPECT_DEATH(loop.RunNext(), "an event runs the loop");
}

}  // namespace
}  // namespace gantry
