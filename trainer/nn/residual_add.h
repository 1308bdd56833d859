// The residual addition as an operator: a + b. Nothing is saved, and backward nothing is copied:
// both inputs share the output's gradient until one of them grows. Thread-compatible, as the tape;
// owns nothing.
#ifndef GANTRY_TRAINER_NN_RESIDUAL_ADD_H_
#define GANTRY_TRAINER_NN_RESIDUAL_ADD_H_

#include "absl/status/statusor.h"
#include "trainer/autograd/tape.h"

namespace gantry {

// REQUIRES: one shape and type. Errors: those of the arena.
absl::StatusOr<Var> ResidualAdd(Tape& tape, const Var& a, const Var& b);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_RESIDUAL_ADD_H_
