// The `planned` policy: from one step's trace and a machine to a movement plan close to the best
// possible. It chooses where each chunk is updated (host, device, or device in the next forward),
// whose states stay on the device, whose lie in files, and what of the rest stays between its uses;
// everything else follows from the rules of the simulator, which the engine shares.
//
// Method (research: "reserve-MIN" and the joint search over placements): the number of chunks whose
// states stay on the device (the first ones of the forward pass, whose gradients come last and
// which are needed first), the number whose states stream through it, and how many of those are
// updated in the next forward pass, start from what the lanes' totals allow and climb from there;
// each candidate is simulated. Saved activations stay, leave, or are computed again, by number too.
// What the other policies come to (policy_plan.h) is simulated as well, and so are other ways to
// move at the best placement, so the plan is never worse than they are.
//
// Deterministic: the same trace, machine and options give the same plan and the same hash.
#ifndef GANTRY_PLACEMENT_POLICY_PLANNER_H_
#define GANTRY_PLACEMENT_POLICY_PLANNER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/trace.h"

namespace gantry {

struct PlannerOptions {
  bool wait_for_norm = false;
  int64_t placements_max = 200;  // simulated, before ways to move at the best of them
  // Only this place for updates; the search is then over movement alone.
  bool host_updates_only = false;
  // What an executor can do: updates in the next forward pass; ways to move other than keep sets;
  // updates that free a host buffer before others.
  bool next_forward = true;
  bool keep_sets_only = false;
  bool free_buffers_first = true;
  // Saved activations may leave the device or be computed again; or only one of the two.
  bool move_activations = true;
  bool may_leave = true;
  bool may_compute_again = true;
  // Each of them may leave, where the plan says so: it is decided that none is computed again.
  bool all_may_leave = false;
  // A placement to begin from, beside the planner's own; that of a similar step, say.
  std::optional<PlacementShape> start = std::nullopt;
};

// Errors: kResourceExhausted when no placement fits, naming the tier, what it needs and has;
// kInvalidArgument for a trace or a machine that is none (a lane without bandwidth, say).
absl::StatusOr<MovementDecision> PlanMovement(const Trace& trace, const Machine& machine,
                                              const PlannerOptions& options);

// One placement of the given shape, moved by the plain keep set. For comparisons.
absl::StatusOr<MovementDecision> EvaluateShape(const Trace& trace, const Machine& machine,
                                               const PlannerOptions& options,
                                               const PlacementShape& shape);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_PLANNER_H_
