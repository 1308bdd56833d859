// The fault campaign of CI: every fault at every operation of some runs, and at spread operations
// of many. `./dev test --soak` runs a larger one with fresh seeds.
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "tests/simulation/campaign.h"
#include "tests/simulation/fault_case.h"
#include "tests/simulation/scenario.h"

namespace gantry {
namespace {

constexpr int64_t kCasesLeast = 2'000;
constexpr int kWorkers = 2;
// Every fault at every operation: a device with copy lanes and files, and a static placement.
constexpr uint64_t kWholeScenarios[] = {8, 24};
constexpr uint64_t kScenarios = 16;        // at spread operations
constexpr uint64_t kPlannedScenarios = 2;  // likewise
constexpr uint64_t kStoreRuns = 12;        // likewise
constexpr int64_t kPerFault = 3;

TEST(FaultCampaign, EveryFaultEndsInTheRightBitsOrInAnErrorAndTheRightBits) {
  CaseRunner runner;
  std::vector<FaultCase> cases;
  const auto add = [&](Subject subject, uint64_t seed, int64_t per_fault) {
    const auto more = AllCases(runner, {subject, seed, 0}, per_fault);
    ASSERT_THAT(more, IsOk());
    cases.insert(cases.end(), more->begin(), more->end());
  };
  for (const uint64_t seed : kWholeScenarios) add(Subject::kEngine, seed, 0);
  const size_t whole = cases.size();
  for (uint64_t seed = 100; seed < 100 + kScenarios; ++seed) {
    add(Subject::kEngine, seed, kPerFault);
  }
  for (uint64_t seed = kPlannedSeeds; seed < kPlannedSeeds + kPlannedScenarios; ++seed) {
    add(Subject::kEngine, seed, kPerFault);
  }
  for (uint64_t seed = 0; seed < kStoreRuns; ++seed) add(Subject::kStore, seed, kPerFault);
  const CampaignResult result =
      RunCampaign({.cases = static_cast<int64_t>(cases.size()),
                   .make = [&](CaseRunner&, int64_t index) -> absl::StatusOr<FaultCase> {
                     return cases[static_cast<size_t>(index)];
                   },
                   .workers = kWorkers});
  std::cout << "fault campaign: " << result.ToString() << "; " << whole
            << " of them are every fault at every operation of " << std::size(kWholeScenarios)
            << " runs\n";
  for (const std::string& failure : result.failures) ADD_FAILURE() << failure;
  EXPECT_EQ(result.cases(), static_cast<int64_t>(cases.size()));
  EXPECT_GE(result.cases(), kCasesLeast);
  // The same order of events is the same run, so every fault is met.
  EXPECT_EQ(result.outcomes[static_cast<size_t>(CaseOutcome::kNotReached)], 0);
  EXPECT_GT(result.outcomes[static_cast<size_t>(CaseOutcome::kRight)], 100);
  EXPECT_GT(result.outcomes[static_cast<size_t>(CaseOutcome::kResumed)], 500);
}

TEST(FaultCampaign, CasesReplay) {
  const FaultCase written{.scenario_seed = 7,
                          .order_seed = 3,
                          .fault = {.point = FaultPoint::kWrite,
                                    .first = 11,
                                    .count = 2,
                                    .effect = FaultEffect::kShort,
                                    .error_number = 28,
                                    .salt = 9}};
  const auto read = ParseCase(Format(written));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(Format(*read), Format(written));
  EXPECT_EQ(Format(written), "0:7:3:2:11:2:2:28:9");
  for (const char* bad :
       {"", "1:2:3", "0:1:0:99:0:1:1:5:0", "0:1:0:2:0:1:99:5:0", "2:1:0:2:0:1:1:5:0"}) {
    EXPECT_THAT(ParseCase(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

// Cases that the campaign found, and what they found.
TEST(FaultCampaign, WhatWasFoundStaysMended) {
  const std::string_view found[] = {
      // The second part of a block could not be unmapped; dropping it again met the first.
      "0:1796068564000151:4:11:53:1:1:12:0",
      // Any case of this scenario: the healthy run got stuck.
      "0:1796069802000702:0:2:3:1:1:28:0",
  };
  const CampaignResult result =
      RunCampaign({.cases = std::ssize(found),
                   .make = [&](CaseRunner&, int64_t index) { return ParseCase(found[index]); },
                   .workers = 1,
                   .cases_together = 1});
  EXPECT_TRUE(result.failures.empty()) << result.failures[0];
  EXPECT_EQ(result.outcomes[static_cast<size_t>(CaseOutcome::kResumed)], std::ssize(found));
}

// The campaign itself: a case that dies, hangs or is wrong is that case's failure.
TEST(FaultCampaign, ADeathIsTheFailureOfItsCase) {
  const CampaignResult result =
      RunCampaign({.first = 20,
                   .cases = 12,
                   .make = [](CaseRunner& runner, int64_t index) -> absl::StatusOr<FaultCase> {
                     if (index < 20 || index >= 32) return absl::InternalError("not asked for");
                     if (index == 23) std::abort();
                     if (index == 25) return absl::InternalError("no such case");
                     return RandomCase(runner, 5, index);
                   },
                   .workers = 2,
                   .cases_together = 4});
  EXPECT_EQ(result.died, 1);
  EXPECT_EQ(result.cases(), 12);
  EXPECT_EQ(result.outcomes[static_cast<size_t>(CaseOutcome::kWrong)], 1);
  ASSERT_EQ(result.failures.size(), 2u);
  const std::string both = result.failures[0] + result.failures[1];
  EXPECT_NE(both.find("died of signal 6"), std::string::npos) << both;
  EXPECT_NE(both.find("case 23"), std::string::npos) << both;
  EXPECT_NE(both.find("no such case"), std::string::npos) << both;
}

TEST(FaultCampaign, ComplainsAboutPoorErrors) {
  EXPECT_EQ(ComplaintAbout(DataLoss("read of 4096 bytes at offset 0: EIO")), "");
  EXPECT_EQ(ComplaintAbout(Internal("mapping slot#1 at page 3: ENOMEM")), "");
  EXPECT_NE(ComplaintAbout(Internal("something went wrong")), "");
  EXPECT_NE(ComplaintAbout(DataLoss("bad")), "");
  EXPECT_NE(ComplaintAbout(FailedPrecondition("Seal was called twice")), "");
}

}  // namespace
}  // namespace gantry
