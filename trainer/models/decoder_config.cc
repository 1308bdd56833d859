#include "trainer/models/decoder_config.h"

#include <cmath>

#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

absl::Status CheckExtents(const DecoderConfig& config) {
  struct Extent {
    const char* name;
    int64_t value;
  };
  const Extent extents[] = {
      {"layers", config.layers},         {"width", config.width},
      {"heads", config.heads},           {"kv_heads", config.kv_heads},
      {"head_dim", config.head_dim},     {"ffn_width", config.ffn_width},
      {"vocabulary", config.vocabulary}, {"max_sequence", config.max_sequence},
  };
  for (const Extent& extent : extents) {
    if (extent.value >= 1 && extent.value <= kDecoderExtentMax) continue;
    return InvalidArgument("decoder ", extent.name, " must be in [1, ", kDecoderExtentMax,
                           "], not ", extent.value);
  }
  return absl::OkStatus();
}

absl::Status CheckPositions(const DecoderConfig& config) {
  if (config.positions == 0) return ValidateRotary(config.rotary());
  if (config.positions >= config.max_sequence && config.positions <= kDecoderExtentMax) {
    return absl::OkStatus();
  }
  return InvalidArgument("decoder positions must be 0 or in [", config.max_sequence, ", ",
                         kDecoderExtentMax, "], from max_sequence on, not ", config.positions);
}

absl::Status CheckWindows(const DecoderConfig& config) {
  if (config.windows.empty()) return absl::OkStatus();
  if (static_cast<int64_t>(config.windows.size()) != config.layers) {
    return InvalidArgument("decoder windows must be one a layer or none, not ",
                           config.windows.size(), " for ", config.layers, " layers");
  }
  for (size_t i = 0; i < config.windows.size(); ++i) {
    if (config.windows[i] >= 0 && config.windows[i] <= kDecoderExtentMax) continue;
    return InvalidArgument("decoder window of layer ", i, " must be in [0, ", kDecoderExtentMax,
                           "], not ", config.windows[i]);
  }
  return absl::OkStatus();
}

// What no tensor names exist for.
absl::Status CheckFamily(const DecoderConfig& config) {
  const bool is_gpt2 = config.family == DecoderFamily::kGpt2;
  const auto refuse = [&](const char* what) {
    return InvalidArgument("a decoder of the family ", Name(config.family), " ", what);
  };
  if ((config.positions > 0) != is_gpt2) {
    return refuse(is_gpt2 ? "has a learned position table: positions must be above 0"
                          : "has rotary positions: positions must be 0");
  }
  if ((config.norm == NormKind::kLayer) != is_gpt2) {
    return refuse(is_gpt2 ? "has layer norms" : "has RMS norms");
  }
  if ((config.activation != ActivationKind::kSwiGlu) != is_gpt2) {
    return refuse(is_gpt2 ? "has GELU, not SwiGLU" : "has SwiGLU");
  }
  if (is_gpt2 &&
      !(config.query_key_value_bias && config.attention_output_bias && config.mlp_bias)) {
    return refuse("has biases in all projections");
  }
  if (is_gpt2 && config.kv_heads != config.heads) return refuse("has as many kv_heads as heads");
  if (is_gpt2 && config.width != config.heads * config.head_dim) {
    return refuse("has heads of width / heads dimensions");
  }
  if (config.query_key_norm != (config.family == DecoderFamily::kQwen3)) {
    return refuse(config.query_key_norm ? "has no query_key_norm" : "needs query_key_norm");
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view Name(DecoderFamily family) {
  switch (family) {
    case DecoderFamily::kGpt2:
      return "gpt2";
    case DecoderFamily::kLlama:
      return "llama";
    case DecoderFamily::kMistral:
      return "mistral";
    case DecoderFamily::kQwen2:
      return "qwen2";
    case DecoderFamily::kQwen3:
      return "qwen3";
  }
  return "?";
}

absl::Status ValidateDecoderConfig(const DecoderConfig& config) {
  GANTRY_RETURN_IF_ERROR(CheckExtents(config));
  if (config.heads % config.kv_heads != 0) {
    return InvalidArgument("decoder heads (", config.heads, ") must be a multiple of kv_heads (",
                           config.kv_heads, ")");
  }
  GANTRY_RETURN_IF_ERROR(CheckFamily(config));
  GANTRY_RETURN_IF_ERROR(CheckPositions(config));
  GANTRY_RETURN_IF_ERROR(CheckWindows(config));
  if (!std::isfinite(config.norm_epsilon) || config.norm_epsilon <= 0) {
    return InvalidArgument("decoder norm_epsilon must be finite and positive, not ",
                           config.norm_epsilon);
  }
  return absl::OkStatus();
}

}  // namespace gantry
