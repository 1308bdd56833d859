#include "placement_policy/model_config.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMistralWindow = 4096;
constexpr size_t kShownBytesMax = 60;
constexpr int64_t kConfigValuesMax = 100'000;

struct Range {
  int64_t least = 1;
  int64_t most = kModelWidthMax;
};

// What a key may be besides a number in its range.
enum class Presence {
  kRequired,
  kNullable,  // or null
  kOptional,  // or null, or absent
};

class ConfigReader {
 public:
  explicit ConfigReader(const Json& json) : json_(json) {}

  absl::StatusOr<ModelShape> Read() {
    GANTRY_RETURN_IF_ERROR(ReadFamily());
    if (shape_.family == ModelFamily::kGpt2) {
      GANTRY_RETURN_IF_ERROR(ReadGpt2());
    } else {
      GANTRY_RETURN_IF_ERROR(ReadDecoder());
    }
    GANTRY_RETURN_IF_ERROR(shape_.Validate());
    return shape_;
  }

 private:
  absl::Status ReadFamily() {
    std::string known;
    for (const ModelFamily family : AllModelFamilies()) {
      if (!known.empty()) known += ", ";
      known += Name(family);
    }
    const auto entry = json_.find("model_type");
    if (entry == json_.end()) {
      return InvalidArgument("config.json: model_type is missing; it must be one of ", known);
    }
    if (entry->is_string()) {
      for (const ModelFamily family : AllModelFamilies()) {
        if (entry->get_ref<const std::string&>() != Name(family)) continue;
        shape_.family = family;
        return absl::OkStatus();
      }
    }
    return InvalidArgument("config.json: model_type is ", Shown(*entry), "; it must be one of ",
                           known);
  }

  absl::Status ReadGpt2() {
    GANTRY_RETURN_IF_ERROR(Read("n_layer", {.most = kModelLayersMax}, &shape_.layers));
    GANTRY_RETURN_IF_ERROR(Read("n_embd", {}, &shape_.width));
    GANTRY_RETURN_IF_ERROR(Read("n_head", {.most = kModelHeadsMax}, &shape_.heads));
    GANTRY_RETURN_IF_ERROR(Read("vocab_size", {}, &shape_.vocabulary));
    GANTRY_RETURN_IF_ERROR(Read("n_positions", {}, &shape_.positions));
    shape_.ffn_width = 4 * shape_.width;
    GANTRY_RETURN_IF_ERROR(Read("n_inner", {}, &shape_.ffn_width, Presence::kOptional));
    shape_.kv_heads = shape_.heads;
    GANTRY_RETURN_IF_ERROR(SplitWidth("n_embd", "n_head"));
    shape_.query_key_value_bias = true;
    shape_.attention_output_bias = true;
    shape_.mlp_bias = true;
    shape_.tied_embeddings = true;
    GANTRY_RETURN_IF_ERROR(Refuse("add_cross_attention"));
    return Read("tie_word_embeddings", &shape_.tied_embeddings);
  }

