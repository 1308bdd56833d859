// What a policy decides about a training step, with what it comes to when simulated: where each
// chunk is updated, which states and parameters lie in files, what becomes of saved activations,
// and how blocks move. Plain data.
#ifndef GANTRY_PLACEMENT_POLICY_MOVEMENT_DECISION_H_
#define GANTRY_PLACEMENT_POLICY_MOVEMENT_DECISION_H_

#include <cstdint>
#include <vector>

#include "placement_policy/machine.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {

// The shape of a placement: how many chunks, in the order of their first use, are what.
struct PlacementShape {
  int64_t resident = 0;  // states stay on the device
  // Of the resident: parameters stay there, too, and need no host memory.
  int64_t parameters_resident = 0;
  // Of the others: updated on the device, spread evenly among the first so many percent of them,
  // or as many as that takes.
  int64_t streamed = 0;
  int64_t streamed_within = 100;
  int64_t next_forward = 0;  // of the streamed: updated in the next forward pass
  int64_t in_files = 0;      // of those not resident: states in files, spread evenly
  int64_t host_buffers = 0;
  // Chunks whose parameters lie in files, too, spread evenly; only when all states do.
  int64_t parameters_in_files = 0;
  // Of the saved activations: those whose slots are dearest to keep leave, and of the rest those
  // that are cheapest to compute again are.
  int64_t offloaded = 0;
  int64_t recomputed = 0;

  friend bool operator==(const PlacementShape&, const PlacementShape&) = default;
};

struct MovementDecision {
  PlacementShape shape;  // counts only, for a policy that places by other rules
  TrainingChoices choices;
  std::vector<bool> resident;  // by trace chunk: its states stay on the device
  MovementPlan movement;       // for `training`
  TrainingProblem training;
  SimulatedStep predicted;
  int64_t placements_tried = 0;
  uint64_t hash = 0;  // of everything that is executed
};
uint64_t HashOf(const MovementDecision& decision);

// What host memory must hold beside the states of chunks, and how many slots it has for those.
struct HostRoom {
  int64_t slots_needed = 0;  // parameters, gradients on their way, buffers, activations
  int64_t states = 0;        // negative: not even the rest fits
};
HostRoom HostRoomOf(const Trace& trace, const Machine& machine, const PlacementShape& shape);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_MOVEMENT_DECISION_H_
