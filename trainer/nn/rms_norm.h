// Root-mean-square norms as operators, alone and fused with the residual addition before them.
// Statistics and sums are float whatever the compute type.
// Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_RMS_NORM_H_
#define GANTRY_TRAINER_NN_RMS_NORM_H_

#include "absl/status/statusor.h"
#include "trainer/autograd/parameter_lease.h"
#include "trainer/autograd/tape.h"

namespace gantry {

struct RmsNormWeight {
  Parameter parameter;  // [width]
  float epsilon;
};

// weight * x / sqrt(mean(x^2) + epsilon), row by row. Saves x and one float a row.
// Errors: those of the store and the arena.
absl::StatusOr<Var> RmsNorm(Tape& tape, const Var& x, const RmsNormWeight& weight);

struct SumAndNorm {
  Var sum;         // x + residual
  Var normalized;  // RmsNorm of the sum
};
absl::StatusOr<SumAndNorm> AddRmsNorm(Tape& tape, const Var& x, const Var& residual,
                                      const RmsNormWeight& weight);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_RMS_NORM_H_
