// Reads a Hugging Face config.json as far as the shape of the model goes.
//
// Keys that have nothing to do with the shape are skipped, whatever they hold. A key that the
// family needs must be there, except where transformers has a default that published files rely on:
//   head_dim                hidden_size / num_attention_heads (qwen3: must be there)
//   num_key_value_heads     llama: num_attention_heads
//   n_inner                 gpt2: 4 x n_embd, also for null
//   sliding_window          mistral: 4096; mixtral: none. null: none
//   q_lora_rank             deepseek_v3: queries without a narrow vector, for null
//   n_shared_experts        deepseek_v3: none, for null
//   tie_word_embeddings     gpt2: true; others: false
//   attention_bias, mlp_bias, use_sliding_window, add_cross_attention: false; moe_layer_freq: 1
// Of the last three only the default is supported.
#ifndef GANTRY_PLACEMENT_POLICY_MODEL_CONFIG_H_
#define GANTRY_PLACEMENT_POLICY_MODEL_CONFIG_H_

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "placement_policy/model_shape.h"

namespace gantry {

// More than any published file has.
inline constexpr size_t kModelConfigBytesMax = size_t{1} << 20;
inline constexpr int kModelConfigDepthMax = 32;

// Errors: kInvalidArgument for text that is no JSON object or too large or deep, a key that is
// there twice, a model_type that is not known, and, naming the key, the value and what is allowed,
// for a value that is missing, of the wrong type or out of range.
absl::StatusOr<ModelShape> ParseModelConfig(std::string_view json);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_MODEL_CONFIG_H_
