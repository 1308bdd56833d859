// The parameters of a decoder: registration of what families.h lists with a store, and random
// initialisation. Stateless functions; the weights are plain data.
#ifndef GANTRY_TRAINER_MODELS_DECODER_WEIGHTS_H_
#define GANTRY_TRAINER_MODELS_DECODER_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/parallel_for.h"
#include "chunk/chunk_layout.h"
#include "gemini/parameter_store.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/families.h"
#include "trainer/models/lora_config.h"
#include "trainer/nn/embedding.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/lora.h"
#include "trainer/nn/norm.h"
#include "trainer/nn/rms_norm.h"
#include "trainer/nn/token_log_probability.h"

namespace gantry {

// Linear maps over one input, and the adapters of some of them.
struct DecoderProjection {
  absl::InlinedVector<LinearWeight, 3> weights;
  std::vector<LoraAdapter> adapters;
};

struct DecoderLayerWeights {
  NormWeight input_norm;
  DecoderProjection query_key_value;  // three over one input, or one that fuses them
  // Of each head, before rotation; none in families without.
  std::optional<RmsNormWeight> query_norm;
  std::optional<RmsNormWeight> key_norm;
  DecoderProjection attention_output;
  NormWeight post_attention_norm;
  DecoderProjection gate_up;  // or up alone, without a gate
  DecoderProjection down;
};

// A tensor of the store.
struct RegisteredTensor {
  std::string name;
  TensorId tensor;
  int64_t elements;
  Initial initial;
  std::vector<int64_t> shape;
};

struct DecoderWeights {
  EmbeddingTable embedding;
  std::optional<EmbeddingTable> positions;  // none: rotary
  std::vector<DecoderLayerWeights> layers;
  NormWeight final_norm;
  HeadWeight head;  // the embedding's parameter when tied
  // DecoderTensors(config), in that order: the order of registration and of first use.
  std::vector<RegisteredTensor> tensors;
  // AdapterTensors(config, lora), likewise; registered right behind the weights they change.
  std::vector<RegisteredTensor> adapters;
};

struct DecoderRegistration {
  // By tensor name; empty: all are trained. Frozen parameters have no optimizer state.
  std::function<Trainability(std::string_view name)> trainability = {};
  // By tensor name, from what it has without: learning rate and weight decay; empty: as without.
  std::function<RegistrationOptions(std::string_view name, const RegistrationOptions& implied)>
      options = {};
  int64_t data_parallel_degree = 1;
  // Adapters; all else is then frozen, and the function above is asked about them alone.
  std::optional<LoraConfig> lora = std::nullopt;
};

// Registers DecoderTensors(config): norms and biases without weight decay, tied heads as an alias.
// REQUIRES: a valid config. Errors: kInvalidArgument for a bad lora; those of the store.
absl::StatusOr<DecoderWeights> RegisterDecoder(ParameterStore& store, const DecoderConfig& config,
                                               const DecoderRegistration& registration);

// Writes initial values of all but adapters, a pure function of seed, tensor and element, in pieces
// of a few MiB.
// REQUIRES: the store is sealed and between steps. Errors: those of WriteState.
absl::Status InitializeDecoder(ParameterStore& store, const DecoderConfig& config,
                               const DecoderWeights& weights, uint64_t seed, ThreadTeam& team);

// Writes initial values of adapters: A uniform within 1 / sqrt(in), B zero, magnitudes the norms of
// the base's rows, which are read for it. REQUIRES: as above, and the base's values are in place.
// Errors: those of ReadState and WriteState.
absl::Status InitializeAdapters(ParameterStore& store, const DecoderConfig& config,
                                const DecoderWeights& weights, uint64_t seed);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_DECODER_WEIGHTS_H_
