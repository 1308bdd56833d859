// SwiGLU as an operator: silu(gate) * up, where gate and up are the halves of one activation.
// Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_SWIGLU_H_
#define GANTRY_TRAINER_NN_SWIGLU_H_

#include "absl/status/statusor.h"
#include "trainer/autograd/tape.h"

namespace gantry {

// gate_up is [rows, 2 * channels], the gate first; the result is [rows, channels]. Saves gate_up,
// and in the backward pass writes its gradient over it where nobody else holds it. REQUIRES: an
// even number of columns. Errors: those of the arena.
absl::StatusOr<Var> SwiGlu(Tape& tape, const Var& gate_up);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_SWIGLU_H_
