#include "benches/policies/policy_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "benches/policies/policy_page.h"
#include "benches/policies/policy_suite.h"
#include "benches/suite/report.h"
#include "placement_policy/model_shape.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr Nanoseconds kSecond = 1'000'000'000;

PolicySuite Suite() {
  PolicySuite suite;
  suite.models = {{.name = "gpt2", .step = ModelShape()}, {.name = "big<1>", .step = ModelShape()}};
  suite.machines = {{.name = "m", .hardware = {}, .group = "ample"}};
  suite.budgets = {0.10, 0.25};
  suite.tokens = {8192};
  suite.policies = {"lru", "planned"};
  return suite;
}

PolicyOutcome Outcome(size_t policy, double seconds, double bound) {
  PolicyOutcome outcome{.policy = policy};
  outcome.step.elapsed = std::llround(seconds * 1e9);
  outcome.step.steady = true;
  outcome.bound = std::llround(bound * 1e9);
  return outcome;
}

CaseOutcome Case(size_t model, size_t budget, std::vector<PolicyOutcome> policies) {
  return {.the_case = {.model = model, .machine = 0, .budget = budget, .tokens = 8192},
          .compute = kSecond,
          .policies = std::move(policies)};
}

const BenchRow* Find(const std::vector<BenchRow>& rows, const std::string& name) {
  for (const BenchRow& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

TEST(PolicySummaryTest, RatiosAreValueOverBoundAndLeaveOutGpt2) {
  std::vector<CaseOutcome> outcomes = {
      Case(0, 0, {Outcome(1, 3.0, 2.0)}),
      Case(1, 0, {Outcome(0, 8.0, 2.0), Outcome(1, 2.0, 2.0)}),
      Case(1, 1, {Outcome(0, 4.0, 2.0), Outcome(1, 4.5, 2.0)}),
  };
  outcomes[1].free_bound = kSecond;
  const std::vector<BenchRow> rows = SummaryRows(Suite(), outcomes);
  EXPECT_NEAR(*Find(rows, "window/geomean")->value, std::sqrt(1.0 * 2.25), 1e-9);
  EXPECT_DOUBLE_EQ(*Find(rows, "window/worst")->value, 2.25);
  EXPECT_THAT(Find(rows, "window/worst")->note, HasSubstr("big<1>/m/0.25@8192"));
  EXPECT_DOUBLE_EQ(*Find(rows, "free/worst")->value, 2.0);
  EXPECT_DOUBLE_EQ(*Find(rows, "gpt2/worst")->value, 1.5);
  EXPECT_EQ(Find(rows, "gpt2/free_worst"), nullptr);
  EXPECT_DOUBLE_EQ(*Find(rows, "window/ample/worst")->value, 2.25);
  EXPECT_DOUBLE_EQ(*Find(rows, "best_other/worst")->value, 4.5 / 4.0);
  EXPECT_THAT(Find(rows, "best_other/worst")->note, HasSubstr("beside lru"));
}

TEST(PolicySummaryTest, NothingToCompareGivesNoRows) {
  EXPECT_THAT(SummaryRows(Suite(), {}), IsEmpty());
  CaseOutcome none = Case(1, 0, {});
  none.reason = "too big";
  EXPECT_THAT(SummaryRows(Suite(), std::vector{none}), IsEmpty());
  EXPECT_THAT(RandomRows({}), IsEmpty());
}

TEST(PolicySummaryTest, RowsNameTheirCaseAndPolicy) {
  CaseOutcome whole = Case(1, 0, {Outcome(0, 3.0, 2.0), Outcome(1, 2.0, 0.0)});
  whole.policies[1].reason = "no room";
  CaseOutcome none = Case(0, 1, {});
  none.reason = "too big";
  const std::vector<BenchRow> rows = CaseRows(Suite(), std::vector{whole, none});
  ASSERT_EQ(rows.size(), 4);
  const BenchRow* const lru = Find(rows, "big<1>/m/0.10@8192/lru");
  ASSERT_NE(lru, nullptr);
  EXPECT_DOUBLE_EQ(*lru->value, 3.0);
  EXPECT_DOUBLE_EQ(*lru->bound, 2.0);
  EXPECT_DOUBLE_EQ(*lru->ratio, 1.5);
  const BenchRow* const planned = Find(rows, "big<1>/m/0.10@8192/planned");
  EXPECT_FALSE(planned->value.has_value());
  EXPECT_EQ(planned->note, "no plan: no room");
  for (const char* name : {"gpt2/m/0.25@8192/lru", "gpt2/m/0.25@8192/planned"}) {
    ASSERT_NE(Find(rows, name), nullptr) << name;
    EXPECT_EQ(Find(rows, name)->note, "does not fit: too big");
  }
}

TEST(PolicySummaryTest, QuantilesAreValuesThatOccur) {
  RandomRatios ratios;
  for (int i = 1; i <= 200; ++i) ratios.unit_sizes.push_back(1.0 + i / 1000.0);
  ratios.mixed_sizes = {7.0};
  const std::vector<BenchRow> rows = RandomRows(ratios);
  EXPECT_DOUBLE_EQ(*Find(rows, "random/median")->value, 1.101);
  EXPECT_DOUBLE_EQ(*Find(rows, "random/p99")->value, 1.198);
  EXPECT_DOUBLE_EQ(*Find(rows, "random/p99_mixed")->value, 7.0);
}

TEST(PolicySummaryTest, TextShowsPoliciesSideBySide) {
  CaseOutcome none = Case(0, 0, {});
  none.reason = "too big";
  const std::vector<CaseOutcome> outcomes = {
      none, Case(1, 0, {Outcome(0, 8.0, 2.0), Outcome(1, 2.0, 2.0)})};
  const std::vector<BenchRow> summary = SummaryRows(Suite(), outcomes);
  const std::string text = PoliciesText(Suite(), outcomes, summary);
  EXPECT_THAT(text, HasSubstr("4.000"));  // lru beside the best
  EXPECT_THAT(text, HasSubstr("gpt2/m/0.10@8192: too big"));
  EXPECT_THAT(text, HasSubstr("2 s  50%"));
  EXPECT_THAT(text, HasSubstr("window/worst"));
}

TEST(PolicyPageTest, IsOnePageWithoutNetworkOrScript) {
  const std::vector<CaseOutcome> outcomes = {
      Case(1, 0, {Outcome(0, 8.0, 2.0), Outcome(1, 2.0, 2.0)}),
      Case(1, 1, {Outcome(0, 4.0, 2.0), Outcome(1, 1.0, 1.0)})};
  const std::string page = PoliciesPage(Suite(), outcomes, SummaryRows(Suite(), outcomes));
  EXPECT_EQ(page.find("<!DOCTYPE html>"), 0);
  for (const char* part : {"window/geomean", "<svg", "big&lt;1&gt;", "prefers-color-scheme: dark",
                           "width=device-width", "lru, 10 %: 8 s, computing 12 % of it"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  for (const char* part : {"http", "src=", "<script", "<link", "@import", "url(", "big<1>"}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
}

}  // namespace
}  // namespace gantry
