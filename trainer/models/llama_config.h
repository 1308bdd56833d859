// The shape of a Llama-family decoder. Plain data.
#ifndef GANTRY_TRAINER_MODELS_LLAMA_CONFIG_H_
#define GANTRY_TRAINER_MODELS_LLAMA_CONFIG_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "kernels/rope.h"

namespace gantry {

// What becomes of what a layer's forward pass saves for the backward pass. The numbers are the
// same.
enum class Recompute : uint8_t {
  kNone,     // it stays on the device
  kLayer,    // only the layer's input stays; the layer runs again in the backward pass
  kOffload,  // it may leave the device in between
  kPlanned,  // one of these, layer by layer, as the store decides; its dry run takes two steps
};

struct LlamaConfig {
  int64_t layers;
  int64_t width;         // hidden_size
  int64_t heads;         // num_attention_heads
  int64_t kv_heads;      // num_key_value_heads, a divisor of heads
  int64_t head_dim;      // even; need not be width / heads
  int64_t ffn_width;     // intermediate_size
  int64_t vocabulary;    // vocab_size
  int64_t max_sequence;  // positions that sequences and caches may have
  double rope_theta = 10000.0;
  std::optional<Llama3RopeScaling> rope_scaling = std::nullopt;
  double norm_epsilon = 1e-5;
  bool tie_embeddings = false;
  Recompute recompute = Recompute::kNone;
  DType parameter_dtype = DType::kBF16;
};

// No extent may be larger, so that products of two cannot overflow.
inline constexpr int64_t kLlamaExtentMax = int64_t{1} << 30;

// Errors: kInvalidArgument naming the field: not in [1, kLlamaExtentMax], heads that kv_heads do
// not divide, an odd head_dim, a theta, epsilon or scaling that is not finite and positive, f16.
absl::Status ValidateLlamaConfig(const LlamaConfig& config);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_LLAMA_CONFIG_H_
