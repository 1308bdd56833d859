#include "trainer/models/llama_config.h"

#include <cmath>

#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

absl::Status CheckExtents(const LlamaConfig& config) {
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
    if (extent.value >= 1 && extent.value <= kLlamaExtentMax) continue;
    return InvalidArgument("Llama ", extent.name, " must be in [1, ", kLlamaExtentMax, "], not ",
                           extent.value);
  }
  return absl::OkStatus();
}

absl::Status CheckPositive(const char* name, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return InvalidArgument("Llama ", name, " must be finite and positive, not ", value);
}

absl::Status CheckScaling(const Llama3RopeScaling& scaling) {
  GANTRY_RETURN_IF_ERROR(CheckPositive("rope_scaling.factor", scaling.factor));
  GANTRY_RETURN_IF_ERROR(
      CheckPositive("rope_scaling.low_frequency_factor", scaling.low_frequency_factor));
  GANTRY_RETURN_IF_ERROR(
      CheckPositive("rope_scaling.original_positions", scaling.original_positions));
  if (scaling.high_frequency_factor > scaling.low_frequency_factor &&
      std::isfinite(scaling.high_frequency_factor)) {
    return absl::OkStatus();
  }
  return InvalidArgument("Llama rope_scaling.high_frequency_factor must be finite and above ",
                         scaling.low_frequency_factor, ", not ", scaling.high_frequency_factor);
}

}  // namespace

absl::Status ValidateLlamaConfig(const LlamaConfig& config) {
  GANTRY_RETURN_IF_ERROR(CheckExtents(config));
  if (config.heads % config.kv_heads != 0) {
    return InvalidArgument("Llama heads (", config.heads, ") must be a multiple of kv_heads (",
                           config.kv_heads, ")");
  }
  if (config.head_dim % 2 != 0) {
    return InvalidArgument("Llama head_dim must be even for rotary positions, not ",
                           config.head_dim);
  }
  GANTRY_RETURN_IF_ERROR(CheckPositive("rope_theta", config.rope_theta));
  GANTRY_RETURN_IF_ERROR(CheckPositive("norm_epsilon", config.norm_epsilon));
  if (config.rope_scaling.has_value()) {
    GANTRY_RETURN_IF_ERROR(CheckScaling(*config.rope_scaling));
  }
  if (config.parameter_dtype == DType::kF16) {
    return InvalidArgument("Llama parameter_dtype must be f32 or bf16, not f16");
  }
  return absl::OkStatus();
}

}  // namespace gantry
