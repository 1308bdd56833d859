// Layer norms as operators, alone and fused with the residual addition before them. Statistics and
// sums are float whatever the compute type.
// Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_LAYER_NORM_H_
#define GANTRY_TRAINER_NN_LAYER_NORM_H_

#include "absl/status/statusor.h"
#include "trainer/autograd/parameter_lease.h"
#include "trainer/autograd/tape.h"
#include "trainer/nn/rms_norm.h"

namespace gantry {

struct LayerNormWeight {
  Parameter parameter;  // [width]
  Parameter bias;       // [width]
  float epsilon;
};

// weight * (x - mean(x)) / sqrt(variance(x) + epsilon) + bias, row by row. Saves x and two floats a
// row. Errors: those of the store and the arena.
absl::StatusOr<Var> LayerNorm(Tape& tape, const Var& x, const LayerNormWeight& weight);

// The sum of x and the residual, and its norm.
absl::StatusOr<SumAndNorm> AddLayerNorm(Tape& tape, const Var& x, const Var& residual,
                                        const LayerNormWeight& weight);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_LAYER_NORM_H_
