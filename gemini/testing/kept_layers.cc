#include "gemini/testing/kept_layers.h"

#include "base/strings.h"

namespace gantry {

absl::StatusOr<LayerPass> KeptLayers::BeginLayer(int32_t layer, LayerSaving wanted) {
  if (layer < 0) return InvalidArgument("layer ", layer);
  if (open_++ > 0) return FailedPrecondition("a pass of layer ", layer, " within another");
  const bool again = wanted == LayerSaving::kRecompute;
  return LayerPass{.number = passes_++,
                   .saving = again ? LayerSaving::kRecompute : LayerSaving::kKeep};
}

absl::Status KeptLayers::EndLayer(const LayerPass& pass, const std::byte* output) {
  static_cast<void>(output);
  if (--open_ != 0) return FailedPrecondition("the pass ", pass.number, " was not begun");
  return absl::OkStatus();
}

absl::Status KeptLayers::BeginLayerBackward(const LayerPass& pass) {
  if (open_++ > 0) return FailedPrecondition("the pass ", pass.number, " within another");
  return absl::OkStatus();
}

absl::Status KeptLayers::EndLayerBackward(const LayerPass& pass) { return EndLayer(pass, nullptr); }

}  // namespace gantry
