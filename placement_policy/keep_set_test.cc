// The keep set against every possible one on small problems, and its rules on problems worked out
// by hand.
#include "placement_policy/keep_set.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/testing/random_problem.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

// Moments that read one unit block each.
MovementProblem Reads(const std::vector<int32_t>& blocks, int64_t capacity) {
  MovementProblem problem;
  const int32_t count = *std::ranges::max_element(blocks) + 1;
  problem.block_slots.assign(static_cast<size_t>(count), 1);
  problem.in_file.assign(static_cast<size_t>(count), false);
  problem.host_to_device = problem.device_to_host = {.bytes_per_second = 1'000'000'000};
  for (const int32_t block : blocks) {
    problem.moments.push_back({.first_use = static_cast<int64_t>(problem.uses.size()),
                               .use_count = 1,
                               .capacity = capacity});
    problem.uses.push_back({block, BlockAccess::kRead});
  }
  return problem;
}

std::vector<bool> Choose(const MovementProblem& problem, const KeepSetOptions& options) {
  return ChooseKeepSet(problem, LinkUses(problem), options);
}

// Slots held at each moment by the blocks it uses, gradients that wait to be complete, and kept
// gaps: written once more, from the definition.
std::vector<int64_t> HeldAt(const MovementProblem& problem, const std::vector<bool>& keep) {
  const UseCycle cycle = LinkUses(problem);
  const auto count = static_cast<int64_t>(problem.moments.size());
  std::vector<int64_t> held(problem.moments.size(), 0);
  for (size_t use = 0; use < problem.uses.size(); ++use) {
    const auto block = static_cast<size_t>(problem.uses[use].block);
    const UseCycle::Link& link = cycle.links[use];
    int64_t beyond = 0;  // moments after this one
    if (link.gap == Gap::kSame && keep[use]) beyond = link.distance - 1;
    if (link.gap == Gap::kNone && cycle.update_of[block] >= 0) {
      const auto u = static_cast<size_t>(cycle.update_of[block]);
      beyond = problem.updates[u].complete - link.moment;
    }
    for (int64_t d = 0; d <= beyond; ++d) {
      held[static_cast<size_t>((link.moment + d) % count)] += problem.block_slots[block];
    }
  }
  return held;
}

bool Fits(const MovementProblem& problem, const std::vector<bool>& keep, int64_t reserve) {
  const std::vector<bool> none(keep.size(), false);
  const std::vector<int64_t> least = HeldAt(problem, none);
  const std::vector<int64_t> held = HeldAt(problem, keep);
  for (size_t m = 0; m < held.size(); ++m) {
    if (held[m] > std::max(least[m], problem.moments[m].capacity - reserve)) return false;
  }
  return true;
}

int64_t CountKept(const std::vector<bool>& keep) { return std::ranges::count(keep, true); }

// The most gaps that any set keeps.
int64_t MostKept(const MovementProblem& problem, int64_t reserve) {
  const UseCycle cycle = LinkUses(problem);
  std::vector<size_t> gaps;
  for (size_t use = 0; use < problem.uses.size(); ++use) {
    if (cycle.links[use].gap == Gap::kSame) gaps.push_back(use);
  }
  int64_t most = 0;
  for (uint64_t chosen = 0; chosen < (uint64_t{1} << gaps.size()); ++chosen) {
    if (std::popcount(chosen) <= most) continue;
    std::vector<bool> keep(problem.uses.size(), false);
    for (size_t i = 0; i < gaps.size(); ++i) keep[gaps[i]] = (chosen >> i & 1) != 0;
    if (Fits(problem, keep, reserve)) most = std::popcount(chosen);
  }
  return most;
}

TEST(KeepSetTest, KeepsEverythingThatFits) {
  EXPECT_THAT(Choose(Reads({0, 1, 2}, 3), {.reserve = 0}), ElementsAre(true, true, true));
}

TEST(KeepSetTest, KeepsNothingWithoutRoomBesideTheBlockInUse) {
  EXPECT_THAT(Choose(Reads({0, 1, 2}, 1), {.reserve = 0}), ElementsAre(false, false, false));
  EXPECT_THAT(Choose(Reads({0, 1, 2}, 3), {.reserve = 2}), ElementsAre(false, false, false));
  EXPECT_THAT(Choose(Reads({0, 1, 2}, 3), {.reserve = 9}), ElementsAre(false, false, false));
}

TEST(KeepSetTest, ABlockUsedOnceOccupiesItsWholeCycle) {
  EXPECT_THAT(Choose(Reads({0}, 1), {.reserve = 0}), ElementsAre(true));
  EXPECT_THAT(Choose(Reads({0, 1}, 1), {.reserve = 0}), ElementsAre(false, false));
  EXPECT_EQ(CountKept(Choose(Reads({0, 1, 2, 3}, 2), {.reserve = 0})), 1);
}

// Forward 0 1 2, backward 2 1 0: the end of forward and the end of backward stay.
TEST(KeepSetTest, APalindromeKeepsItsTurns) {
  const std::vector<bool> keep = Choose(Reads({0, 1, 2, 2, 1, 0}, 2), {.reserve = 0});
  EXPECT_TRUE(keep[2]);
  EXPECT_TRUE(keep[5]);
  EXPECT_EQ(CountKept(keep), 4);
}

TEST(KeepSetTest, PinnedGapsComeFirst) {
  // The short gaps of 1 would win otherwise.
  MovementProblem problem = Reads({0, 1, 2, 1, 3, 1, 2, 1}, 2);
  EXPECT_FALSE(Choose(problem, {.reserve = 0})[0]);
  const std::vector<bool> keep =
      Choose(problem, {.reserve = 0, .pinned = {true, false, false, false}});
  EXPECT_TRUE(keep[0]);
  EXPECT_TRUE(Fits(problem, keep, 0));
}

TEST(KeepSetTest, NewVersionsAndConsumedContentAreNeverKept) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const MovementProblem problem = RandomTrainingProblem(RandomTrainingOptions(seed), seed);
    ASSERT_THAT(problem.Validate(), IsOk());
    const UseCycle cycle = LinkUses(problem);
    for (const int64_t reserve : {0, 2}) {
      const std::vector<bool> keep = ChooseKeepSet(problem, cycle, {.reserve = reserve});
      for (size_t use = 0; use < keep.size(); ++use) {
        if (keep[use]) {
          EXPECT_EQ(cycle.links[use].gap, Gap::kSame) << use;
        }
      }
      EXPECT_TRUE(Fits(problem, keep, reserve));
    }
  }
}

// MIN keeps the most gaps of any set when all blocks have one size.
TEST(KeepSetTest, KeepsAsManyAsAnySetOfUnitBlocks) {
  int64_t fewer = 0;
  int64_t all = 0;
  for (const SmallProblem kind : {SmallProblem::kClean, SmallProblem::kCleanVarying,
                                  SmallProblem::kDirtyVarying, SmallProblem::kPalindromeDirty}) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      const MovementProblem problem = RandomSmallProblem(kind, seed);
      if (problem.uses.size() > 14) continue;
      SCOPED_TRACE(StrCat(ToString(kind), ", seed ", seed));
      for (const int64_t reserve : {0, 1}) {
        const std::vector<bool> keep = Choose(problem, {.reserve = reserve});
        ASSERT_TRUE(Fits(problem, keep, reserve));
        const int64_t most = MostKept(problem, reserve);
        ASSERT_LE(CountKept(keep), most);
        ++all;
        fewer += CountKept(keep) < most ? 1 : 0;
      }
    }
  }
  EXPECT_GT(all, 200);
  EXPECT_EQ(fewer, 0);
}

}  // namespace
}  // namespace gantry
