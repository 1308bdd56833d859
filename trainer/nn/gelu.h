// GELU as an operator. Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_GELU_H_
#define GANTRY_TRAINER_NN_GELU_H_

#include "absl/status/statusor.h"
#include "kernels/gelu.h"
#include "trainer/autograd/tape.h"

namespace gantry {

// Element by element. Saves x, and in the backward pass writes its gradient over it where nobody
// else holds it. Errors: those of the arena.
absl::StatusOr<Var> Gelu(Tape& tape, const Var& x, GeluForm form);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_GELU_H_
