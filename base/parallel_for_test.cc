#include "base/parallel_for.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using absl::StatusCode;
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

std::unique_ptr<ThreadTeam> MakeTeam(int threads) {
  auto team = ThreadTeam::Create({.threads = threads});
  EXPECT_THAT(team, IsOk());
  return *std::move(team);
}

Ranges ExpectedRanges(ThreadTeam::Range range) {
  Ranges ranges;
  for (int64_t begin = 0; begin < range.count; begin += range.grain) {
    ranges.emplace_back(begin, std::min(begin + range.grain, range.count));
  }
  return ranges;
}

// In the order of the calls.
Ranges CalledRanges(ThreadTeam& team, ThreadTeam::Range range) {
  Mutex mutex;
  Ranges ranges;
  team.For(range, [&](int64_t begin, int64_t end) {
    MutexLock lock(mutex);
    ranges.emplace_back(begin, end);
  });
  return ranges;
}

// A machine with fewer cores than a team has threads runs it on fewer: nothing here needs all.
class ThreadTeamTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadTeamTest, KnowsItsSize) { EXPECT_EQ(MakeTeam(GetParam())->threads(), GetParam()); }

TEST_P(ThreadTeamTest, CallsExactlyTheGrainSizedRanges) {
  const auto team = MakeTeam(GetParam());
  for (const int64_t grain : {1, 2, 7, 64}) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, grain - 1, grain, grain + 1, 10 * grain,
                                10 * grain + 1, 11 * grain - 1, int64_t{1000}}) {
      Ranges ranges = CalledRanges(*team, {.count = count, .grain = grain});
      std::sort(ranges.begin(), ranges.end());
      EXPECT_EQ(ranges, ExpectedRanges({.count = count, .grain = grain}))
          << "count " << count << ", grain " << grain;
    }
  }
}

TEST_P(ThreadTeamTest, HugeCountsAndGrainsDoNotOverflow) {
  const auto team = MakeTeam(GetParam());
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(CalledRanges(*team, {.count = 5, .grain = kMax}), (Ranges{{0, 5}}));
  EXPECT_EQ(CalledRanges(*team, {.count = kMax, .grain = kMax}), (Ranges{{0, kMax}}));
  Ranges ranges = CalledRanges(*team, {.count = kMax, .grain = kMax - 1});
  std::sort(ranges.begin(), ranges.end());
  EXPECT_EQ(ranges, (Ranges{{0, kMax - 1}, {kMax - 1, kMax}}));
}

TEST_P(ThreadTeamTest, ReturnsAfterAllWritesAreVisible) {
  const auto team = MakeTeam(GetParam());
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> values(1000, -1);  // not atomic: TSan sees a missing barrier
    team->For({.count = 1000, .grain = 3}, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] = i;
    });
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i);
  }
}

TEST_P(ThreadTeamTest, NestedCallsRunEverything) {
  const auto team = MakeTeam(GetParam());
  std::atomic<int64_t> sum = 0;
  team->For({.count = 8, .grain = 1}, [&](int64_t a, int64_t) {
    team->For({.count = 8, .grain = 3}, [&](int64_t begin, int64_t end) {
      team->For({.count = end - begin, .grain = 1},
                [&](int64_t c, int64_t) { sum += (a + 1) * (begin + c + 1); });
    });
  });
  EXPECT_EQ(sum, 36 * 36);
}

// A body may hold a lock or use per-thread scratch while it waits for a nested loop. Several
// callers, so that there are threads to steal inner tasks and foreign outer tasks to be tempted by.
TEST_P(ThreadTeamTest, AThreadThatWaitsForANestedLoopRunsNothingElse) {
  const auto team = MakeTeam(GetParam());
  static thread_local int depth = 0;
  std::atomic<int> violations = 0;
  const auto outer = [&](int64_t, int64_t) {
    if (depth != 0) ++violations;
    ++depth;
    team->For({.count = 4, .grain = 1}, [](int64_t, int64_t) { std::this_thread::yield(); });
    --depth;
  };
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&] {
        for (int round = 0; round < 20; ++round) team->For({.count = 16, .grain = 1}, outer);
      });
    }
  }
  EXPECT_EQ(violations, 0);
}

