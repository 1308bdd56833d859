// The fastest movement plan that can be found for one problem: what stays, how many slots are left
// free, and how early content is fetched. Each candidate is simulated.
//
// Candidates: the keep set (keep_set.h) under several reserves; moving on demand, by both eviction
// orders and several look-aheads; and for problems with few uses local searches from some of these,
// which flip kept gaps or limit how early a fetch may start, one or two such changes at a time.
//
// Deterministic: equal arguments give equal plans.
#ifndef GANTRY_PLACEMENT_POLICY_MOVEMENT_SEARCH_H_
#define GANTRY_PLACEMENT_POLICY_MOVEMENT_SEARCH_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/simulator.h"

namespace gantry {

struct MovementSearchOptions {
  std::vector<bool> pinned = {};  // by block: its gaps are kept first; empty: none
  // No plan can be faster: the search ends when it has one within 0.02 % of this. 0: unknown.
  Nanoseconds bound = 0;
  // Whether a plan may be chosen, beside that it works; empty: every one.
  std::function<bool(const MovementPlan&)> allowed = {};
  // For problems with at most so many uses there is a local search.
  int64_t local_search_uses_max = 96;
  int64_t simulations_max = 4000;
  // Also moving on demand.
  bool on_demand = true;
  // Whether updates that free a buffer may come first; if so that is tried both ways.
  bool free_buffers_first = false;
};

struct FoundMovement {
  MovementPlan plan;
  SimulatedStep step;
  int64_t reserve = 0;  // of the keep set that it is, or was changed from
  int64_t simulations = 0;
};

// Slots left free; these are right almost everywhere.
struct MovementReserves {
  int64_t keep = 2;   // beside the keep set
  int64_t write = 2;  // for what is on its way out

  friend bool operator==(const MovementReserves&, const MovementReserves&) = default;
};
// The plan of the keep set with these reserves.
MovementPlan PlainMovement(const MovementProblem& problem, const UseCycle& cycle,
                           std::vector<bool> pinned, const MovementReserves& reserves);
// What a step may take after which a simulation goes on: it may become faster as steps repeat.
Nanoseconds GiveUpAbove(Nanoseconds best);
// Whether states of host updates pass buffers, so that MovementPlan::free_buffers_first matters.
bool UpdatesUseBuffers(const MovementProblem& problem);

// Errors: those of Simulate, for the first candidate, when none works; kResourceExhausted when none
// is allowed. REQUIRES: problem.Validate() is OK.
absl::StatusOr<FoundMovement> SearchMovement(const MovementProblem& problem,
                                             const MovementSearchOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_MOVEMENT_SEARCH_H_
