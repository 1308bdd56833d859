// The least memory with which a step can be run at all, however slowly. Pure functions.
#ifndef GANTRY_PLACEMENT_POLICY_LEAST_BUDGETS_H_
#define GANTRY_PLACEMENT_POLICY_LEAST_BUDGETS_H_

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "placement_policy/machine.h"
#include "placement_policy/planner.h"
#include "placement_policy/trace.h"

namespace gantry {

struct LeastBudgets {
  Bytes device = Bytes(0);  // with ample memory below it
  // Beside the least device. 0 in a unified machine.
  Bytes host_with_files = Bytes(0);
  Bytes host_without_files = Bytes(0);
  Bytes files = Bytes(0);  // with the least host: all that lasts from step to step
};

// Simulates a few steps. Only the rates of `machine` and whether it is unified count. Errors: as
// EvaluateShape, for a trace or rates with which no step runs. REQUIRES: the trace has chunks.
absl::StatusOr<LeastBudgets> FindLeastBudgets(const Trace& trace, const Machine& machine,
                                              const PlannerOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_LEAST_BUDGETS_H_
