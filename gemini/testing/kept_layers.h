// Layers of a store that has one memory: nothing moves, and nothing is run again that need not be.
#ifndef GANTRY_GEMINI_TESTING_KEPT_LAYERS_H_
#define GANTRY_GEMINI_TESTING_KEPT_LAYERS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemini/layer_activations.h"

namespace gantry {

class KeptLayers final : public LayerActivations {
 public:
  absl::StatusOr<LayerPass> BeginLayer(int32_t layer, LayerSaving wanted) override;
  absl::Status EndLayer(const LayerPass& pass, const std::byte* output) override;
  absl::Status BeginLayerBackward(const LayerPass& pass) override;
  absl::Status EndLayerBackward(const LayerPass& pass) override;

 private:
  int64_t passes_ = 0;
  int64_t open_ = 0;  // forward or backward passes that have begun and not ended
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_TESTING_KEPT_LAYERS_H_
