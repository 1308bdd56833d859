// The shapes of published models, so that they can be planned without any file.
#ifndef GANTRY_PLACEMENT_POLICY_BUILT_IN_MODELS_H_
#define GANTRY_PLACEMENT_POLICY_BUILT_IN_MODELS_H_

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "placement_policy/model_shape.h"

namespace gantry {

// Published models: "gpt2", "llama2-7b", "llama3-8b", "llama3-70b", "mistral-7b", "mixtral-8x7b",
// "qwen2-7b", "qwen3-8b", "deepseek-v3". Errors: kNotFound that lists the names.
absl::StatusOr<ModelShape> BuiltInModel(std::string_view name);
std::span<const std::string_view> BuiltInModelNames();

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_BUILT_IN_MODELS_H_
