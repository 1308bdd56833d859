#include "benches/policies/policy_benchmark.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/policies/planner_speed.h"
#include "benches/policies/policy_suite.h"
#include "benches/policies/policy_summary.h"
#include "benches/policies/random_problems.h"
#include "benches/suite/report.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/hardware.h"
#include "placement_policy/machine_catalog.h"
#include "placement_policy/model_shape.h"

namespace gantry {
namespace {

// What is kept for a step, in shares of it: parameters, states, and room for what is on its way.
constexpr double kAmpleHost = 1.25;
constexpr double kSmallHost = 0.25;
constexpr std::string_view kAmple = "ample";
constexpr std::string_view kOneDrive = "1_drive";
constexpr std::string_view kFourDrives = "4_drives";
constexpr int64_t kRandomProblems = 1000;
constexpr int64_t kRandomProblemsQuick = 50;

SuiteModel BuiltIn(std::string_view name) {
  absl::StatusOr<ModelShape> shape = BuiltInModel(name);
  GANTRY_CHECK_OK(shape.status());
  return {.name = std::string(name), .step = *std::move(shape)};
}

SuiteMachine Catalog(const std::string& name, double host_share, std::string_view group) {
  absl::StatusOr<Hardware> hardware = CatalogMachine(name);
  GANTRY_CHECK_OK(hardware.status());
  return {.name = name,
          .hardware = *std::move(hardware),
          .host_share = host_share,
          .group = std::string(group)};
}

class Run {
 public:
  Run(const PolicySuite& suite, const PolicyBenchmarkOptions& options)
      : suite_(suite),
        options_(options),
        cases_(CasesOf(suite)),
        results_(cases_.size(), absl::CancelledError("stopped")) {}

  absl::StatusOr<PolicyResults> Finish() {
    int threads = options_.threads;
    if (threads == 0) threads = std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
    GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadTeam> team,
                            ThreadTeam::Create({.threads = threads}));
    team->For({.count = static_cast<int64_t>(cases_.size()), .grain = 1},
              [this](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) RunOne(static_cast<size_t>(i));
              });
    PolicyResults results;
    for (absl::StatusOr<CaseOutcome>& result : results_) {
      GANTRY_RETURN_IF_ERROR(result.status());
      results.outcomes.push_back(*std::move(result));
    }
    results.summary = SummaryRows(suite_, results.outcomes);
    GANTRY_ASSIGN_OR_RETURN(
        const RandomRatios ratios,
        SolveRandomProblems({.per_kind = suite_.random_problems_per_kind, .stop = options_.stop},
                            *team));
    for (BenchRow& row : RandomRows(ratios)) results.summary.push_back(std::move(row));
    GANTRY_ASSIGN_OR_RETURN(std::vector<BenchRow> speed,
                            SpeedRows(suite_, results.outcomes, MonotonicClock()));
    for (BenchRow& row : speed) results.summary.push_back(std::move(row));
    return results;
  }

 private:
  void RunOne(size_t i) {
    if (options_.stop != nullptr && options_.stop->requested()) stopped_ = true;
    if (stopped_) return;
    results_[i] = RunCase(suite_, cases_[i]);
    const MutexLock lock(mutex_);
    ++done_;
    if (options_.progress) {
      options_.progress(done_, static_cast<int64_t>(cases_.size()), CaseName(suite_, cases_[i]));
    }
  }

  const PolicySuite& suite_;
  const PolicyBenchmarkOptions& options_;
  const std::vector<PolicyCase> cases_;
  std::vector<absl::StatusOr<CaseOutcome>> results_;  // each written by one thread
  std::atomic<bool> stopped_ = false;
  Mutex mutex_;  // held while progress is told
  int64_t done_ GANTRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace

PolicySuite DefaultPolicySuite(SuiteEffort effort) {
  PolicySuite suite;
  for (const std::string_view name : SuitePolicyNames()) suite.policies.emplace_back(name);
  if (effort == SuiteEffort::kQuick) {
    suite.models = {BuiltIn("gpt2"), BuiltIn("llama2-7b")};
    suite.machines = {Catalog("rtx4090", kAmpleHost, kAmple),
                      Catalog("a100-80+1xgen4", kSmallHost, kOneDrive)};
    suite.budgets = {0.10, 0.25};
    suite.tokens = {8192};
    suite.random_problems_per_kind = kRandomProblemsQuick;
    return suite;
  }
  for (const char* name : {"gpt2", "llama2-7b", "llama3-70b", "mixtral-8x7b"}) {
    suite.models.push_back(BuiltIn(name));
  }
  for (const char* name : {"rtx4090", "a100-80", "h100", "gh200"}) {
    suite.machines.push_back(Catalog(name, kAmpleHost, kAmple));
    suite.machines.push_back(Catalog(StrCat(name, "+1xgen4"), kSmallHost, kOneDrive));
    suite.machines.push_back(Catalog(StrCat(name, "+4xgen4"), kSmallHost, kFourDrives));
  }
  suite.budgets = {0.02, 0.05, 0.10, 0.25, 0.50};
  suite.tokens = {2048, 8192, 32768};
  suite.random_problems_per_kind = kRandomProblems;
  return suite;
}

absl::StatusOr<PolicyResults> RunPolicySuite(const PolicySuite& suite,
                                             const PolicyBenchmarkOptions& options) {
  return Run(suite, options).Finish();
}

}  // namespace gantry
