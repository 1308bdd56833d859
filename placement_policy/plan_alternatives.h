// The best of several ways to run the same training step: orders in which micro-batches go through
// the layers, what is computed again, chunk sizes. Each is a trace and a machine; the planner plans
// each, at first with coarse chunks, where a search costs little. What comes near the best of those
// is planned as it is, from the placement that was found, and the fastest is chosen.
//
//   GANTRY_ASSIGN_OR_RETURN(BestPlan best, PlanAlternatives({.count = 2, .make = [&](int64_t i,
//       int64_t coarseness) { return InputOf(orders[i], chunk_elements * coarseness); }}, {}));
//
// Deterministic, as the planner; of equals the first is chosen.
#ifndef GANTRY_PLACEMENT_POLICY_PLAN_ALTERNATIVES_H_
#define GANTRY_PLACEMENT_POLICY_PLAN_ALTERNATIVES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/planner.h"
#include "placement_policy/trace.h"

namespace gantry {

struct PlanInput {
  Trace trace;
  Machine machine;
};

struct PlanAlternativesInput {
  int64_t count = 0;
  // The alternative of this number with chunks `coarseness` times as large; the same whenever it is
  // asked for. kResourceExhausted: it does not fit. With a coarseness of 1 any other error ends the
  // comparison.
  std::function<absl::StatusOr<PlanInput>(int64_t number, int64_t coarseness)> make;
  // Whether a plan may be chosen, beside that the planner found it; empty: every one.
  // kResourceExhausted: no; any other error ends the comparison.
  std::function<absl::Status(const PlanInput&, const MovementDecision&)> allowed = {};
};

struct TriedAlternative {
  absl::Status status;  // why it does not fit; kFailedPrecondition: it is known to take longer
  Nanoseconds predicted = 0;  // of a step
  // No plan with the same chunks, as coarse as they were, takes less; 0: not known.
  Nanoseconds bound = 0;
  bool in_full = false;  // planned as it is; otherwise with coarse chunks
};

struct BestPlan {
  int64_t chosen = 0;
  PlanInput input;
  MovementDecision decision;
  std::vector<TriedAlternative> tried;  // all, by number
};

// Errors: when none fits, that of the first alternative; kInvalidArgument for no alternatives;
// those of `make`, `allowed` and the planner.
absl::StatusOr<BestPlan> PlanAlternatives(const PlanAlternativesInput& alternatives,
                                          const PlannerOptions& options);

// How long a step with the placement of `decision`, made for `from`, would take when its chunks
// have another size. Errors: kResourceExhausted when it does not fit.
absl::StatusOr<Nanoseconds> TimeWithOtherChunks(const MovementDecision& decision,
                                                const PlanInput& from, const PlanInput& to,
                                                const PlannerOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_PLAN_ALTERNATIVES_H_
