#include "trainer/hugging_face/generation_config.h"

#include <cstddef>

#include "absl/status/status.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "trainer/hugging_face/token_ids.h"

namespace gantry {
namespace {

constexpr JsonDocument::Limits kLimits = {.what = "generation_config.json",
                                          .text_bytes_max = size_t{1} << 20,
                                          .depth_max = 16,
                                          .values_max = 100'000};
constexpr double kTemperatureMax = 1e4;
constexpr double kPenaltyMax = 1e4;
constexpr int64_t kCountMax = int64_t{1} << 40;

// The value of a key that is there and not null.
std::optional<JsonNode> Given(const JsonNode& root, const char* key) {
  const std::optional<JsonNode> node = root.Find(key);
  if (!node.has_value() || node->value().is_null()) return std::nullopt;
  return node;
}

absl::Status ReadReal(const JsonNode& root, const char* key, RealRange range,
                      std::optional<double>* value) {
  const std::optional<JsonNode> node = Given(root, key);
  if (!node.has_value()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(*value, node->Real(range));
  return absl::OkStatus();
}

absl::Status ReadCount(const JsonNode& root, const char* key, std::optional<int64_t>* value) {
  const std::optional<JsonNode> node = Given(root, key);
  if (!node.has_value()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(*value, node->Integer({.least = 0, .most = kCountMax}));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view json) {
  GANTRY_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(json, kLimits));
  const JsonNode root = document.root();
  GANTRY_RETURN_IF_ERROR(root.ExpectObject());
  GenerationConfig config;
  GANTRY_ASSIGN_OR_RETURN(config.end_tokens, ReadTokenIds(root, "eos_token_id"));
  GANTRY_ASSIGN_OR_RETURN(config.begin_token, ReadTokenId(root, "bos_token_id"));
  GANTRY_ASSIGN_OR_RETURN(config.padding_token, ReadTokenId(root, "pad_token_id"));
  if (const std::optional<JsonNode> node = Given(root, "do_sample"); node.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(config.do_sample, node->Flag());
  }
  GANTRY_RETURN_IF_ERROR(
      ReadReal(root, "temperature", {.least = 0, .most = kTemperatureMax}, &config.temperature));
  GANTRY_RETURN_IF_ERROR(ReadCount(root, "top_k", &config.top_k));
  GANTRY_RETURN_IF_ERROR(ReadReal(root, "top_p", {.least = 0, .most = 1}, &config.top_p));
  GANTRY_RETURN_IF_ERROR(ReadReal(root, "repetition_penalty", {.least = 1e-4, .most = kPenaltyMax},
                                  &config.repetition_penalty));
  GANTRY_RETURN_IF_ERROR(ReadCount(root, "max_new_tokens", &config.max_new_tokens));
  return config;
}

}  // namespace gantry
