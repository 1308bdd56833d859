// Runs a policy suite on all processors, with progress. The suite that is run by default.
#ifndef GANTRY_BENCHES_POLICIES_POLICY_BENCHMARK_H_
#define GANTRY_BENCHES_POLICIES_POLICY_BENCHMARK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "benches/policies/policy_suite.h"
#include "benches/suite/report.h"
#include "trainer/booster/stop_source.h"

namespace gantry {

inline constexpr std::string_view kPoliciesBenchmark = "policies";

enum class SuiteEffort {
  // GPT-2 124M, Llama-2 7B, Llama-3 70B and Mixtral 8x7B; RTX 4090, A100, H100 and GH200, each with
  // ample host memory, and with a quarter of the training state and one or four drives; 2, 5, 10,
  // 25
  // and 50 % of the state on the device; 2 k, 8 k and 32 k tokens a step; all policies; 1,000
  // random
  // problems of each kind.
  kFull,
  // Two models and machines, two budgets, 8 k tokens, 50 random problems: seconds.
  kQuick,
};
PolicySuite DefaultPolicySuite(SuiteEffort effort);

struct PolicyBenchmarkOptions {
  int threads = 0;                   // 0: all processors
  const StopSource* stop = nullptr;  // null: runs to its end
  // From any thread, one call at a time; done is never above all.
  std::function<void(int64_t done, int64_t all, std::string_view name)> progress = {};
};

struct PolicyResults {
  std::vector<CaseOutcome> outcomes;  // in the order of CasesOf
  std::vector<BenchRow> summary;
};

// Blocks, for minutes with the full suite. Errors: kInvalidArgument naming what cannot be run;
// kCancelled when stopped.
absl::StatusOr<PolicyResults> RunPolicySuite(const PolicySuite& suite,
                                             const PolicyBenchmarkOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_POLICIES_POLICY_BENCHMARK_H_
