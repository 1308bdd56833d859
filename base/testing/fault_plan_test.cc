#include "base/testing/fault_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace gantry {
namespace {

TEST(FaultPlan, CountsByKindAndStrikesNothingByItself) {
  FaultPlan plan({});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(plan.Next(FaultPoint::kRead).effect, FaultEffect::kNone);
  EXPECT_EQ(plan.Next(FaultPoint::kMap).effect, FaultEffect::kNone);
  EXPECT_EQ(plan.operations(FaultPoint::kRead), 3);
  EXPECT_EQ(plan.operations(FaultPoint::kMap), 1);
  EXPECT_EQ(plan.operations(FaultPoint::kWrite), 0);
  EXPECT_EQ(plan.struck(), 0);
}

TEST(FaultPlan, StrikesTheOperationsNamedAndNoOthers) {
  FaultPlan plan({{.point = FaultPoint::kWrite, .first = 0, .error_number = ENOSPC},
                  {.point = FaultPoint::kRead,
                   .first = 2,
                   .count = 3,
                   .effect = FaultEffect::kFlipBit,
                   .salt = 100}});
  std::vector<FaultEffect> reads;
  std::vector<uint64_t> salts;
  for (int i = 0; i < 7; ++i) {
    const FaultPlan::Verdict verdict = plan.Next(FaultPoint::kRead);
    reads.push_back(verdict.effect);
    salts.push_back(verdict.salt);
  }
  const auto none = FaultEffect::kNone;
  const auto flip = FaultEffect::kFlipBit;
  EXPECT_EQ(reads, (std::vector<FaultEffect>{none, none, flip, flip, flip, none, none}));
  EXPECT_EQ(salts, (std::vector<uint64_t>{0, 0, 100, 101, 102, 0, 0}));
  const FaultPlan::Verdict write = plan.Next(FaultPoint::kWrite);
  EXPECT_EQ(write.effect, FaultEffect::kFail);
  EXPECT_EQ(write.error_number, ENOSPC);
  EXPECT_EQ(plan.Next(FaultPoint::kWrite).effect, none);
  EXPECT_EQ(plan.struck(), 4);
}

TEST(FaultPlan, TheFirstOfOverlappingFaultsDecides) {
  FaultPlan plan({{.point = FaultPoint::kSync, .first = 1, .effect = FaultEffect::kSlow},
                  {.point = FaultPoint::kSync, .first = 0, .count = 2}});
  EXPECT_EQ(plan.Next(FaultPoint::kSync).effect, FaultEffect::kFail);
  EXPECT_EQ(plan.Next(FaultPoint::kSync).effect, FaultEffect::kSlow);
}

TEST(FaultPlan, DescribesWhatReplaysACase) {
  EXPECT_EQ(Describe({.point = FaultPoint::kWrite, .first = 7, .error_number = ENOSPC}),
            "write 7 fails with ENOSPC");
  EXPECT_EQ(Describe({.point = FaultPoint::kRead,
                      .first = 3,
                      .count = 3,
                      .effect = FaultEffect::kShort,
                      .salt = 9}),
            "read 3 to 5 is short (salt 9)");
  for (int point = 0; point < kFaultPointCount; ++point) {
    EXPECT_FALSE(Name(static_cast<FaultPoint>(point)).empty()) << point;
  }
  for (int effect = 0; effect < kFaultEffectCount; ++effect) {
    EXPECT_FALSE(Name(static_cast<FaultEffect>(effect)).empty()) << effect;
  }
}

TEST(FaultPlan, CountsFromSeveralThreads) {
  FaultPlan plan({{.point = FaultPoint::kCopy, .first = 100, .count = 50}});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) static_cast<void>(plan.Next(FaultPoint::kCopy));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(plan.operations(FaultPoint::kCopy), 300);
  EXPECT_EQ(plan.struck(), 50);
}

TEST(FaultPlanDeathTest, RefusesAFaultOfNothing) {
  EXPECT_DEATH(FaultPlan({{.point = FaultPoint::kRead, .count = 0}}), "read 0 fails");
  EXPECT_DEATH(FaultPlan({{.point = FaultPoint::kRead, .first = -1}}), "read -1 fails");
}

}  // namespace
}  // namespace gantry
