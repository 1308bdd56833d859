// The least time per step of a small movement problem, over every schedule: for tests of bounds and
// planners. Without host updates, files or norms; both directions of the link at once.
//
// What is minimised is the average over the steps of a schedule that runs forever, so that no
// schedule that repeats after one, two or any number of steps can be shorter on average: the
// minimum cycle mean of the graph of states. A state is what is on the device (absent, unchanged or
// changed, by block), what each lane and the moment under way still need, and which moment is next.
// Something starts or is dropped only when something else ends; a schedule in which it happens at
// another time can be shifted without loss. The rules, beside those of movement_problem.h:
//
//   - A fetch may start when the slots held then fit the capacity of the moment that computes, or,
//     between moments, of the next.
//   - A block is not written back while a moment changes it or reads it for the last time, and that
//     moment waits for the end of a write-back.
//   - Content that nothing reads any more is dropped at once.
//
// Choices that cannot be better are left out; each is replaced by an exchange that keeps every
// other transfer's time:
//
//   - unchanged blocks are dropped only for room that is needed at that time, and of those of one
//     size the one used last goes first;
//   - of the absent blocks of one size the one used first is fetched first;
//   - no block is dropped to fetch one of its size that is used later;
//   - where all blocks have one size, a moment that can start without dropping anything does so
//   when
//     it creates nothing and the next one's capacity is not smaller: waiting would keep no room.
#ifndef GANTRY_PLACEMENT_POLICY_EXHAUSTIVE_OPTIMUM_H_
#define GANTRY_PLACEMENT_POLICY_EXHAUSTIVE_OPTIMUM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "placement_policy/movement_problem.h"

namespace gantry {

struct ExhaustiveOptimumOptions {
  enum class Choices : uint8_t {
    kReduced,  // without those that cannot be better
    kAll,      // to check that they cannot
  };
  Choices choices = Choices::kReduced;
  int64_t states_max = 1'000'000;
};

// `time` for `steps` steps: the mean is their ratio, and a schedule that repeats after so many
// steps (or a divisor or multiple) attains it.
struct ExhaustiveOptimum {
  Nanoseconds time = 0;
  int64_t steps = 1;
  int64_t states = 0;  // visited
};

// Errors: kInvalidArgument for a problem with host updates, norms, a half-duplex link or blocks in
// files, without moments, or with more than 8 blocks, 62 moments or 1000 ns for a moment or a
// transfer; kResourceExhausted beyond states_max states; kFailedPrecondition when no schedule can
// go on forever. REQUIRES: problem.Validate() is OK.
absl::StatusOr<ExhaustiveOptimum> FindExhaustiveOptimum(const MovementProblem& problem,
                                                        const ExhaustiveOptimumOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_EXHAUSTIVE_OPTIMUM_H_
