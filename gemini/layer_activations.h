// What becomes of the activations that a layer's forward pass leaves for its backward pass. A model
// says where each pass of a layer begins and ends; the store says whether the layer must run again
// in the backward pass, and may move what was saved away from the device in between. Addresses do
// not change, so operators need not know.
//
//   forward:  BeginLayer, the layer's operators, EndLayer
//   backward: BeginLayerBackward, their backward passes, EndLayerBackward
//
// Passes of different layers and micro-batches do not overlap, forward or backward. Whoever uses
// kPlanned makes two dry steps, the second with StepOptions::dry_layers kRecompute, so that the
// store knows both ways; after one it does not choose to run layers again.
//
// The compute thread makes all calls, within a training step.
#ifndef GANTRY_GEMINI_LAYER_ACTIVATIONS_H_
#define GANTRY_GEMINI_LAYER_ACTIVATIONS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gantry {

enum class LayerSaving : uint8_t {
  kKeep,       // all that the operators save stays on the device
  kRecompute,  // the layer's input is kept; the layer runs again in the backward pass
  kMove,       // what the operators save may leave the device in between
  kPlanned,    // one of these, as the store decides
};

struct LayerPass {
  int64_t number = 0;                       // in the step, in the order of the forward passes
  LayerSaving saving = LayerSaving::kKeep;  // what was decided; not kPlanned
};

class LayerActivations {
 public:
  virtual ~LayerActivations() = default;

  // May block. Errors: kResourceExhausted (no room for what a kMove layer saves), those of the file
  // tier.
  virtual absl::StatusOr<LayerPass> BeginLayer(int32_t layer, LayerSaving wanted) = 0;
  // What was allocated from the arena since BeginLayer, is alive and is not at `output` is what
  // the layer saves. Unless it is kept, nothing may touch it before BeginLayerBackward.
  virtual absl::Status EndLayer(const LayerPass& pass, const std::byte* output) = 0;
  // Blocks until what the layer saved is on the device. Errors: as BeginLayer.
  virtual absl::Status BeginLayerBackward(const LayerPass& pass) = 0;
  // REQUIRES: what it saved has been freed.
  virtual absl::Status EndLayerBackward(const LayerPass& pass) = 0;
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_LAYER_ACTIVATIONS_H_
