// What a decoder is made of: a transformer that predicts the next token, of one of the families
// below. Plain data. families.h says which settings a family has and under which names its
// parameters are stored; a config may set them otherwise where the family's config.json can.
#ifndef GANTRY_TRAINER_MODELS_DECODER_CONFIG_H_
#define GANTRY_TRAINER_MODELS_DECODER_CONFIG_H_

#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "trainer/models/rotary.h"

namespace gantry {

enum class DecoderFamily : uint8_t { kGpt2, kLlama, kMistral, kQwen2, kQwen3 };
// The `model_type` of config.json: "gpt2", "llama", "mistral", "qwen2", "qwen3".
std::string_view Name(DecoderFamily family);
inline std::ostream& operator<<(std::ostream& out, DecoderFamily family) {
  return out << Name(family);
}

enum class NormKind : uint8_t {
  kRms,    // weight * x / rms(x)
  kLayer,  // weight * (x - mean(x)) / deviation(x) + bias
};

// Between the two projections of the feed-forward part.
enum class ActivationKind : uint8_t {
  kSwiGlu,    // silu(gate) * up: three projections ("silu")
  kGeluTanh,  // its approximation by tanh ("gelu_new", "gelu_pytorch_tanh")
  kGelu,      // x * Phi(x) ("gelu")
};

// What becomes of what a layer's forward pass saves for the backward pass. The numbers are the
// same.
enum class Recompute : uint8_t {
  kNone,     // it stays on the device
  kLayer,    // only the layer's input stays; the layer runs again in the backward pass
  kOffload,  // it may leave the device in between
  kPlanned,  // one of these, layer by layer, as the store decides; its dry run takes two steps
};

struct DecoderConfig {
  DecoderFamily family = DecoderFamily::kLlama;
  int64_t layers;
  int64_t width;         // hidden_size
  int64_t heads;         // num_attention_heads
  int64_t kv_heads;      // num_key_value_heads, a divisor of heads
  int64_t head_dim;      // even with rotary positions; need not be width / heads
  int64_t ffn_width;     // intermediate_size
  int64_t vocabulary;    // vocab_size
  int64_t max_sequence;  // positions that sequences and caches may have
  // Positions: rows of a learned table, at least max_sequence; 0: rotary, as below.
  int64_t positions = 0;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling = {};
  // Keys that a query of a layer sees, itself included; 0: all before it. Empty: 0 for every layer.
  std::vector<int64_t> windows = {};
  NormKind norm = NormKind::kRms;
  double norm_epsilon = 1e-5;
  ActivationKind activation = ActivationKind::kSwiGlu;
  bool query_key_value_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool query_key_norm = false;  // RMS norms of each query and key head, before rotation
  bool tie_embeddings = false;
  Recompute recompute = Recompute::kNone;
  DType parameter_dtype = DType::kBF16;

  bool operator==(const DecoderConfig&) const = default;

  int64_t query_width() const { return heads * head_dim; }
  int64_t key_width() const { return kv_heads * head_dim; }
  int64_t window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  Rotary rotary() const {
    return {.theta = rope_theta, .head_dim = head_dim, .scaling = rope_scaling};
  }
};

// No extent may be larger, so that products of two cannot overflow.
inline constexpr int64_t kDecoderExtentMax = int64_t{1} << 30;

// Errors: kInvalidArgument naming the field: not in [1, kDecoderExtentMax], heads that kv_heads do
// not divide, rotary settings as ValidateRotary says, a position table shorter than max_sequence,
// windows for another number of layers, an epsilon that is not finite and positive, a setting that
// the family cannot have (families.h).
absl::Status ValidateDecoderConfig(const DecoderConfig& config);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_DECODER_CONFIG_H_