  absl::Status ReadDecoder() {
    GANTRY_RETURN_IF_ERROR(Read("num_hidden_layers", {.most = kModelLayersMax}, &shape_.layers));
    GANTRY_RETURN_IF_ERROR(Read("hidden_size", {}, &shape_.width));
    GANTRY_RETURN_IF_ERROR(Read("num_attention_heads", {.most = kModelHeadsMax}, &shape_.heads));
    GANTRY_RETURN_IF_ERROR(Read("vocab_size", {}, &shape_.vocabulary));
    GANTRY_RETURN_IF_ERROR(Read("tie_word_embeddings", &shape_.tied_embeddings));
    switch (shape_.family) {
      case ModelFamily::kGpt2:
        break;
      case ModelFamily::kLlama:
        GANTRY_RETURN_IF_ERROR(ReadAttention());
        GANTRY_RETURN_IF_ERROR(Read("mlp_bias", &shape_.mlp_bias));
        return ReadAttentionBias();
      case ModelFamily::kMistral:
        shape_.window = json_.contains("sliding_window") ? 0 : kMistralWindow;
        GANTRY_RETURN_IF_ERROR(ReadAttention());
        return ReadWindow();
      case ModelFamily::kMixtral:
        GANTRY_RETURN_IF_ERROR(ReadAttention());
        GANTRY_RETURN_IF_ERROR(ReadWindow());
        return ReadMixtralExperts();
      case ModelFamily::kQwen2:
        shape_.query_key_value_bias = true;
        GANTRY_RETURN_IF_ERROR(Refuse("use_sliding_window"));
        return ReadAttention();
      case ModelFamily::kQwen3:
        shape_.query_key_norm = true;
        GANTRY_RETURN_IF_ERROR(Refuse("use_sliding_window"));
        GANTRY_RETURN_IF_ERROR(ReadAttention());
        return ReadAttentionBias();
      case ModelFamily::kDeepSeekV3:
        GANTRY_RETURN_IF_ERROR(ReadAttentionBias());
        GANTRY_RETURN_IF_ERROR(ReadLatentAttention());
        return ReadDeepSeekExperts();
    }
    return absl::OkStatus();
  }

  // Heads, and the width of the plain feed-forward network.
  absl::Status ReadAttention() {
    if (shape_.family != ModelFamily::kMixtral) {
      GANTRY_RETURN_IF_ERROR(Read("intermediate_size", {}, &shape_.ffn_width));
    }
    shape_.kv_heads = shape_.heads;
    GANTRY_RETURN_IF_ERROR(
        Read("num_key_value_heads", {.most = shape_.heads}, &shape_.kv_heads,
             shape_.family == ModelFamily::kLlama ? Presence::kOptional : Presence::kRequired));
    if (shape_.heads % shape_.kv_heads != 0) {
      return InvalidArgument("config.json: num_key_value_heads is ", shape_.kv_heads,
                             "; it must divide num_attention_heads, ", shape_.heads);
    }
    const Range range = {.most = kModelHeadsMax};
    if (shape_.family == ModelFamily::kQwen3) return Read("head_dim", range, &shape_.head_dim);
    GANTRY_RETURN_IF_ERROR(Read("head_dim", range, &shape_.head_dim, Presence::kOptional));
    if (shape_.head_dim > 0) return absl::OkStatus();
    return SplitWidth("hidden_size", "num_attention_heads");
  }

  absl::Status SplitWidth(std::string_view width_key, std::string_view heads_key) {
    if (shape_.width % shape_.heads != 0) {
      return InvalidArgument("config.json: ", heads_key, " is ", shape_.heads, "; it must divide ",
                             width_key, ", ", shape_.width);
    }
    shape_.head_dim = shape_.width / shape_.heads;
    return absl::OkStatus();
  }

  absl::Status ReadAttentionBias() {
    GANTRY_RETURN_IF_ERROR(Read("attention_bias", &shape_.query_key_value_bias));
    shape_.attention_output_bias = shape_.query_key_value_bias;
    return absl::OkStatus();
  }

  absl::Status ReadWindow() {
    return Read("sliding_window", {}, &shape_.window, Presence::kOptional);
  }

  absl::Status ReadMixtralExperts() {
    MixtureShape& mixture = shape_.mixture;
    GANTRY_RETURN_IF_ERROR(Read("num_local_experts", {.most = kModelExpertsMax}, &mixture.experts));
    GANTRY_RETURN_IF_ERROR(
        Read("num_experts_per_tok", {.most = mixture.experts}, &mixture.experts_per_token));
    return Read("intermediate_size", {}, &mixture.expert_width);
  }

  absl::Status ReadLatentAttention() {
    LatentAttentionShape& latent = shape_.latent;
    shape_.kv_heads = shape_.heads;
    GANTRY_RETURN_IF_ERROR(Read("kv_lora_rank", {}, &latent.kv_rank));
    GANTRY_RETURN_IF_ERROR(Read("q_lora_rank", {}, &latent.query_rank, Presence::kNullable));
    const Range range = {.most = kModelHeadsMax};
    GANTRY_RETURN_IF_ERROR(Read("qk_nope_head_dim", range, &latent.nope_dim));
    GANTRY_RETURN_IF_ERROR(Read("qk_rope_head_dim", range, &latent.rope_dim));
    return Read("v_head_dim", range, &latent.value_dim);
  }

