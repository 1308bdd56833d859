#include "trainer/hugging_face/adapter_config.h"

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/status.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr JsonDocument::Limits kLimits = {.what = "adapter_config.json",
                                          .text_bytes_max = size_t{1} << 20,
                                          .depth_max = 16,
                                          .values_max = 100'000};
constexpr int kIndent = 2;
constexpr double kAlphaMax = 1e6;

std::optional<JsonNode> Given(const JsonNode& root, const char* key) {
  const std::optional<JsonNode> node = root.Find(key);
  if (!node.has_value() || node->value().is_null()) return std::nullopt;
  return node;
}

absl::StatusOr<bool> FlagOr(const JsonNode& root, const char* key, bool otherwise) {
  const std::optional<JsonNode> node = Given(root, key);
  if (!node.has_value()) return otherwise;
  return node->Flag();
}

// Keys that must be absent, null, false or empty.
absl::Status RefuseOthers(const JsonNode& root) {
  for (const char* key :
       {"use_dora", "lora_bias", "use_qalora", "use_bdlora", "modules_to_save", "rank_pattern",
        "alpha_pattern", "trainable_token_indices", "layer_replication", "target_parameters",
        "alora_invocation_tokens", "arrow_config", "kasa_config", "lora_ga_config",
        "monteclora_config", "velora_config"}) {
    const std::optional<JsonNode> node = Given(root, key);
    if (!node.has_value()) continue;
    const nlohmann::json& value = node->value();
    const bool is_off = (value.is_boolean() && !value.get<bool>()) ||
                        ((value.is_array() || value.is_object()) && value.empty());
    if (!is_off) return node->Error("but only plain LoRA of linear maps is supported");
  }
  if (const std::optional<JsonNode> node = Given(root, "bias"); node.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(const std::string_view bias, node->Text());
    if (bias != "none") return node->Error("only \"none\" is supported");
  }
  const std::optional<JsonNode> initial = Given(root, "init_lora_weights");
  if (!initial.has_value() || initial->value().is_boolean()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(const std::string_view text, initial->Text());
  if (text == "gaussian") return absl::OkStatus();
  return initial->Error("which changes the base model; only true, false or \"gaussian\" leave it");
}

absl::StatusOr<std::vector<std::string>> ReadTargets(const JsonNode& root) {
  std::vector<std::string> targets;
  const std::optional<JsonNode> node = Given(root, "target_modules");
  if (!node.has_value()) return targets;
  if (node->value().is_string()) {
    GANTRY_ASSIGN_OR_RETURN(const std::string_view text, node->Text());
    targets.emplace_back(text);
    return targets;
  }
  GANTRY_ASSIGN_OR_RETURN(const size_t count, node->ListSize());
  for (size_t i = 0; i < count; ++i) {
    const JsonNode item = node->At(i);
    GANTRY_ASSIGN_OR_RETURN(const std::string_view text, item.Text());
    targets.emplace_back(text);
  }
  return targets;
}

}  // namespace

double AdapterConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

absl::StatusOr<AdapterConfig> ParseAdapterConfig(std::string_view json) {
  GANTRY_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(json, kLimits));
  const JsonNode root = document.root();
  GANTRY_RETURN_IF_ERROR(root.ExpectObject());
  GANTRY_ASSIGN_OR_RETURN(const JsonNode type, root.Member("peft_type"));
  GANTRY_ASSIGN_OR_RETURN(const std::string_view type_text, type.Text());
  if (type_text != "LORA") return type.Error("only \"LORA\" is supported");
  GANTRY_RETURN_IF_ERROR(RefuseOthers(root));
  AdapterConfig config;
  GANTRY_ASSIGN_OR_RETURN(const JsonNode rank, root.Member("r"));
  GANTRY_ASSIGN_OR_RETURN(config.rank, rank.Integer({.least = 1, .most = kAdapterRankMax}));
  if (const std::optional<JsonNode> node = Given(root, "lora_alpha"); node.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(config.alpha, node->Real({.least = -kAlphaMax, .most = kAlphaMax}));
  }
  if (const std::optional<JsonNode> node = Given(root, "lora_dropout"); node.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(config.dropout, node->Real({.least = 0, .most = 1}));
  }
  GANTRY_ASSIGN_OR_RETURN(config.rank_stabilized, FlagOr(root, "use_rslora", false));
  GANTRY_ASSIGN_OR_RETURN(config.fan_in_fan_out, FlagOr(root, "fan_in_fan_out", false));
  GANTRY_ASSIGN_OR_RETURN(config.target_modules, ReadTargets(root));
  if (const std::optional<JsonNode> node = Given(root, "base_model_name_or_path")) {
    GANTRY_ASSIGN_OR_RETURN(config.base_model, node->Text());
  }
  return config;
}

std::string MakeAdapterConfigJson(const AdapterConfig& config) {
  nlohmann::ordered_json json = {{"base_model_name_or_path", nullptr},
                                 {"bias", "none"},
                                 {"fan_in_fan_out", config.fan_in_fan_out},
                                 {"inference_mode", true},
                                 {"init_lora_weights", true},
                                 {"lora_alpha", config.alpha},
                                 {"lora_dropout", config.dropout},
                                 {"modules_to_save", nullptr},
                                 {"peft_type", "LORA"},
                                 {"r", config.rank},
                                 {"target_modules", config.target_modules},
                                 {"task_type", "CAUSAL_LM"},
                                 {"use_dora", false},
                                 {"use_rslora", config.rank_stabilized}};
  if (!config.base_model.empty()) json["base_model_name_or_path"] = config.base_model;
  // Whole numbers as PEFT's users write them.
  if (config.alpha == std::floor(config.alpha)) {
    json["lora_alpha"] = static_cast<int64_t>(config.alpha);
  }
  return json.dump(kIndent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gantry