TEST_P(ThreadTeamTest, SeveralThreadsMayCallAtOnce) {
  const auto team = MakeTeam(GetParam());
  constexpr int kCallers = 3;
  std::vector<int64_t> sums(kCallers, 0);
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < kCallers; ++caller) {
      callers.emplace_back([&, caller] {
        for (int round = 0; round < 30; ++round) {
          std::atomic<int64_t> sum = 0;
          team->For({.count = 100, .grain = 7}, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) sum += i * (caller + 1);
          });
          sums[static_cast<size_t>(caller)] += sum;
        }
      });
    }
  }
  for (int caller = 0; caller < kCallers; ++caller) {
    EXPECT_EQ(sums[static_cast<size_t>(caller)], 30 * 4950 * (caller + 1));
  }
}

TEST_P(ThreadTeamTest, NeverRunsMoreBodiesAtOnceThanItHasThreads) {
  const auto team = MakeTeam(GetParam());
  std::atomic<int> running = 0;
  std::atomic<int> running_max = 0;
  team->For({.count = 2000, .grain = 1}, [&](int64_t, int64_t) {
    const int now = ++running;
    int seen = running_max;
    while (seen < now && !running_max.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::yield();
    --running;
  });
  EXPECT_GE(running_max, 1);
  EXPECT_LE(running_max, GetParam());
}

TEST_P(ThreadTeamTest, IdleTeamsCanBeDestroyedAndSeveralCanLive) {
  const auto first = MakeTeam(GetParam());
  const auto second = MakeTeam(GetParam());
  static_cast<void>(MakeTeam(GetParam()));
  EXPECT_EQ(CalledRanges(*first, {.count = 5, .grain = 5}).size(), 1u);
  EXPECT_EQ(CalledRanges(*second, {.count = 5, .grain = 1}).size(), 5u);
}

TEST_P(ThreadTeamTest, TakesBodiesByReference) {
  struct Body {
    std::atomic<int64_t> sum = 0;  // not copyable
    void operator()(int64_t begin, int64_t end) { sum += end - begin; }
  };
  Body body;
  MakeTeam(GetParam())->For({.count = 10, .grain = 4}, body);
  EXPECT_EQ(body.sum, 10);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadTeamTest, ::testing::Values(1, 2, 5),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(ThreadTeamCreateTest, ASingleThreadRunsInlineInOrder) {
  const auto team = MakeTeam(1);
  const std::thread::id self = std::this_thread::get_id();
  int64_t next = 0;
  team->For({.count = 100, .grain = 9}, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    EXPECT_EQ(begin, next);
    next = end;
  });
  EXPECT_EQ(next, 100);
}

TEST(ThreadTeamCreateTest, RefusesSizesOutsideItsLimits) {
  EXPECT_THAT(ThreadTeam::Create({.threads = 0}), StatusIs(StatusCode::kInvalidArgument, "not 0"));
  EXPECT_THAT(ThreadTeam::Create({.threads = -1}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(ThreadTeam::Create({.threads = 1025}),
              StatusIs(StatusCode::kInvalidArgument, "not 1025"));
}

class ThreadTeamDeathTest : public ThreadTeamTest {
 protected:
  ThreadTeamDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_P(ThreadTeamDeathTest, BadRangesAbort) {
  const auto team = MakeTeam(GetParam());
  const auto nothing = [](int64_t, int64_t) {};
  EXPECT_DEATH(team->For({.count = 1, .grain = 0}, nothing), "grain >= 1");
  EXPECT_DEATH(team->For({.count = -1, .grain = 1}, nothing), "count >= 0");
}

TEST_P(ThreadTeamDeathTest, ThrowingBodiesEndTheProcess) {
  const auto team = MakeTeam(GetParam());
  const auto thrower = [](int64_t, int64_t) { throw std::runtime_error("from a body"); };
  EXPECT_DEATH(team->For({.count = 4, .grain = 1}, thrower), "from a body");
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadTeamDeathTest, ::testing::Values(1, 2, 5),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace gantry