  absl::Status ReadDeepSeekExperts() {
    MixtureShape& mixture = shape_.mixture;
    GANTRY_RETURN_IF_ERROR(Read("n_routed_experts", {.most = kModelExpertsMax}, &mixture.experts));
    GANTRY_RETURN_IF_ERROR(
        Read("num_experts_per_tok", {.most = mixture.experts}, &mixture.experts_per_token));
    GANTRY_RETURN_IF_ERROR(Read("moe_intermediate_size", {}, &mixture.expert_width));
    GANTRY_RETURN_IF_ERROR(Read("n_shared_experts", {0, kModelExpertsMax}, &mixture.shared_experts,
                                Presence::kNullable));
    GANTRY_RETURN_IF_ERROR(
        Read("first_k_dense_replace", {0, shape_.layers}, &mixture.dense_layers));
    GANTRY_RETURN_IF_ERROR(Read("intermediate_size", {}, &shape_.ffn_width));
    int64_t frequency = 1;
    return Read("moe_layer_freq", {1, 1}, &frequency, Presence::kOptional);
  }

  // Leaves *value alone where the key is null or absent and may be.
  absl::Status Read(const char* key, Range range, int64_t* value,
                    Presence presence = Presence::kRequired) {
    const auto entry = json_.find(key);
    if (entry == json_.end()) {
      if (presence == Presence::kOptional) return absl::OkStatus();
      return InvalidArgument("config.json: ", key, " is missing; ", Name(shape_.family), " needs ",
                             Allowed(range, presence));
    }
    if (entry->is_null() && presence != Presence::kRequired) return absl::OkStatus();
    const std::optional<int64_t> number = Integer(*entry);
    if (!number.has_value() || *number < range.least || *number > range.most) {
      return InvalidArgument("config.json: ", key, " is ", Shown(*entry), "; it must be ",
                             Allowed(range, presence));
    }
    *value = *number;
    return absl::OkStatus();
  }

  absl::Status Read(const char* key, bool* value) {
    const auto entry = json_.find(key);
    if (entry == json_.end()) return absl::OkStatus();
    if (!entry->is_boolean()) {
      return InvalidArgument("config.json: ", key, " is ", Shown(*entry),
                             "; it must be true or false");
    }
    *value = entry->get<bool>();
    return absl::OkStatus();
  }

  absl::Status Refuse(const char* key) {
    bool value = false;
    GANTRY_RETURN_IF_ERROR(Read(key, &value));
    if (!value) return absl::OkStatus();
    return InvalidArgument("config.json: ", key, " is true; only false is supported");
  }

  static std::string Allowed(Range range, Presence presence) {
    return StrCat(presence == Presence::kRequired ? "" : "null or ", "an integer in [", range.least,
                  ", ", range.most, "]");
  }

  static std::optional<int64_t> Integer(const Json& value) {
    if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
      return std::nullopt;
    }
    if (!value.is_number_integer()) return std::nullopt;
    return value.get<int64_t>();
  }

  static std::string Shown(const Json& value) {
    std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
    if (text.size() > kShownBytesMax) text = text.substr(0, kShownBytesMax) + "...";
    return text;
  }

  const Json& json_;
  ModelShape shape_;
};

}  // namespace

absl::StatusOr<ModelShape> ParseModelConfig(std::string_view json) {
  GANTRY_ASSIGN_OR_RETURN(const JsonDocument document,
                          JsonDocument::Parse(json, {.what = "config.json",
                                                     .text_bytes_max = kModelConfigBytesMax,
                                                     .depth_max = kModelConfigDepthMax,
                                                     .values_max = kConfigValuesMax}));
  GANTRY_RETURN_IF_ERROR(document.root().ExpectObject());
  return ConfigReader(document.root().value()).Read();
}

}  // namespace gantry
