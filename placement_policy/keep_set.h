// Which blocks stay on the device between their uses: Belady's MIN over the cyclic step, under a
// capacity that varies with the activations (research: "reserve-MIN"). Whenever more is kept than
// fits, what is used furthest in the future goes. For blocks of equal size this is the choice with
// the fewest fetches.
#ifndef GANTRY_PLACEMENT_POLICY_KEEP_SET_H_
#define GANTRY_PLACEMENT_POLICY_KEEP_SET_H_

#include <cstdint>
#include <vector>

#include "placement_policy/movement_problem.h"

namespace gantry {

struct KeepSetOptions {
  // Slots left free at every moment for blocks on their way in and out.
  int64_t reserve = 2;
  // Gaps of these blocks are kept first, before any other (a resident set); empty: none.
  std::vector<bool> pinned = {};
};

// By use: whether the block stays until its next use. Only gaps of kind kSame are ever kept.
// REQUIRES: problem.Validate() is OK; cycle is LinkUses(problem).
std::vector<bool> ChooseKeepSet(const MovementProblem& problem, const UseCycle& cycle,
                                const KeepSetOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_KEEP_SET_H_
