// Recomputation: a part of the forward pass that keeps only its input, and runs again during the
// backward pass to make what its operators need.
//
//   Checkpoint(tape, hidden, [this](Tape& tape, const Var& in) { return Layer(tape, in); })
//
// Parameter uses are counted in the first run only; the second run's leases carry Phase::kBackward.
// The second run stops computing, leasing and allocating once all that the operators save is there:
// the last matrix multiplication of a layer is not repeated.
//
// Checkpoints may follow each other and nest. Results are those of the same body without a
// checkpoint, to the bit.
// Thread-compatible, as the tape.
#ifndef GANTRY_TRAINER_AUTOGRAD_CHECKPOINT_H_
#define GANTRY_TRAINER_AUTOGRAD_CHECKPOINT_H_

#include <functional>

#include "absl/status/statusor.h"
#include "trainer/autograd/tape.h"

namespace gantry {

// Runs twice: what it captures must live until the tape's Backward is done, and both runs must make
// the same operators.
using CheckpointBody = std::function<absl::StatusOr<Var>(Tape& tape, const Var& input)>;

// The output of `body` for `input`. Errors: those of the body.
absl::StatusOr<Var> Checkpoint(Tape& tape, const Var& input, CheckpointBody body);

}  // namespace gantry

#endif  // GANTRY_TRAINER_AUTOGRAD_CHECKPOINT_H_
