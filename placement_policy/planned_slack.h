// Slots that a keep set leaves free, moment by moment.
#ifndef GANTRY_PLACEMENT_POLICY_PLANNED_SLACK_H_
#define GANTRY_PLACEMENT_POLICY_PLANNED_SLACK_H_

#include <cstdint>
#include <vector>

#include "placement_policy/movement_problem.h"

namespace gantry {

// By moment: its capacity less the blocks it uses, gradients that are about to be complete, and
// what is kept between uses. Negative where the keep set is too large. What is fetched ahead must
// fit into this at every moment until its use.
// REQUIRES: problem.Validate() is OK; cycle is LinkUses(problem); keep is by use.
std::vector<int64_t> PlannedSlack(const MovementProblem& problem, const UseCycle& cycle,
                                  const std::vector<bool>& keep);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_PLANNED_SLACK_H_
