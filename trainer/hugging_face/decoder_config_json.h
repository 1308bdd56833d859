// Hugging Face's config.json as the model that Gantry runs, and back.
//
// Read are the forms of Transformers 4 (rope_theta, rope_scaling, torch_dtype) and 5
// (rope_parameters, dtype). The shape is read as placement_policy/model_config.h says, so that what
// is planned is what is trained. Beyond it:
//   norm epsilon     rms_norm_eps (1e-6), gpt2: layer_norm_epsilon (1e-5)
//   activation       hidden_act: silu; gpt2: activation_function: gelu_new, gelu_pytorch_tanh, gelu
//   positions        rope_parameters, or rope_theta (10000) with rope_scaling; every kind that
//                    rotary.h has. gpt2: n_positions
//   max_sequence     max_position_embeddings, gpt2: n_positions
//   sliding windows  mistral: sliding_window for every layer
// What a model may ask for and this program does not do is refused, never passed over: other values
// of the keys above, quantization_config, partial_rotary_factor, use_sliding_window and layer_types
// with windows, scale_attn_weights, scale_attn_by_inverse_layer_idx, pretraining heads; and, for
// training, dropout. All other keys are skipped.
//
// Pure functions of text; thread-safe.
#ifndef GANTRY_TRAINER_HUGGING_FACE_DECODER_CONFIG_JSON_H_
#define GANTRY_TRAINER_HUGGING_FACE_DECODER_CONFIG_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "trainer/models/decoder_config.h"

namespace gantry {

// What a model is read for. Dropout makes no difference to inference.
enum class ModelPurpose : uint8_t { kInference, kTraining };

struct HuggingFaceConfig {
  // parameter_dtype and recompute are the defaults: the file does not say what they shall be.
  DecoderConfig decoder;
  std::optional<DType> dtype =
      std::nullopt;  // of the weights in files; none where the file does not say
  // What generation_config.json may say otherwise.
  std::vector<int32_t> end_tokens = {};
  std::optional<int32_t> begin_token = std::nullopt;
  std::optional<int32_t> padding_token = std::nullopt;
};

// Errors: kInvalidArgument naming the key, its value and what is allowed.
absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(std::string_view json,
                                                         ModelPurpose purpose);

// A config.json of this model with weights of this type, in the form that Transformers 4 and 5
// both read. REQUIRES: a valid config.
std::string MakeConfigJson(const DecoderConfig& config, DType dtype);

// The text with its dtype (or torch_dtype) replaced. Errors: as ParseHuggingFaceConfig for text
// that is no JSON object; nothing else in it is looked at.
absl::StatusOr<std::string> WithDType(std::string_view json, DType dtype);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_DECODER_CONFIG_JSON_H_
