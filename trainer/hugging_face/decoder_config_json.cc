#include "trainer/hugging_face/decoder_config_json.h"

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/model_config.h"
#include "placement_policy/model_shape.h"
#include "trainer/hugging_face/token_ids.h"
#include "trainer/models/families.h"
#include "trainer/models/rotary.h"

namespace gantry {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr JsonDocument::Limits kLimits = {.what = "config.json",
                                          .text_bytes_max = kModelConfigBytesMax,
                                          .depth_max = kModelConfigDepthMax,
                                          .values_max = 100'000};
constexpr RealRange kPositive = {.least = 1e-300, .most = 1e300};
constexpr double kDefaultTheta = 10000.0;
constexpr double kRmsEpsilon = 1e-6;
constexpr double kLayerEpsilon = 1e-5;
constexpr int kIndent = 2;
constexpr std::array<DecoderFamily, 5> kFamilies = {DecoderFamily::kGpt2, DecoderFamily::kLlama,
                                                    DecoderFamily::kMistral, DecoderFamily::kQwen2,
                                                    DecoderFamily::kQwen3};

// "float32" for f32, and so on.
std::string_view TorchName(DType dtype) {
  if (dtype == DType::kBF16) return "bfloat16";
  return dtype == DType::kF16 ? "float16" : "float32";
}

std::string_view Architecture(DecoderFamily family) {
  switch (family) {
    case DecoderFamily::kGpt2:
      return "GPT2LMHeadModel";
    case DecoderFamily::kLlama:
      return "LlamaForCausalLM";
    case DecoderFamily::kMistral:
      return "MistralForCausalLM";
    case DecoderFamily::kQwen2:
      return "Qwen2ForCausalLM";
    case DecoderFamily::kQwen3:
      break;
  }
  return "Qwen3ForCausalLM";
}

absl::StatusOr<DecoderFamily> FamilyOf(const ModelShape& shape) {
  std::string known;
  for (const DecoderFamily family : kFamilies) {
    if (Name(family) == Name(shape.family)) return family;
    known += StrCat(known.empty() ? "" : ", ", Name(family));
  }
  return InvalidArgument("config.json: model_type is ", Name(shape.family),
                         ", which can be planned but not run; run are ", known);
}

DecoderConfig FromShape(const ModelShape& shape, DecoderFamily family) {
  DecoderConfig config = FamilyDefaults(family);
  config.layers = shape.layers;
  config.width = shape.width;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.ffn_width = shape.ffn_width;
  config.vocabulary = shape.vocabulary;
  config.positions = shape.positions;
  config.query_key_value_bias = shape.query_key_value_bias;
  config.attention_output_bias = shape.attention_output_bias;
  config.mlp_bias = shape.mlp_bias;
  config.query_key_norm = shape.query_key_norm;
  config.tie_embeddings = shape.tied_embeddings;
  if (shape.window > 0) config.windows.assign(static_cast<size_t>(shape.layers), shape.window);
  return config;
}

// The value of a key that is there and not null.
std::optional<JsonNode> Given(const JsonNode& object, const char* key) {
  const std::optional<JsonNode> node = object.Find(key);
  if (!node.has_value() || node->value().is_null()) return std::nullopt;
  return node;
}

absl::StatusOr<double> RealOr(const JsonNode& object, const char* key, RealRange range,
                              double otherwise) {
  const std::optional<JsonNode> node = Given(object, key);
  if (!node.has_value()) return otherwise;
  return node->Real(range);
}

// A switch that must stand as it does by default.
absl::Status ExpectFlag(const JsonNode& root, const char* key, bool allowed) {
  const std::optional<JsonNode> node = Given(root, key);
  if (!node.has_value()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(const bool value, node->Flag());
  if (value == allowed) return absl::OkStatus();
  return node->Error(StrCat("only ", allowed ? "true" : "false", " is supported"));
}

absl::Status CheckDropout(const JsonNode& root, ModelPurpose purpose) {
  for (const char* key : {"attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
    const std::optional<JsonNode> node = Given(root, key);
    if (!node.has_value()) continue;
    GANTRY_ASSIGN_OR_RETURN(const double value, node->Real({.least = 0, .most = 1}));
    if (value == 0 || purpose == ModelPurpose::kInference) continue;
    return node->Error("but training has no dropout: write 0 into the file to train without");
  }
  return absl::OkStatus();
}

absl::Status CheckWindows(const JsonNode& root, DecoderFamily family) {
  if (family != DecoderFamily::kQwen2 && family != DecoderFamily::kQwen3) return absl::OkStatus();
  const std::optional<JsonNode> types = Given(root, "layer_types");
  if (!types.has_value()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(const size_t count, types->ListSize());
  for (size_t i = 0; i < count; ++i) {
    const JsonNode type = types->At(i);
    GANTRY_ASSIGN_OR_RETURN(const std::string_view text, type.Text());
    if (text != "full_attention") return type.Error("only full_attention is supported");
  }
  return absl::OkStatus();
}

absl::Status ReadActivation(const JsonNode& root, DecoderConfig* config) {
  const bool is_gpt2 = config->family == DecoderFamily::kGpt2;
  const std::optional<JsonNode> node = Given(root, is_gpt2 ? "activation_function" : "hidden_act");
  if (!node.has_value()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(const std::string_view name, node->Text());
  if (!is_gpt2) {
    return name == "silu" ? absl::OkStatus() : node->Error("only silu is supported");
  }
  if (name == "gelu") {
    config->activation = ActivationKind::kGelu;
  } else if (name != "gelu_new" && name != "gelu_pytorch_tanh") {
    return node->Error("it must be gelu_new, gelu_pytorch_tanh or gelu");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> ReadFactors(const JsonNode& rope, const char* key,
                                                int64_t count) {
  GANTRY_ASSIGN_OR_RETURN(const JsonNode list, rope.Member(key));
  GANTRY_RETURN_IF_ERROR(list.ExpectListOf(static_cast<size_t>(count)));
  std::vector<double> factors;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    GANTRY_ASSIGN_OR_RETURN(const double factor, list.At(i).Real(kPositive));
    factors.push_back(factor);
  }
  return factors;
}

class RopeReader {
 public:
  // `rope` is rope_parameters or rope_scaling.
  RopeReader(const JsonNode& root, const JsonNode& rope, DecoderConfig* config)
      : root_(root), rope_(rope), config_(*config), scaling_(config->rope_scaling) {}

  absl::Status Read() {
    GANTRY_RETURN_IF_ERROR(rope_.ExpectObject());
    GANTRY_ASSIGN_OR_RETURN(config_.rope_theta,
                            RealOr(rope_, "rope_theta", kPositive, config_.rope_theta));
    GANTRY_RETURN_IF_ERROR(ReadKind());
    if (scaling_.kind == RopeScalingKind::kNone) return absl::OkStatus();
    GANTRY_RETURN_IF_ERROR(ReadOriginalPositions());
    GANTRY_RETURN_IF_ERROR(ReadFactor());
    switch (scaling_.kind) {
      case RopeScalingKind::kNone:
      case RopeScalingKind::kLinear:
      case RopeScalingKind::kDynamic:
        return absl::OkStatus();
      case RopeScalingKind::kLlama3:
        return ReadLlama3();
      case RopeScalingKind::kYarn:
        return ReadYarn();
      case RopeScalingKind::kLongRope:
        break;
    }
    return ReadLongRope();
  }

 private:
  absl::Status ReadKind() {
    std::optional<JsonNode> node = Given(rope_, "rope_type");
    if (!node.has_value()) node = Given(rope_, "type");
    if (!node.has_value()) return absl::OkStatus();
    GANTRY_ASSIGN_OR_RETURN(const std::string_view name, node->Text());
    std::string known;
    for (const RopeScalingKind kind :
         {RopeScalingKind::kNone, RopeScalingKind::kLinear, RopeScalingKind::kDynamic,
          RopeScalingKind::kLlama3, RopeScalingKind::kYarn, RopeScalingKind::kLongRope}) {
      known += StrCat(known.empty() ? "" : ", ", kind);
      if (name != Name(kind)) continue;
      scaling_.kind = kind;
      return absl::OkStatus();
    }
    return node->Error(StrCat("it must be one of ", known));
  }

  // Some models have it beside the other keys, where it counts.
  absl::Status ReadOriginalPositions() {
    constexpr char kKey[] = "original_max_position_embeddings";
    scaling_.original_positions = static_cast<double>(config_.max_sequence);
    if (scaling_.kind == RopeScalingKind::kDynamic) return absl::OkStatus();
    std::optional<JsonNode> node = Given(root_, kKey);
    if (!node.has_value()) node = Given(rope_, kKey);
    if (!node.has_value()) return absl::OkStatus();
    GANTRY_ASSIGN_OR_RETURN(scaling_.original_positions, node->Real({.least = 1, .most = 1e12}));
    return absl::OkStatus();
  }

  absl::Status ReadFactor() {
    const std::optional<JsonNode> node = Given(rope_, "factor");
    if (node.has_value()) {
      GANTRY_ASSIGN_OR_RETURN(scaling_.factor, node->Real(kPositive));
      return absl::OkStatus();
    }
    if (scaling_.kind != RopeScalingKind::kYarn && scaling_.kind != RopeScalingKind::kLongRope) {
      GANTRY_ASSIGN_OR_RETURN(const JsonNode null, rope_.Member("factor"));
      return null.Error("not a number");
    }
    scaling_.factor = static_cast<double>(config_.max_sequence) / scaling_.original_positions;
    return absl::OkStatus();
  }

  absl::Status ReadLlama3() {
    GANTRY_ASSIGN_OR_RETURN(const JsonNode low, rope_.Member("low_freq_factor"));
    GANTRY_ASSIGN_OR_RETURN(scaling_.low_frequency_factor, low.Real(kPositive));
    GANTRY_ASSIGN_OR_RETURN(const JsonNode high, rope_.Member("high_freq_factor"));
    GANTRY_ASSIGN_OR_RETURN(scaling_.high_frequency_factor, high.Real(kPositive));
    return absl::OkStatus();
  }

  absl::Status ReadYarn() {
    GANTRY_ASSIGN_OR_RETURN(scaling_.beta_fast,
                            RealOr(rope_, "beta_fast", kPositive, scaling_.beta_fast));
    GANTRY_ASSIGN_OR_RETURN(scaling_.beta_slow,
                            RealOr(rope_, "beta_slow", kPositive, scaling_.beta_slow));
    if (const std::optional<JsonNode> node = Given(rope_, "truncate"); node.has_value()) {
      GANTRY_ASSIGN_OR_RETURN(scaling_.truncate, node->Flag());
    }
    constexpr RealRange kScale = {.least = 0, .most = 1e6};
    GANTRY_ASSIGN_OR_RETURN(scaling_.mscale, RealOr(rope_, "mscale", kScale, 0));
    GANTRY_ASSIGN_OR_RETURN(scaling_.mscale_all_dim, RealOr(rope_, "mscale_all_dim", kScale, 0));
    if (scaling_.mscale == 0 || scaling_.mscale_all_dim == 0) {
      scaling_.mscale = scaling_.mscale_all_dim = 0;  // as Transformers: both or neither
    }
    return ReadAttentionFactor();
  }

  absl::Status ReadLongRope() {
    GANTRY_ASSIGN_OR_RETURN(scaling_.short_factors,
                            ReadFactors(rope_, "short_factor", config_.head_dim / 2));
    GANTRY_ASSIGN_OR_RETURN(scaling_.long_factors,
                            ReadFactors(rope_, "long_factor", config_.head_dim / 2));
    return ReadAttentionFactor();
  }

  absl::Status ReadAttentionFactor() {
    GANTRY_ASSIGN_OR_RETURN(scaling_.attention_factor,
                            RealOr(rope_, "attention_factor", kPositive, 0));
    return absl::OkStatus();
  }

  const JsonNode& root_;
  const JsonNode& rope_;
  DecoderConfig& config_;
  RopeScaling& scaling_;
};

absl::Status ReadRotary(const JsonNode& root, DecoderConfig* config) {
  GANTRY_ASSIGN_OR_RETURN(config->rope_theta, RealOr(root, "rope_theta", kPositive, kDefaultTheta));
  const std::optional<JsonNode> scaling = Given(root, "rope_scaling");
  const std::optional<JsonNode> parameters = Given(root, "rope_parameters");
  if (scaling.has_value() && parameters.has_value()) {
    return scaling->Error("while rope_parameters is there too: one of them must go");
  }
  for (const auto& node : {scaling, parameters}) {
    if (!node.has_value()) continue;
    GANTRY_RETURN_IF_ERROR(RopeReader(root, *node, config).Read());
    if (const std::optional<JsonNode> part = Given(*node, "partial_rotary_factor")) {
      GANTRY_ASSIGN_OR_RETURN(const double value, part->Real({.least = 0, .most = 1}));
      if (value != 1) return part->Error("only 1 is supported");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPositions(const JsonNode& root, DecoderConfig* config) {
  if (config->family == DecoderFamily::kGpt2) {
    config->max_sequence = config->positions;
    return absl::OkStatus();
  }
  GANTRY_ASSIGN_OR_RETURN(const JsonNode most, root.Member("max_position_embeddings"));
  GANTRY_ASSIGN_OR_RETURN(config->max_sequence,
                          most.Integer({.least = 1, .most = kDecoderExtentMax}));
  return ReadRotary(root, config);
}

absl::StatusOr<std::optional<DType>> ReadDType(const JsonNode& root) {
  std::optional<JsonNode> node = Given(root, "dtype");
  if (!node.has_value()) node = Given(root, "torch_dtype");
  if (!node.has_value()) return std::optional<DType>();
  GANTRY_ASSIGN_OR_RETURN(std::string_view name, node->Text());
  if (name.starts_with("torch.")) name.remove_prefix(std::string_view("torch.").size());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == TorchName(dtype)) return std::optional(dtype);
  }
  return node->Error("it must be float32, bfloat16 or float16");
}

absl::Status RefuseOthers(const JsonNode& root, ModelPurpose purpose, DecoderFamily family) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (const std::optional<JsonNode> node = Given(root, key); node.has_value()) {
      return node->Error("but only models that are not quantised can be loaded");
    }
  }
  if (const std::optional<JsonNode> node = Given(root, "partial_rotary_factor")) {
    GANTRY_ASSIGN_OR_RETURN(const double value, node->Real({.least = 0, .most = 1}));
    if (value != 1) return node->Error("only 1 is supported");
  }
  if (family == DecoderFamily::kGpt2) {
    GANTRY_RETURN_IF_ERROR(ExpectFlag(root, "scale_attn_weights", true));
    GANTRY_RETURN_IF_ERROR(ExpectFlag(root, "scale_attn_by_inverse_layer_idx", false));
  }
  GANTRY_RETURN_IF_ERROR(CheckWindows(root, family));
  return CheckDropout(root, purpose);
}

OrderedJson RopeJson(const DecoderConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  OrderedJson json = {{"rope_type", Name(scaling.kind)}, {"factor", scaling.factor}};
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
    case RopeScalingKind::kLinear:
    case RopeScalingKind::kDynamic:
      return json;
    case RopeScalingKind::kLlama3:
      json["low_freq_factor"] = scaling.low_frequency_factor;
      json["high_freq_factor"] = scaling.high_frequency_factor;
      break;
    case RopeScalingKind::kYarn:
      json["beta_fast"] = scaling.beta_fast;
      json["beta_slow"] = scaling.beta_slow;
      json["truncate"] = scaling.truncate;
      if (scaling.mscale > 0) {
        json["mscale"] = scaling.mscale;
        json["mscale_all_dim"] = scaling.mscale_all_dim;
      }
      break;
    case RopeScalingKind::kLongRope:
      json["short_factor"] = scaling.short_factors;
      json["long_factor"] = scaling.long_factors;
      break;
  }
  if (scaling.attention_factor > 0) json["attention_factor"] = scaling.attention_factor;
  json["original_max_position_embeddings"] = static_cast<int64_t>(scaling.original_positions);
  return json;
}

OrderedJson Gpt2Json(const DecoderConfig& config) {
  return {{"n_layer", config.layers},
          {"n_embd", config.width},
          {"n_head", config.heads},
          {"n_inner", config.ffn_width},
          {"n_positions", config.positions},
          {"vocab_size", config.vocabulary},
          {"activation_function", config.activation == ActivationKind::kGelu ? "gelu" : "gelu_new"},
          {"layer_norm_epsilon", config.norm_epsilon},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0}};
}

OrderedJson LlamaJson(const DecoderConfig& config) {
  OrderedJson json = {{"num_hidden_layers", config.layers},
                      {"hidden_size", config.width},
                      {"num_attention_heads", config.heads},
                      {"num_key_value_heads", config.kv_heads},
                      {"head_dim", config.head_dim},
                      {"intermediate_size", config.ffn_width},
                      {"vocab_size", config.vocabulary},
                      {"max_position_embeddings", config.max_sequence},
                      {"hidden_act", "silu"},
                      {"rms_norm_eps", config.norm_epsilon},
                      {"rope_theta", config.rope_theta}};
  if (config.rope_scaling.kind != RopeScalingKind::kNone) json["rope_scaling"] = RopeJson(config);
  if (config.family == DecoderFamily::kLlama || config.family == DecoderFamily::kQwen3) {
    json["attention_bias"] = config.query_key_value_bias;
  }
  if (config.family == DecoderFamily::kLlama) json["mlp_bias"] = config.mlp_bias;
  if (config.family == DecoderFamily::kMistral) {
    json["sliding_window"] = nullptr;
    if (config.window(0) > 0) json["sliding_window"] = config.window(0);
  }
  return json;
}

}  // namespace

absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(std::string_view json,
                                                         ModelPurpose purpose) {
  GANTRY_ASSIGN_OR_RETURN(const ModelShape shape, ParseModelConfig(json));
  GANTRY_ASSIGN_OR_RETURN(const DecoderFamily family, FamilyOf(shape));
  GANTRY_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(json, kLimits));
  const JsonNode root = document.root();
  HuggingFaceConfig config{.decoder = FromShape(shape, family)};
  DecoderConfig& decoder = config.decoder;
  GANTRY_RETURN_IF_ERROR(RefuseOthers(root, purpose, family));
  GANTRY_RETURN_IF_ERROR(ReadPositions(root, &decoder));
  GANTRY_RETURN_IF_ERROR(ReadActivation(root, &decoder));
  const bool is_gpt2 = family == DecoderFamily::kGpt2;
  GANTRY_ASSIGN_OR_RETURN(
      decoder.norm_epsilon,
      RealOr(root, is_gpt2 ? "layer_norm_epsilon" : "rms_norm_eps", {.least = 1e-30, .most = 1},
             is_gpt2 ? kLayerEpsilon : kRmsEpsilon));
  GANTRY_ASSIGN_OR_RETURN(config.dtype, ReadDType(root));
  GANTRY_ASSIGN_OR_RETURN(config.end_tokens, ReadTokenIds(root, "eos_token_id"));
  GANTRY_ASSIGN_OR_RETURN(config.begin_token, ReadTokenId(root, "bos_token_id"));
  GANTRY_ASSIGN_OR_RETURN(config.padding_token, ReadTokenId(root, "pad_token_id"));
  const absl::Status valid = ValidateDecoderConfig(decoder);
  if (!valid.ok()) return InvalidArgument("config.json: ", FromAbsl(valid.message()));
  return config;
}

std::string MakeConfigJson(const DecoderConfig& config, DType dtype) {
  OrderedJson json = {{"architectures", {Architecture(config.family)}},
                      {"model_type", Name(config.family)}};
  json.update(config.family == DecoderFamily::kGpt2 ? Gpt2Json(config) : LlamaJson(config));
  json["tie_word_embeddings"] = config.tie_embeddings;
  json["torch_dtype"] = TorchName(dtype);
  return json.dump(kIndent) + "\n";
}

absl::StatusOr<std::string> WithDType(std::string_view json, DType dtype) {
  // Checks the limits, so that what follows is small and without doubled keys.
  GANTRY_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(json, kLimits));
  GANTRY_RETURN_IF_ERROR(document.root().ExpectObject());
  OrderedJson ordered = OrderedJson::parse(json, nullptr, /*allow_exceptions=*/false);
  const bool has_new_key = ordered.contains("dtype");
  if (has_new_key) ordered["dtype"] = TorchName(dtype);
  if (!has_new_key || ordered.contains("torch_dtype")) ordered["torch_dtype"] = TorchName(dtype);
  return ordered.dump(kIndent, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace) +
         "\n";
}

}  // namespace gantry
