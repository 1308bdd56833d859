#include "benches/policies/policy_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/testing/status_matchers.h"
#include "benches/policies/policy_benchmark.h"
#include "benches/suite/report.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/machine_catalog.h"
#include "placement_policy/synthetic_trace.h"
#include "trainer/booster/stop_source.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

PolicySuite Small() {
  PolicySuite suite;
  suite.models = {{.name = "gpt2", .step = BuiltInModel("gpt2").value()}};
  suite.machines = {
      {.name = "rtx4090", .hardware = CatalogMachine("rtx4090").value(), .host_share = 1.25}};
  suite.budgets = {0.02, 0.25, 0.50};
  suite.tokens = {2048};
  for (const std::string_view name : SuitePolicyNames()) suite.policies.emplace_back(name);
  return suite;
}

TEST(PolicySuiteTest, EveryCombinationIsACaseWithANameOfItsOwn) {
  const PolicySuite suite = DefaultPolicySuite(SuiteEffort::kFull);
  const std::vector<PolicyCase> cases = CasesOf(suite);
  EXPECT_EQ(cases.size(), 4 * 12 * 3 * 5);
  std::vector<std::string> names;
  for (const PolicyCase& one : cases) names.push_back(CaseName(suite, one));
  EXPECT_EQ(names.front(), "gpt2/rtx4090/0.02@2048");
  EXPECT_EQ(names.back(), "mixtral-8x7b/gh200+4xgen4/0.50@32768");
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(PolicySuiteTest, ACaseThatDoesNotFitSaysWhy) {
  const PolicySuite suite = Small();
  const auto outcome = RunCase(suite, CasesOf(suite)[0]);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_THAT(outcome->reason, HasSubstr("at once on the device"));
  EXPECT_THAT(outcome->policies, IsEmpty());
}

TEST(PolicySuiteTest, MoreDeviceMemoryIsNoSlower) {
  const PolicySuite suite = Small();
  const std::vector<PolicyCase> cases = CasesOf(suite);
  const auto less = RunCase(suite, cases[1]);
  const auto more = RunCase(suite, cases[2]);
  ASSERT_THAT(less, IsOk());
  ASSERT_THAT(more, IsOk());
  ASSERT_EQ(less->policies.size(), suite.policies.size());
  EXPECT_EQ(less->compute, more->compute);
  EXPECT_GT(less->compute, 0);
  for (size_t i = 0; i < suite.policies.size(); ++i) {
    if (suite.policies[i] != "planned") continue;
    ASSERT_THAT(less->policies[i].reason, IsEmpty());
    EXPECT_GE(less->policies[i].step.elapsed, less->compute);
    EXPECT_LE(more->policies[i].step.elapsed, less->policies[i].step.elapsed);
  }
}

// Parameters alone take an eighth of the state.
TEST(PolicySuiteTest, AHostThatHoldsTooLittleIsAReason) {
  PolicySuite suite = Small();
  suite.machines[0].host_share = 0.10;
  suite.policies = {"planned"};
  const auto outcome = RunCase(suite, CasesOf(suite)[1]);
  ASSERT_THAT(outcome, IsOk());
  const std::string reason =
      outcome->reason.empty() ? outcome->policies.at(0).reason : outcome->reason;
  EXPECT_THAT(reason, Not(IsEmpty()));
}

TEST(PolicySuiteTest, ARecordedStepComesOnceWithItsOwnTokens) {
  PolicySuite suite = Small();
  const auto trace =
      SyntheticTrace(BuiltInModel("gpt2").value(), {.sequences = 3, .sequence_length = 512});
  ASSERT_THAT(trace, IsOk());
  suite.models = {{.name = "mine", .step = *trace}};
  suite.tokens = {1, 2, 3};
  suite.budgets = {0.5};
  const std::vector<PolicyCase> cases = CasesOf(suite);
  ASSERT_EQ(cases.size(), 1);
  EXPECT_EQ(CaseName(suite, cases[0]), "mine/rtx4090/0.50@1536");
  const auto outcome = RunCase(suite, cases[0]);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_THAT(outcome->reason, IsEmpty());
}

TEST(PolicySuiteTest, AMachineThatIsNoneIsAnError) {
  PolicySuite suite = Small();
  suite.machines[0].hardware.rates.host_to_device.bytes_per_second = 0;
  EXPECT_THAT(RunCase(suite, CasesOf(suite)[2]),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host_to_device")));
}

TEST(PolicySuiteTest, ThreadsDoNotChangeWhatIsFound) {
  PolicySuite suite = Small();
  suite.policies = {"planned"};
  std::vector<std::vector<Nanoseconds>> times;
  for (const int threads : {1, 3}) {
    std::vector<int64_t> done;
    const auto results = RunPolicySuite(
        suite, {.threads = threads, .progress = [&done](int64_t count, int64_t all, auto name) {
                  EXPECT_EQ(all, 3);
                  EXPECT_THAT(std::string(name), HasSubstr("gpt2/rtx4090/"));
                  done.push_back(count);
                }});
    ASSERT_THAT(results, IsOk());
    EXPECT_THAT(done, ::testing::ElementsAre(1, 2, 3));
    times.emplace_back();
    for (const CaseOutcome& outcome : results->outcomes) {
      times.back().push_back(outcome.policies.empty() ? 0 : outcome.policies[0].step.elapsed);
    }
    for (const char* name : {"planner/seconds", "simulator/moves"}) {
      const auto row = std::ranges::find(results->summary, name, &BenchRow::name);
      ASSERT_NE(row, results->summary.end()) << name;
      EXPECT_GT(row->value.value_or(0.0), 0.0) << name;
    }
  }
  EXPECT_EQ(times[0], times[1]);
}

TEST(PolicySuiteTest, StopsWhenAsked) {
  StopSource stop;
  stop.Request();
  EXPECT_THAT(RunPolicySuite(Small(), {.threads = 2, .stop = &stop}),
              StatusIs(absl::StatusCode::kCancelled, ::testing::_));
}

}  // namespace
}  // namespace gantry
