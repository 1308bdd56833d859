// Small random problems beside their exhaustive optimum: how close the search for movement comes to
// the best there is, where that can be known.
#ifndef GANTRY_BENCHES_POLICIES_RANDOM_PROBLEMS_H_
#define GANTRY_BENCHES_POLICIES_RANDOM_PROBLEMS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/parallel_for.h"
#include "benches/policies/policy_summary.h"
#include "trainer/booster/stop_source.h"

namespace gantry {

struct RandomProblemsOptions {
  int64_t per_kind = 0;  // problems of each of placement_policy/testing/random_problem.h's kinds
  uint64_t seed = 1;     // problem i of a kind has this seed plus i
  const StopSource* stop = nullptr;
};

// Blocks, milliseconds a problem. Errors: kCancelled when stopped; kInternal, naming kind and seed,
// for a problem that the search or the exhaustive optimum cannot solve.
absl::StatusOr<RandomRatios> SolveRandomProblems(const RandomProblemsOptions& options,
                                                 ThreadTeam& team);

}  // namespace gantry

#endif  // GANTRY_BENCHES_POLICIES_RANDOM_PROBLEMS_H_
