// The norms of decoders as operators, alone and fused with the residual addition before them: a
// layer norm where there is a bias, else a root-mean-square norm.
// Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_NORM_H_
#define GANTRY_TRAINER_NN_NORM_H_

#include <optional>

#include "absl/status/statusor.h"
#include "trainer/autograd/parameter_lease.h"
#include "trainer/autograd/tape.h"
#include "trainer/nn/layer_norm.h"
#include "trainer/nn/rms_norm.h"

namespace gantry {

struct NormWeight {
  Parameter parameter;            // [width]
  std::optional<Parameter> bias;  // [width]
  float epsilon;
};

// As RmsNorm or LayerNorm. Errors: those of the store and the arena.
absl::StatusOr<Var> Norm(Tape& tape, const Var& x, const NormWeight& weight);

// The sum of x and the residual, and its norm.
absl::StatusOr<SumAndNorm> AddNorm(Tape& tape, const Var& x, const Var& residual,
                                   const NormWeight& weight);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_NORM_H_
