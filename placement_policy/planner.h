// The `planned` policy: from one step's trace and a machine to a movement plan close to the best
// possible. It chooses where each chunk is updated (host, device, or device in the next forward),
// whose states stay on the device, whose lie in files, and what of the rest stays between its uses;
// everything else follows from the rules of the simulator, which the engine shares.
//
// Method (research: "reserve-MIN" and the joint search over placements): the number of chunks whose
// states stay on the device (the first ones of the forward pass, whose gradients come last and
// which are needed first), the number whose states stream through it, and how many of those are
// updated in the next forward pass, start from what the lanes' totals allow and climb from there;
// each candidate is simulated. Other ways to move (on demand, with any look-ahead) are candidates
// too, so the plan is never worse than they are.
//
// Deterministic: the same trace, machine and options give the same plan and the same hash.
#ifndef GANTRY_PLACEMENT_POLICY_PLANNER_H_
#define GANTRY_PLACEMENT_POLICY_PLANNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "placement_policy/machine.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {

struct PlannerOptions {
  bool wait_for_norm = false;
  // Simulations of placements, and then of ways to move at the best of them.
  int64_t placements_max = 120;
  // Only this place for updates; the search is then over movement alone.
  bool host_updates_only = false;
  // What an executor can do: updates in the next forward pass; ways to move other than keep sets.
  bool next_forward = true;
  bool keep_sets_only = false;
};

// The shape of a placement: how many chunks, in the order of their first use, are what.
struct PlacementShape {
  int64_t resident = 0;      // states stay on the device
  int64_t streamed = 0;      // of the others: updated on the device, spread evenly
  int64_t next_forward = 0;  // of the streamed: updated in the next forward pass
  int64_t in_files = 0;      // of those not resident: states in files, spread evenly
  int64_t host_buffers = 0;

  friend bool operator==(const PlacementShape&, const PlacementShape&) = default;
};

struct MovementDecision {
  PlacementShape shape;
  TrainingChoices choices;
  std::vector<bool> resident;  // by trace chunk: its states stay on the device
  MovementPlan movement;       // for `training`
  TrainingProblem training;
  SimulatedStep predicted;
  int64_t placements_tried = 0;
  uint64_t hash = 0;  // of everything that is executed
};

// Errors: kResourceExhausted when no placement fits, naming the tier, what it needs and has;
// kInvalidArgument for a trace or a machine that is none (a lane without bandwidth, say).
absl::StatusOr<MovementDecision> PlanMovement(const Trace& trace, const Machine& machine,
                                              const PlannerOptions& options);

// One placement of the given shape, with its best movement of the plain keep set. For comparisons.
absl::StatusOr<MovementDecision> EvaluateShape(const Trace& trace, const Machine& machine,
                                               const PlannerOptions& options,
                                               const PlacementShape& shape);

// The most chunks whose states can be in host memory beside everything that must be there, when
// `resident` chunks keep their states on the device; negative: not even the rest fits.
struct HostRoom {
  int64_t slots_needed = 0;  // without any states: parameters, gradients on their way, buffers
  int64_t states = 0;        // slots left for states
};
HostRoom HostRoomOf(const Trace& trace, const Machine& machine, const PlacementShape& shape);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_PLANNER_H_
