// The timeline of a step as a movement decision has it, by simulating it once more.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_SIMULATED_TIMELINE_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_SIMULATED_TIMELINE_H_

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/trace.h"

namespace gantry {

struct SimulatedTimelineInput {
  // Outlive the call. The decision is of this trace and machine; the trace has chunks.
  const Trace* trace;
  const Machine* machine;
  const MovementDecision* decision;
  Bytes file_bytes = Bytes(0);  // that the file tier has; 0: not known
};

// The last step but one of the simulation, of which all that is under way is known. On the device
// each block counts from the start of its fetch, or of the moment that creates it, until it is
// dropped, and as a buffer while a lane carries it; activations that cannot leave count as the
// moment that computes, or both its neighbours, need them. On the host and in files lies what has
// its home there (tier_bytes.h); gradients and buffers come and go. Moves are arranged.
// Errors: those of Simulate.
absl::StatusOr<StepTimeline> SimulatedTimeline(const SimulatedTimelineInput& input);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_SIMULATED_TIMELINE_H_
