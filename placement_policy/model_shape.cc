#include "placement_policy/model_shape.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/model_structure.h"

namespace gantry {
namespace {

constexpr std::array kFamilies = {
    ModelFamily::kGpt2,  ModelFamily::kLlama, ModelFamily::kMistral,   ModelFamily::kMixtral,
    ModelFamily::kQwen2, ModelFamily::kQwen3, ModelFamily::kDeepSeekV3};

struct Range {
  int64_t least;
  int64_t most;
};

absl::Status CheckExtent(std::string_view name, int64_t value, Range range) {
  if (value >= range.least && value <= range.most) return absl::OkStatus();
  return InvalidArgument("model: ", name, " is ", value, "; it must be in [", range.least, ", ",
                         range.most, "]");
}

absl::Status CheckMixture(const ModelShape& shape) {
  const MixtureShape& mixture = shape.mixture;
  GANTRY_RETURN_IF_ERROR(CheckExtent("mixture.experts", mixture.experts, {0, kModelExpertsMax}));
  if (mixture.experts == 0) {
    if (mixture == MixtureShape{}) return absl::OkStatus();
    return InvalidArgument("model: mixture.experts is 0, but other fields of the mixture are set");
  }
  GANTRY_RETURN_IF_ERROR(
      CheckExtent("mixture.experts_per_token", mixture.experts_per_token, {1, mixture.experts}));
  GANTRY_RETURN_IF_ERROR(
      CheckExtent("mixture.expert_width", mixture.expert_width, {1, kModelWidthMax}));
  const int64_t token_width = mixture.experts_per_token * (mixture.expert_width + shape.width);
  if (token_width > kModelTokenExpertsWidthMax) {
    return InvalidArgument("model: mixture.experts_per_token is ", mixture.experts_per_token,
                           ": a token's experts are together ", token_width, " wide; the most is ",
                           kModelTokenExpertsWidthMax);
  }
  GANTRY_RETURN_IF_ERROR(
      CheckExtent("mixture.shared_experts", mixture.shared_experts, {0, kModelExpertsMax}));
  if (mixture.shared_experts * mixture.expert_width > kModelWidthMax) {
    return InvalidArgument("model: mixture.shared_experts is ", mixture.shared_experts,
                           ", together wider than ", kModelWidthMax);
  }
  return CheckExtent("mixture.dense_layers", mixture.dense_layers, {0, shape.layers});
}

absl::Status CheckAttention(const ModelShape& shape) {
  GANTRY_RETURN_IF_ERROR(CheckExtent("heads", shape.heads, {1, kModelHeadsMax}));
  GANTRY_RETURN_IF_ERROR(CheckExtent("kv_heads", shape.kv_heads, {1, shape.heads}));
  if (shape.heads % shape.kv_heads != 0) {
    return InvalidArgument("model: kv_heads is ", shape.kv_heads, ", which does not divide ",
                           shape.heads, " heads");
  }
  const LatentAttentionShape& latent = shape.latent;
  if (latent.kv_rank == 0) {
    if (latent != LatentAttentionShape{}) {
      return InvalidArgument("model: latent.kv_rank is 0, but other fields of latent are set");
    }
    return CheckExtent("head_dim", shape.head_dim, {1, kModelHeadsMax});
  }
  GANTRY_RETURN_IF_ERROR(CheckExtent("latent.kv_rank", latent.kv_rank, {1, kModelWidthMax}));
  GANTRY_RETURN_IF_ERROR(CheckExtent("latent.query_rank", latent.query_rank, {0, kModelWidthMax}));
  GANTRY_RETURN_IF_ERROR(CheckExtent("latent.nope_dim", latent.nope_dim, {1, kModelHeadsMax}));
  GANTRY_RETURN_IF_ERROR(CheckExtent("latent.rope_dim", latent.rope_dim, {1, kModelHeadsMax}));
  return CheckExtent("latent.value_dim", latent.value_dim, {1, kModelHeadsMax});
}

absl::Status CheckSize(const ModelShape& shape) {
  // No layer of any family has more than 20 tensors beside its experts.
  const int64_t tensors = shape.layers * (20 + 3 * shape.mixture.experts);
  if (tensors > kModelTensorsMax) {
    return InvalidArgument("model: ", shape.layers, " layers of ", shape.mixture.experts,
                           " experts are more than ", kModelTensorsMax, " tensors");
  }
  if (ParameterCount(shape) > kModelParametersMax) {
    return InvalidArgument("model: more than ", kModelParametersMax, " parameters");
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view Name(ModelFamily family) {
  switch (family) {
    case ModelFamily::kGpt2:
      return "gpt2";
    case ModelFamily::kLlama:
      return "llama";
    case ModelFamily::kMistral:
      return "mistral";
    case ModelFamily::kMixtral:
      return "mixtral";
    case ModelFamily::kQwen2:
      return "qwen2";
    case ModelFamily::kQwen3:
      return "qwen3";
    case ModelFamily::kDeepSeekV3:
      return "deepseek_v3";
  }
  GANTRY_CHECK(false) << "model family " << static_cast<int>(family);
  return "";
}

std::span<const ModelFamily> AllModelFamilies() { return kFamilies; }

int64_t ModelShape::query_width() const {
  return heads * (latent.kv_rank > 0 ? latent.nope_dim + latent.rope_dim : head_dim);
}

int64_t ModelShape::key_width() const {
  return latent.kv_rank > 0 ? heads * (latent.nope_dim + latent.rope_dim) : kv_heads * head_dim;
}

int64_t ModelShape::value_width() const {
  return latent.kv_rank > 0 ? heads * latent.value_dim : kv_heads * head_dim;
}

int64_t ModelShape::attended_width() const {
  return heads * (latent.kv_rank > 0 ? latent.value_dim : head_dim);
}

absl::Status ModelShape::Validate() const {
  if (std::ranges::find(kFamilies, family) == kFamilies.end()) {
    return InvalidArgument("model: family is ", static_cast<int>(family));
  }
  GANTRY_RETURN_IF_ERROR(CheckExtent("layers", layers, {1, kModelLayersMax}));
  GANTRY_RETURN_IF_ERROR(CheckExtent("width", width, {1, kModelWidthMax}));
  GANTRY_RETURN_IF_ERROR(CheckExtent("vocabulary", vocabulary, {1, kModelWidthMax}));
  GANTRY_RETURN_IF_ERROR(CheckExtent("positions", positions, {0, kModelWidthMax}));
  GANTRY_RETURN_IF_ERROR(CheckExtent("window", window, {0, kModelWidthMax}));
  GANTRY_RETURN_IF_ERROR(CheckAttention(*this));
  GANTRY_RETURN_IF_ERROR(CheckMixture(*this));
  const bool has_dense_layer = !IsMixture(0);
  GANTRY_RETURN_IF_ERROR(
      CheckExtent("ffn_width", ffn_width, {has_dense_layer ? 1 : 0, kModelWidthMax}));
  return CheckSize(*this);
}

}  // namespace gantry
