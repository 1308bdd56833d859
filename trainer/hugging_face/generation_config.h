// Hugging Face's generation_config.json: how a model's author means it to be sampled. Plain data; a
// pure function of text.
#ifndef GANTRY_TRAINER_HUGGING_FACE_GENERATION_CONFIG_H_
#define GANTRY_TRAINER_HUGGING_FACE_GENERATION_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gantry {

// A key that is absent or null is empty here.
struct GenerationConfig {
  std::vector<int32_t> end_tokens;  // eos_token_id, a number or a list
  std::optional<int32_t> begin_token;
  std::optional<int32_t> padding_token;
  std::optional<bool> do_sample;  // false: always the most likely token
  std::optional<double> temperature;
  std::optional<int64_t> top_k;  // 0: all tokens
  std::optional<double> top_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;

  bool operator==(const GenerationConfig&) const = default;
};

// Errors: kInvalidArgument naming the key, its value and what is allowed. Other keys are skipped.
absl::StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view json);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_GENERATION_CONFIG_H_
