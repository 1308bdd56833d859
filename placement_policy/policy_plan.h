// What the policies of policy.h amount to as a plan of movement, so that they can be simulated
// beside planned ones: where they update each chunk, what they pin, and that blocks move on demand,
// with a fixed look-ahead and by the policy's eviction order.
//
// States that host memory does not hold lie in files: by the policy's word; otherwise, as many as
// must, since with furthest-first the others stay, and with least-recently-used all of them, since
// a cycle longer than the memory finds nothing there.
#ifndef GANTRY_PLACEMENT_POLICY_POLICY_PLAN_H_
#define GANTRY_PLACEMENT_POLICY_POLICY_PLAN_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/policy.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"

namespace gantry {

struct PolicyPlanOptions {
  StaticFractions fractions = {};
  bool wait_for_norm = false;
  int64_t look_ahead = 8;  // the engine's
  int64_t host_buffers = 8;
  MovementPlan::UpdateOrder update_order = MovementPlan::UpdateOrder::kArrival;
};

// `policy` as in PolicyNames(). Errors: those of CreatePolicy, PlacementPolicy::Place, BuildProblem
// and Simulate; kResourceExhausted when host memory and files do not hold the placement.
// REQUIRES: trace.Validate() is OK; the trace has chunks.
absl::StatusOr<MovementDecision> PolicyPlan(std::string_view policy, const Trace& trace,
                                            const Machine& machine,
                                            const PolicyPlanOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_POLICY_PLAN_H_
