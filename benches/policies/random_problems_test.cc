#include "benches/policies/random_problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/parallel_for.h"
#include "base/testing/status_matchers.h"
#include "benches/policies/policy_summary.h"
#include "trainer/booster/stop_source.h"

namespace gantry {
namespace {

std::unique_ptr<ThreadTeam> Team(int threads) {
  return ThreadTeam::Create({.threads = threads}).value();
}

TEST(RandomProblemsTest, NoPlanIsBetterThanTheOptimum) {
  const auto team = Team(2);
  const auto ratios = SolveRandomProblems({.per_kind = 20, .seed = 7}, *team);
  ASSERT_THAT(ratios, IsOk());
  EXPECT_EQ(ratios->unit_sizes.size(), 80);
  EXPECT_EQ(ratios->mixed_sizes.size(), 40);
  for (const std::vector<double>* list : {&ratios->unit_sizes, &ratios->mixed_sizes}) {
    for (const double ratio : *list) {
      EXPECT_GE(ratio, 1.0 - 1e-9);
      EXPECT_LE(ratio, 1.5);
    }
  }
}

TEST(RandomProblemsTest, ThreadsDoNotChangeTheRatios) {
  const auto one = Team(1);
  const auto three = Team(3);
  const auto a = SolveRandomProblems({.per_kind = 4}, *one);
  const auto b = SolveRandomProblems({.per_kind = 4}, *three);
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_EQ(a->unit_sizes, b->unit_sizes);
  EXPECT_EQ(a->mixed_sizes, b->mixed_sizes);
}

TEST(RandomProblemsTest, NoneAreNone) {
  const auto team = Team(1);
  const auto ratios = SolveRandomProblems({.per_kind = 0}, *team);
  ASSERT_THAT(ratios, IsOk());
  EXPECT_TRUE(ratios->unit_sizes.empty());
  EXPECT_TRUE(ratios->mixed_sizes.empty());
}

TEST(RandomProblemsTest, StopsWhenAsked) {
  StopSource stop;
  stop.Request();
  const auto team = Team(1);
  EXPECT_THAT(SolveRandomProblems({.per_kind = 1, .stop = &stop}, *team),
              StatusIs(absl::StatusCode::kCancelled, "stopped"));
}

}  // namespace
}  // namespace gantry
