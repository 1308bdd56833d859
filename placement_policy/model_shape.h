// The shape of a language model: what follows from its Hugging Face config.json alone, so that
// models of any size can be planned without weights. Seven families, by their `model_type`.
//
// trainer/models' LlamaConfig has the same extents for the models that Gantry itself runs, and
// beyond them what is needed to compute (rotary frequencies, epsilons). Nothing here computes.
#ifndef GANTRY_PLACEMENT_POLICY_MODEL_SHAPE_H_
#define GANTRY_PLACEMENT_POLICY_MODEL_SHAPE_H_

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace gantry {

enum class ModelFamily : uint8_t {
  kGpt2,
  kLlama,
  kMistral,
  kMixtral,
  kQwen2,
  kQwen3,
  kDeepSeekV3,
};
// The `model_type` of config.json: "gpt2", "llama", "mistral", "mixtral", "qwen2", "qwen3",
// "deepseek_v3".
std::string_view Name(ModelFamily family);
inline std::ostream& operator<<(std::ostream& out, ModelFamily family) {
  return out << Name(family);
}
std::span<const ModelFamily> AllModelFamilies();

// A layer whose feed-forward part is many experts, of which each token visits a few.
struct MixtureShape {
  int64_t experts = 0;  // 0: no layer is a mixture
  int64_t experts_per_token = 0;
  int64_t expert_width = 0;
  int64_t shared_experts = 0;  // one more feed-forward network of so many expert widths
  int64_t dense_layers = 0;    // the first layers have a plain feed-forward network

  bool operator==(const MixtureShape&) const = default;
};

// Multi-head latent attention: queries, and keys with values, come from narrow vectors.
struct LatentAttentionShape {
  int64_t kv_rank = 0;     // 0: plain attention
  int64_t query_rank = 0;  // 0: queries come from the layer's input
  int64_t nope_dim = 0;    // of a query or key head, without positions
  int64_t rope_dim = 0;    // of a query or key head, with positions; all heads share the key's
  int64_t value_dim = 0;   // of a value head

  bool operator==(const LatentAttentionShape&) const = default;
};

struct ModelShape {
  ModelFamily family = ModelFamily::kLlama;
  int64_t layers = 0;
  int64_t width = 0;  // hidden_size
  int64_t heads = 0;
  int64_t kv_heads = 0;   // a divisor of heads
  int64_t head_dim = 0;   // need not be width / heads; unused by latent attention
  int64_t ffn_width = 0;  // of the layers without experts
  int64_t vocabulary = 0;
  int64_t positions = 0;  // rows of a learned position table; 0: rotary
  int64_t window = 0;     // keys that a query sees, itself included; 0: all before it
  bool tied_embeddings = false;
  bool query_key_value_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool query_key_norm = false;  // per head
  MixtureShape mixture = {};
  LatentAttentionShape latent = {};

  bool operator==(const ModelShape&) const = default;

  bool IsMixture(int64_t layer) const {
    return mixture.experts > 0 && layer >= mixture.dense_layers;
  }
  // Extents of one token's vectors in attention, over all heads.
  int64_t query_width() const;
  int64_t key_width() const;    // as attention reads it
  int64_t value_width() const;  // as attention reads it
  int64_t attended_width() const;

  // Errors: kInvalidArgument naming the field, its value and what is allowed.
  absl::Status Validate() const;
};

// Limits that keep every count far from overflow.
inline constexpr int64_t kModelWidthMax = int64_t{1} << 24;  // of any extent
inline constexpr int64_t kModelHeadsMax = int64_t{1} << 14;  // and head_dim
inline constexpr int64_t kModelLayersMax = 4096;
inline constexpr int64_t kModelExpertsMax = int64_t{1} << 14;
inline constexpr int64_t kModelTokenExpertsWidthMax = int64_t{1} << 28;  // inputs and insides
inline constexpr int64_t kModelTensorsMax = int64_t{1} << 20;
inline constexpr int64_t kModelParametersMax = int64_t{1} << 50;

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_MODEL_SHAPE_H_
