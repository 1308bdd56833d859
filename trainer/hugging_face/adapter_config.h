// adapter_config.json of PEFT: what a low-rank adapter (LoRA) adds to which linear maps.
//
// Read are adapters that are nothing but pairs A, B for linear maps: W + scale x B A. What PEFT can
// add beyond that changes what the pairs mean, or needs other tensors, and is refused by its key:
// other kinds of adapters, DoRA, biases, modules that are trained whole, patterns of ranks or
// scales, initialisations that change the base model.
//
// Plain data; pure functions of text.
#ifndef GANTRY_TRAINER_HUGGING_FACE_ADAPTER_CONFIG_H_
#define GANTRY_TRAINER_HUGGING_FACE_ADAPTER_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gantry {

inline constexpr int64_t kAdapterRankMax = 1 << 16;

struct AdapterConfig {
  int64_t rank = 8;
  double alpha = 8.0;
  bool rank_stabilized = false;  // use_rslora
  double dropout = 0.0;          // of the adapter's input, in training
  // The last parts of the maps' names, such as "q_proj"; or one regular expression.
  std::vector<std::string> target_modules = {};
  // The maps' weights are stored [in, out], as GPT-2's are; A is [rank, in] all the same.
  bool fan_in_fan_out = false;
  std::string base_model = {};  // base_model_name_or_path; may be empty

  bool operator==(const AdapterConfig&) const = default;

  // What B A is multiplied by: alpha / rank, or alpha / sqrt(rank) when stabilized.
  double scale() const;
};

// Errors: kInvalidArgument naming the key, its value and what is allowed.
absl::StatusOr<AdapterConfig> ParseAdapterConfig(std::string_view json);

// As PEFT writes it, for causal language models.
std::string MakeAdapterConfigJson(const AdapterConfig& config);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_ADAPTER_CONFIG_H_
