#include "trainer/autograd/layer.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace gantry {
namespace {

// Recorded before and after a layer's operators, so that they run after and before their backward
// passes.
class LayerBoundary final : public Node {
 public:
  enum class Side { kInput, kOutput };
  LayerBoundary(const LayerPass& pass, Side side) : pass_(pass), side_(side) {}

  absl::Status Backward(Tape& tape) override {
    LayerActivations& layers = tape.context().store->layer_activations();
    return side_ == Side::kOutput ? layers.BeginLayerBackward(pass_)
                                  : layers.EndLayerBackward(pass_);
  }

 private:
  LayerPass pass_;
  Side side_;
};

const std::byte* AddressOf(const Var& var) {
  return var.value().has_memory() ? var.value().matrix().data : nullptr;
}

}  // namespace

absl::StatusOr<Var> RunLayer(Tape& tape, const Var& input, const LayerOptions& options,
                             CheckpointBody body) {
  if (tape.mode() == Tape::Mode::kEvaluation) return body(tape, input);
  GANTRY_CHECK(tape.recording()) << "layer " << options.layer << " within a checkpoint";
  LayerActivations& layers = tape.context().store->layer_activations();
  GANTRY_ASSIGN_OR_RETURN(const LayerPass pass, layers.BeginLayer(options.layer, options.saving));
  tape.Record(std::make_unique<LayerBoundary>(pass, LayerBoundary::Side::kInput));
  Var output;
  if (pass.saving == LayerSaving::kRecompute) {
    GANTRY_ASSIGN_OR_RETURN(output, Checkpoint(tape, input, std::move(body)));
  } else {
    GANTRY_ASSIGN_OR_RETURN(output, body(tape, input));
  }
  GANTRY_RETURN_IF_ERROR(layers.EndLayer(pass, AddressOf(output)));
  tape.Record(std::make_unique<LayerBoundary>(pass, LayerBoundary::Side::kOutput));
  return output;
}

}  // namespace gantry
