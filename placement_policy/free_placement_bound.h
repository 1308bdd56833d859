// A time that no placement of updates can stay below: whatever is updated on the host, on the
// device or in the next forward pass, whichever states stay on the device or lie in files. Compare
// lower_bound.h, whose bound is for one placement.
//
// Why it holds. Let h of the n chunks be updated on the host, and let R slots of states stay on the
// device from each update to the next, on average over steps. Then per step, on average:
//
//   - Up: the states of the other n - h chunks, but for R slots. Beside them, either: the new
//     versions of the h, and of the intervals between uses within a step those that the
//     furthest-end rule (interval_sweep.h) cannot keep in the room less R. Or: of all intervals
//     those that it cannot keep, across the border from a chunk's last use, since there each holds
//     a slot for its gradient, then for its parameter, or fetches one of them. This is so for
//     updates anywhere: on the device the gradient stays until the update, which may create the
//     parameter anew.
//   - Down: the gradients of the h, and the same states, since an update changes them.
//   - Updates on the host take the host's time, those on the device the device's, beside the
//     moments.
//   - Files: states that neither the host nor what the device has beside the blocks in use can hold
//     are read and written each step; likewise of states and parameters together, at any instant.
//
// Every term falls or rises with R, so between two values of R the larger of both ends' smaller
// values is below the truth; h is tried in full. Chunks of different sizes count as the smallest.
// Latencies are left out. `windows` is the path of lower_bound.h on the step in which no version
// ever dies, with all slots for parameters and gradients: every placement moves at least that. It
// has windows across the step border, too, wherever the updates in them run (free_border.h).
#ifndef GANTRY_PLACEMENT_POLICY_FREE_PLACEMENT_BOUND_H_
#define GANTRY_PLACEMENT_POLICY_FREE_PLACEMENT_BOUND_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/trace.h"

namespace gantry {

struct FreePlacementInput {
  struct Chunk {
    int32_t parameter = -1;  // blocks of `step`
    int32_t gradient = -1;
    int64_t state_slots = 0;
    Nanoseconds host_update = 0;
    Nanoseconds device_update = 0;
  };

  // Forward and backward, with parameters and gradients only, and no updates of any kind. File
  // lanes count where has_files.
  MovementProblem step;
  std::vector<Chunk> chunks;  // that are updated here
  bool has_files = false;
  int64_t host_slots = 0;  // for all that lies in host memory; counts where has_files
};

// Of a trace on a machine. Errors: kInvalidArgument for a machine whose device and host are one
// memory, which has no such choice, and as BuildProblem.
// REQUIRES: trace.Validate() is OK.
absl::StatusOr<FreePlacementInput> FreePlacementInputOf(const Trace& trace, const Machine& machine);

struct FreePlacementBound {
  enum class Limit : uint8_t { kLanes, kFiles, kWindows };

  Nanoseconds total = 0;  // the largest of the following
  Limit limit = Limit::kLanes;
  Nanoseconds lanes = 0;    // computing, both copy directions and the host's updates
  Nanoseconds files = 0;    // 0 without
  Nanoseconds windows = 0;  // computing included
  // What the least of `lanes` belongs to. Not a plan.
  int64_t host_updates = 0;          // chunks
  int64_t resident_state_slots = 0;  // rounded down
};
std::string_view Name(FreePlacementBound::Limit limit);

// REQUIRES: input.step.Validate() is OK, without host updates; chunks name its blocks.
FreePlacementBound ComputeFreePlacementBound(const FreePlacementInput& input,
                                             const LowerBoundOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_FREE_PLACEMENT_BOUND_H_
