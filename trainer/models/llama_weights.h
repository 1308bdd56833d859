// The parameters of a Llama-family decoder under their Hugging Face names: registration with a
// store and random initialisation. Stateless functions; the weights are plain data.
#ifndef GANTRY_TRAINER_MODELS_LLAMA_WEIGHTS_H_
#define GANTRY_TRAINER_MODELS_LLAMA_WEIGHTS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/parallel_for.h"
#include "chunk/chunk_layout.h"
#include "gemini/parameter_store.h"
#include "trainer/models/llama_config.h"
#include "trainer/nn/embedding.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/rms_norm.h"
#include "trainer/nn/token_log_probability.h"

namespace gantry {

struct LlamaLayerWeights {
  RmsNormWeight input_norm;
  std::array<LinearWeight, 3> query_key_value;
  std::array<LinearWeight, 1> attention_output;
  RmsNormWeight post_attention_norm;
  std::array<LinearWeight, 2> gate_up;
  std::array<LinearWeight, 1> down;
};

// What initialisation does with a tensor.
enum class Initial : uint8_t {
  kOnes,
  kNormal,          // standard deviation 0.02
  kResidualNormal,  // the same over sqrt(2 layers): projections into the residual stream
};

struct LlamaTensor {
  std::string name;
  TensorId tensor;
  int64_t elements;
  Initial initial;
};

struct LlamaWeights {
  EmbeddingTable embedding;
  std::vector<LlamaLayerWeights> layers;
  RmsNormWeight final_norm;
  HeadWeight head;  // the embedding's parameter when tied
  // Every registered tensor once, in registration order, which is the order of first use.
  std::vector<LlamaTensor> tensors;
};

struct LlamaRegistration {
  // By tensor name; empty: all are trained. Frozen parameters have no optimizer state.
  std::function<Trainability(std::string_view name)> trainability;
  int64_t data_parallel_degree = 1;
};

// Registers all tensors: norms without weight decay, tied heads as an alias.
// REQUIRES: a valid config. Errors: those of the store.
absl::StatusOr<LlamaWeights> RegisterLlama(ParameterStore& store, const LlamaConfig& config,
                                           const LlamaRegistration& registration);

// Writes initial values, a pure function of seed, tensor and element, in pieces of a few MiB.
// REQUIRES: the store is sealed and between steps. Errors: those of WriteState.
absl::Status InitializeLlama(ParameterStore& store, const LlamaConfig& config,
                             const LlamaWeights& weights, uint64_t seed, ThreadTeam& team);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_LLAMA_WEIGHTS_H_
