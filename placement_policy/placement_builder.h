// From the shape of a placement to the placement: which chunks, in the order of their first use,
// are what, checked against host memory. Internal to the planner and policy plans.
#ifndef GANTRY_PLACEMENT_POLICY_PLACEMENT_BUILDER_H_
#define GANTRY_PLACEMENT_POLICY_PLACEMENT_BUILDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "placement_policy/activation_order.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"

namespace gantry {

class PlacementBuilder {
 public:
  // Keeps references to both.
  PlacementBuilder(const Trace& trace, const Machine& machine, bool wait_for_norm);

  int64_t updated() const { return static_cast<int64_t>(order_.size()); }
  int64_t states_max() const { return states_max_; }  // slots of one chunk
  int64_t activations() const { return static_cast<int64_t>(activations_.offload.size()); }

  // Clamps the shape's counts and sets those that follow from the rest: states and parameters in
  // files. Errors: kResourceExhausted when host memory and files do not hold it.
  absl::StatusOr<PlacementShape> Complete(PlacementShape shape) const;

  // The placement and its problem, without any movement. Errors: as Complete and BuildProblem.
  absl::StatusOr<MovementDecision> Place(const PlacementShape& wanted) const;

  // By block of the problem: states that stay on the device.
  static std::vector<bool> PinnedBlocks(const MovementDecision& decision);

  // States that are to stay on the device, but leave it at some moment under `movement`, need host
  // memory too. Errors: kResourceExhausted when there is not enough.
  absl::Status CheckHost(const MovementDecision& decision, const MovementPlan& movement) const;

  // What the lanes carry at least with this shape, and computing, in seconds.
  double LaneSeconds(const PlacementShape& shape) const;
  // The most chunks whose states, without or with their parameters, fit the device beside what
  // every moment needs.
  int64_t ResidentMax() const { return ResidentMaxOf(states_max_); }
  int64_t ResidentMaxWithParameters() const { return ResidentMaxOf(states_max_ + parameters_max_); }

 private:
  int64_t ResidentMaxOf(int64_t slots) const;

  const Trace& trace_;
  const Machine& machine_;
  const bool wait_for_norm_;
  std::vector<int32_t> order_;  // updated chunks by the first use of their parameter
  ActivationOrder activations_;
  int64_t states_max_ = 0;
  int64_t parameters_max_ = 0;  // slots of one chunk
  double compute_seconds_ = 0;
  int64_t room_least_ = 0;  // device slots beside what a moment uses
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_PLACEMENT_BUILDER_H_
