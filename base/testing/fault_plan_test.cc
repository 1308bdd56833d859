#include "base/testing/fault_plan.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"

namespace gantry {
namespace {

TEST(FaultPlan, CountsByKindAndStrikesNothingByItself) {
  FaultPlan plan({});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(plan.Next(FaultPoint::kRequest).effect, FaultEffect::kNone);
  EXPECT_EQ(plan.Next(FaultPoint::kMap).effect, FaultEffect::kNone);
  EXPECT_EQ(plan.operations(FaultPoint::kRequest), 3);
  EXPECT_EQ(plan.operations(FaultPoint::kMap), 1);
  EXPECT_EQ(plan.operations(FaultPoint::kCopy), 0);
  EXPECT_EQ(plan.operations(FaultPoint::kWrite), 0);
  EXPECT_EQ(plan.struck(), 0);
}

TEST(FaultPlan, StrikesTheOperationsNamedAndNoOthers) {
  FaultPlan plan({{.point = FaultPoint::kMap, .first = 0, .error_number = ENOMEM},
                  {.point = FaultPoint::kRequest,
                   .first = 2,
                   .count = 3,
                   .effect = FaultEffect::kSlow,
                   .salt = 100}});
  std::vector<FaultEffect> reads;
  std::vector<uint64_t> salts;
  for (int i = 0; i < 7; ++i) {
    const FaultPlan::Verdict verdict = plan.Next(FaultPoint::kRequest);
    reads.push_back(verdict.effect);
    salts.push_back(verdict.salt);
  }
  const auto none = FaultEffect::kNone;
  const auto slow = FaultEffect::kSlow;
  EXPECT_EQ(reads, (std::vector<FaultEffect>{none, none, slow, slow, slow, none, none}));
  EXPECT_EQ(salts, (std::vector<uint64_t>{0, 0, 100, 101, 102, 0, 0}));
  const FaultPlan::Verdict map = plan.Next(FaultPoint::kMap);
  EXPECT_EQ(map.effect, FaultEffect::kFail);
  EXPECT_EQ(map.error_number, ENOMEM);
  EXPECT_EQ(plan.Next(FaultPoint::kMap).effect, none);
  EXPECT_EQ(plan.struck(), 4);
}

TEST(FaultPlan, TheFirstOfOverlappingFaultsDecides) {
  FaultPlan plan({{.point = FaultPoint::kCopy, .first = 1, .effect = FaultEffect::kSlow},
                  {.point = FaultPoint::kCopy, .first = 0, .count = 2},
                  {.point = FaultPoint::kSync, .first = 1, .error_number = ENOSPC},
                  {.point = FaultPoint::kSync, .first = 0, .count = 2}});
  EXPECT_EQ(plan.Next(FaultPoint::kCopy).effect, FaultEffect::kFail);
  EXPECT_EQ(plan.Next(FaultPoint::kCopy).effect, FaultEffect::kSlow);
  EXPECT_EQ(plan.files()->Sync(-1, FileCalls::SyncKind::kAll), -EIO);
  EXPECT_EQ(plan.files()->Sync(-1, FileCalls::SyncKind::kAll), -ENOSPC);
  EXPECT_EQ(plan.struck(), 4);
}

// Each effect on a file of four blocks of 64 KiB, at the second write or read.
TEST(FaultPlan, FileCallsSufferWhatIsPlanned) {
  constexpr int64_t kBlock = 65536;
  const std::vector<std::byte> ones(kBlock, std::byte{1});
  struct Outcome {
    std::vector<int64_t> results;
    std::vector<std::byte> file;
  };
  const auto run = [&](const Fault& fault) {
    FaultPlan plan({fault});
    const FileDescriptor file(
        plan.files()->Open(AT_FDCWD, ::testing::TempDir(), O_TMPFILE | O_RDWR, 0600));
    EXPECT_TRUE(file.valid());
    Outcome outcome;
    for (int64_t block = 0; block < 4; ++block) {
      outcome.results.push_back(plan.files()->WriteAt(file.get(), ones, block * kBlock));
    }
    for (int64_t block = 0; block < 4; ++block) {
      std::vector<std::byte> bytes(kBlock);
      outcome.results.push_back(plan.files()->ReadAt(file.get(), bytes, block * kBlock));
      outcome.file.insert(outcome.file.end(), bytes.begin(), bytes.end());
    }
    EXPECT_EQ(plan.struck(), fault.effect == FaultEffect::kNone ? 0 : 1);
    EXPECT_EQ(plan.operations(FaultPoint::kWrite), 4);
    EXPECT_EQ(plan.operations(FaultPoint::kRead), 4);
    EXPECT_EQ(plan.operations(FaultPoint::kOpen), 1);
    return outcome;
  };
  const auto wrong = [](const Outcome& outcome) {
    return std::count_if(outcome.file.begin(), outcome.file.end(),
                         [](std::byte b) { return b != std::byte{1}; });
  };
  using enum FaultPoint;
  using enum FaultEffect;
  EXPECT_EQ(wrong(run({.point = kWrite, .first = 1, .effect = kNone})), 0);
  EXPECT_EQ(run({.point = kWrite, .first = 1, .error_number = ENOSPC}).results[1], -ENOSPC);
  EXPECT_EQ(run({.point = kRead, .first = 1}).results[5], -EIO);
  const Outcome brief = run({.point = kWrite, .first = 1, .effect = kShort, .salt = 3});
  EXPECT_EQ(brief.results[1], 3 * 4096);
  EXPECT_EQ(wrong(brief), kBlock - 3 * 4096);
  EXPECT_EQ(run({.point = kRead, .first = 1, .effect = kShort}).results[5], 0);
  EXPECT_EQ(wrong(run({.point = kWrite, .first = 1, .effect = kFlipBit, .salt = 99})), 1);
  EXPECT_EQ(wrong(run({.point = kRead, .first = 1, .effect = kFlipBit, .salt = 99})), 1);
  EXPECT_EQ(wrong(run({.point = kWrite, .first = 1, .effect = kLoseWrite})), kBlock);
  // Lands on the third block, which is then written over.
  EXPECT_EQ(wrong(run({.point = kWrite, .first = 1, .effect = kMisdirect})), kBlock);
  const Outcome cut = run({.point = kRead, .first = 1, .effect = kTruncate, .salt = 1});
  EXPECT_EQ(cut.results, (std::vector<int64_t>{kBlock, kBlock, kBlock, kBlock, kBlock, 0, 0, 0}));
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
  EXPECT_DEATH(FaultPlan({{.point = FaultPoint::kRead, .effect = FaultEffect::kLoseWrite}}),
               "read 0 is lost");
  EXPECT_DEATH(FaultPlan({{.point = FaultPoint::kMap, .effect = FaultEffect::kSlow}}), "map 0");
  FaultPlan plan({});
  EXPECT_DEATH(static_cast<void>(plan.Next(FaultPoint::kRead)), "file calls go through");
}

}  // namespace
}  // namespace gantry
