#include "benches/policies/random_problems.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/policies/policy_summary.h"
#include "placement_policy/exhaustive_optimum.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/movement_search.h"
#include "placement_policy/testing/random_problem.h"

namespace gantry {
namespace {

// A mean step need not be a whole number of the problem's nanoseconds, so it is simulated with each
// of them as a microsecond.
constexpr int64_t kFiner = 1000;

Lane Finer(Lane lane) {
  lane.bytes_per_second = (lane.bytes_per_second + kFiner - 1) / kFiner;
  return lane;
}

MovementProblem Finer(MovementProblem problem) {
  for (MovementProblem::Moment& moment : problem.moments) moment.compute *= kFiner;
  problem.host_to_device = Finer(problem.host_to_device);
  problem.device_to_host = Finer(problem.device_to_host);
  return problem;
}

bool HasMixedSizes(SmallProblem kind) {
  return kind == SmallProblem::kDirtySizes || kind == SmallProblem::kPalindromeSizes;
}

absl::StatusOr<double> Solve(SmallProblem kind, uint64_t seed) {
  const MovementProblem problem = RandomSmallProblem(kind, seed);
  const auto failure = [&](const absl::Status& status) {
    return Internal("problem of kind ", ToString(kind), ", seed ", seed, ": ",
                    FromAbsl(status.message()));
  };
  const absl::StatusOr<ExhaustiveOptimum> optimum = FindExhaustiveOptimum(problem, {});
  if (!optimum.ok()) return failure(optimum.status());
  const absl::StatusOr<FoundMovement> found = SearchMovement(
      Finer(problem), {.bound = optimum->time * kFiner / std::max<int64_t>(optimum->steps, 1)});
  if (!found.ok()) return failure(found.status());
  const double best =
      static_cast<double>(optimum->time * kFiner) / static_cast<double>(optimum->steps);
  if (best <= 0.0) return 1.0;
  return static_cast<double>(found->step.elapsed) / best;
}

}  // namespace

absl::StatusOr<RandomRatios> SolveRandomProblems(const RandomProblemsOptions& options,
                                                 ThreadTeam& team) {
  const auto kinds = static_cast<int64_t>(kSmallProblems.size());
  std::vector<absl::StatusOr<double>> ratios(static_cast<size_t>(kinds * options.per_kind),
                                             absl::CancelledError("stopped"));
  // Neighbours are of different kinds, so that the work of ranges is alike.
  team.For(
      {.count = static_cast<int64_t>(ratios.size()), .grain = 16}, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          if (options.stop != nullptr && options.stop->requested()) return;
          ratios[static_cast<size_t>(i)] = Solve(kSmallProblems[static_cast<size_t>(i % kinds)],
                                                 options.seed + static_cast<uint64_t>(i / kinds));
        }
      });
  RandomRatios result;
  for (size_t i = 0; i < ratios.size(); ++i) {
    GANTRY_RETURN_IF_ERROR(ratios[i].status());
    const SmallProblem kind = kSmallProblems[i % kSmallProblems.size()];
    (HasMixedSizes(kind) ? result.mixed_sizes : result.unit_sizes).push_back(*ratios[i]);
  }
  return result;
}

}  // namespace gantry
