// The parameters of a decoder: registration of what families.h lists with a store, and random
// initialisation. Stateless functions; the weights are plain data.
#ifndef GANTRY_TRAINER_MODELS_DECODER_WEIGHTS_H_
#define GANTRY_TRAINER_MODELS_DECODER_WEIGHTS_H_

#include <array>
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
#include "trainer/nn/embedding.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/norm.h"
#include "trainer/nn/rms_norm.h"
#include "trainer/nn/token_log_probability.h"

namespace gantry {

struct DecoderLayerWeights {
  NormWeight input_norm;
  // Three over one input, or one that fuses them.
  absl::InlinedVector<LinearWeight, 3> query_key_value;
  // Of each head, before rotation; none in families without.
  std::optional<RmsNormWeight> query_norm;
  std::optional<RmsNormWeight> key_norm;
  std::array<LinearWeight, 1> attention_output;
  NormWeight post_attention_norm;
  absl::InlinedVector<LinearWeight, 2> gate_up;  // or up alone, without a gate
  std::array<LinearWeight, 1> down;
};

// A tensor of the store.
struct RegisteredTensor {
  std::string name;
  TensorId tensor;
  int64_t elements;
  Initial initial;
};

struct DecoderWeights {
  EmbeddingTable embedding;
  std::optional<EmbeddingTable> positions;  // none: rotary
  std::vector<DecoderLayerWeights> layers;
  NormWeight final_norm;
  HeadWeight head;  // the embedding's parameter when tied
  // Every registered tensor once, in registration order, which is the order of first use.
  std::vector<RegisteredTensor> tensors;
};

struct DecoderRegistration {
  // By tensor name; empty: all are trained. Frozen parameters have no optimizer state.
  std::function<Trainability(std::string_view name)> trainability;
  int64_t data_parallel_degree = 1;
};

// Registers DecoderTensors(config): norms and biases without weight decay, tied heads as an alias.
// REQUIRES: a valid config. Errors: those of the store.
absl::StatusOr<DecoderWeights> RegisterDecoder(ParameterStore& store, const DecoderConfig& config,
                                               const DecoderRegistration& registration);

// Writes initial values, a pure function of seed, tensor and element, in pieces of a few MiB.
// REQUIRES: the store is sealed and between steps. Errors: those of WriteState.
absl::Status InitializeDecoder(ParameterStore& store, const DecoderConfig& config,
                               const DecoderWeights& weights, uint64_t seed, ThreadTeam& team);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_DECODER_WEIGHTS_H_
