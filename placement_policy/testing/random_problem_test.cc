// Every generated problem is valid, the same arguments give the same problem, and each kind has
// what its name says.
#include "placement_policy/testing/random_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/testing/status_matchers.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

bool HasAccess(const MovementProblem& problem, BlockAccess access) {
  return std::ranges::any_of(problem.uses,
                             [&](const BlockUse& use) { return use.access == access; });
}

bool CapacityVaries(const MovementProblem& problem) {
  return std::ranges::any_of(problem.moments, [&](const MovementProblem::Moment& moment) {
    return moment.capacity != problem.moments[0].capacity;
  });
}

TEST(RandomProblem, SmallOnesAreValidAndOfTheirKind) {
  for (const SmallProblem kind : kSmallProblems) {
    SCOPED_TRACE(std::string(ToString(kind)));
    int64_t written = 0;
    int64_t created = 0;
    int64_t consumed = 0;
    int64_t varying = 0;
    int64_t large = 0;
    for (uint64_t seed = 0; seed < 500; ++seed) {
      const MovementProblem problem = RandomSmallProblem(kind, seed);
      ASSERT_THAT(problem.Validate(), IsOk()) << "seed " << seed;
      EXPECT_GE(problem.moments.size(), 6U);
      EXPECT_LE(problem.moments.size(), 12U);
      EXPECT_TRUE(problem.updates.empty());
      written += HasAccess(problem, BlockAccess::kWrite) ? 1 : 0;
      created += HasAccess(problem, BlockAccess::kCreate) ? 1 : 0;
      consumed += HasAccess(problem, BlockAccess::kConsume) ? 1 : 0;
      varying += CapacityVaries(problem) ? 1 : 0;
      large += std::ranges::max(problem.block_slots) > 1 ? 1 : 0;
    }
    const bool clean = kind == SmallProblem::kClean || kind == SmallProblem::kCleanVarying;
    const bool mixed = kind == SmallProblem::kDirtyVarying || kind == SmallProblem::kDirtySizes;
    const bool sizes = kind == SmallProblem::kDirtySizes || kind == SmallProblem::kPalindromeSizes;
    EXPECT_EQ(written > 400, !clean);
    EXPECT_EQ(created > 100, mixed);
    EXPECT_EQ(consumed > 50, mixed);
    EXPECT_EQ(large > 300, sizes);
    EXPECT_EQ(large > 0, sizes);
    EXPECT_EQ(varying > 250, kind != SmallProblem::kClean);
  }
}

// A consumed block is empty: what follows must create it.
TEST(RandomProblem, AConsumedBlockIsCreatedAgain) {
  for (const SmallProblem kind : {SmallProblem::kDirtyVarying, SmallProblem::kDirtySizes}) {
    for (uint64_t seed = 0; seed < 500; ++seed) {
      const MovementProblem problem = RandomSmallProblem(kind, seed);
      const UseCycle cycle = LinkUses(problem);
      for (size_t use = 0; use < problem.uses.size(); ++use) {
        if (problem.uses[use].access != BlockAccess::kConsume) continue;
        const auto next = static_cast<size_t>(cycle.links[use].next);
        EXPECT_EQ(problem.uses[next].access, BlockAccess::kCreate) << "seed " << seed;
      }
    }
  }
}

TEST(RandomProblem, TrainingStepsAreValid) {
  int64_t norms = 0;
  int64_t files = 0;
  int64_t device_updates = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const TrainingProblemOptions options = RandomTrainingOptions(seed);
    const MovementProblem problem = RandomTrainingProblem(options, seed);
    ASSERT_THAT(problem.Validate(), IsOk()) << "seed " << seed;
    norms += problem.wait_for_norm ? 1 : 0;
    files += problem.host_buffers > 0 ? 1 : 0;
    device_updates += HasAccess(problem, BlockAccess::kConsume) ? 1 : 0;
  }
  EXPECT_GT(norms, 100);
  EXPECT_GT(files, 200);
  EXPECT_GT(device_updates, 200);
}

TEST(RandomProblem, TheLargeOneHasTheSizeOfSeventyBillionParameters) {
  const MovementProblem problem = RandomTrainingProblem(LargeTrainingOptions(), 1);
  ASSERT_THAT(problem.Validate(), IsOk());
  EXPECT_NEAR(static_cast<double>(problem.moments.size()), 2500, 150);
  EXPECT_NEAR(static_cast<double>(problem.uses.size()), 7400, 500);
  EXPECT_NEAR(static_cast<double>(problem.updates.size()), 1052, 10);
}

TEST(RandomProblem, TheSameSeedGivesTheSameProblem) {
  const MovementProblem a = RandomTrainingProblem(RandomTrainingOptions(7), 7);
  const MovementProblem b = RandomTrainingProblem(RandomTrainingOptions(7), 7);
  ASSERT_EQ(a.moments.size(), b.moments.size());
  for (size_t m = 0; m < a.moments.size(); ++m) {
    EXPECT_EQ(a.moments[m].compute, b.moments[m].compute);
    EXPECT_EQ(a.moments[m].capacity, b.moments[m].capacity);
  }
}

}  // namespace
}  // namespace gantry
