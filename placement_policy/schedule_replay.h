// Checks a recorded schedule against the rules of movement_problem.h. Shares no code with the
// simulator: it looks at the events alone, in any order, and at intervals instead of states.
//
// What is checked:
//
//   - Moments follow each other without overlap, in order, each for its time; every transfer takes
//     what its lane needs for its bytes, and the transfers of one lane (or of two that share one)
//     do not overlap.
//   - Each use finds its block on the device, fetched or created before, in the version of its
//   step.
//     A fetch begins when the content is on the host: written down after its last change, or made
//     by the host update. No block is written down while a moment changes it.
//   - A host update begins after the gradient is down, after the norm where it waits for that, and
//     with its states in memory; so do moments that need a norm.
//   - A block that stays is fetched at most once.
//   - Room: drops are not events, but are free, so each block is taken to leave as soon as it may,
//     after its last use or write-down. If even so a moment's capacity is exceeded at some instant,
//     or the number of host buffers, no schedule has these events.
//
// Transfers under way when the recording ends are not part of it and not missed.
#ifndef GANTRY_PLACEMENT_POLICY_SCHEDULE_REPLAY_H_
#define GANTRY_PLACEMENT_POLICY_SCHEDULE_REPLAY_H_

#include <span>

#include "absl/status/status.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/simulator.h"

namespace gantry {

// `events` are all those from an empty device and idle lanes on, of a simulation without noise.
// Errors: kFailedPrecondition naming the first rule found broken, the block, update or moment, and
// when. REQUIRES: problem.Validate() is OK.
absl::Status ReplaySchedule(const MovementProblem& problem, std::span<const SimulatedEvent> events);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_SCHEDULE_REPLAY_H_
