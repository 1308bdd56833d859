// One layer of a model: a part of the forward pass whose saved activations are kept, made again, or
// moved out of the device until the backward pass, as the store decides
// (gemini/layer_activations.h).
//
//   RunLayer(tape, hidden, {.layer = 3, .saving = LayerSaving::kPlanned},
//            [this](Tape& tape, const Var& in) { return Layer(tape, in); })
//
// Results are the same to the bit whatever is decided. Thread-compatible, as the tape.
#ifndef GANTRY_TRAINER_AUTOGRAD_LAYER_H_
#define GANTRY_TRAINER_AUTOGRAD_LAYER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "gemini/layer_activations.h"
#include "trainer/autograd/checkpoint.h"
#include "trainer/autograd/tape.h"

namespace gantry {

struct LayerOptions {
  int32_t layer;  // from 0
  LayerSaving saving = LayerSaving::kPlanned;
};

// The output of `body` for `input`. What `body` captures must live until the tape's Backward is
// done, and it must make the same operators whenever it runs. In an evaluation just the body. Not
// within a checkpoint or another layer. Errors: those of the body and of the store.
absl::StatusOr<Var> RunLayer(Tape& tape, const Var& input, const LayerOptions& options,
                             CheckpointBody body);

}  // namespace gantry

#endif  // GANTRY_TRAINER_AUTOGRAD_LAYER_H_
