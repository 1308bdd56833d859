#include "trainer/models/families.h"

#include <optional>
#include <utility>

#include "base/strings.h"

namespace gantry {
namespace {

// Names of modules; their parameters are NAME.weight and NAME.bias. Within a layer they follow the
// layer's prefix. Empty: the family has none.
struct FamilyNames {
  std::string_view prefix;  // of all but the head
  std::string_view embedding;
  std::string_view positions;
  std::string_view layers;  // of a layer, "layers." then its number then "."
  std::string_view input_norm;
  std::string_view query_key_value;
  std::string_view query;
  std::string_view key;
  std::string_view value;
  std::string_view query_norm;
  std::string_view key_norm;
  std::string_view attention_output;
  std::string_view post_attention_norm;
  std::string_view gate;
  std::string_view up;
  std::string_view down;
  std::string_view final_norm;
  std::string_view head;
};

constexpr FamilyNames kGpt2Names = {.prefix = "transformer.",
                                    .embedding = "wte",
                                    .positions = "wpe",
                                    .layers = "h.",
                                    .input_norm = "ln_1",
                                    .query_key_value = "attn.c_attn",
                                    .query = "",
                                    .key = "",
                                    .value = "",
                                    .query_norm = "",
                                    .key_norm = "",
                                    .attention_output = "attn.c_proj",
                                    .post_attention_norm = "ln_2",
                                    .gate = "",
                                    .up = "mlp.c_fc",
                                    .down = "mlp.c_proj",
                                    .final_norm = "ln_f",
                                    .head = "lm_head"};

constexpr FamilyNames kLlamaNames = {.prefix = "model.",
                                     .embedding = "embed_tokens",
                                     .positions = "",
                                     .layers = "layers.",
                                     .input_norm = "input_layernorm",
                                     .query_key_value = "",
                                     .query = "self_attn.q_proj",
                                     .key = "self_attn.k_proj",
                                     .value = "self_attn.v_proj",
                                     .query_norm = "self_attn.q_norm",  // qwen3
                                     .key_norm = "self_attn.k_norm",    // qwen3
                                     .attention_output = "self_attn.o_proj",
                                     .post_attention_norm = "post_attention_layernorm",
                                     .gate = "mlp.gate_proj",
                                     .up = "mlp.up_proj",
                                     .down = "mlp.down_proj",
                                     .final_norm = "norm",
                                     .head = "lm_head"};

const FamilyNames& NamesOf(DecoderFamily family) {
  return family == DecoderFamily::kGpt2 ? kGpt2Names : kLlamaNames;
}

class TensorList {
 public:
  explicit TensorList(const DecoderConfig& config)
      : config_(config), names_(NamesOf(config.family)) {}

  std::vector<DecoderTensor> Make() && {
    AddMatrix(DecoderRole::kTokenEmbedding, names_.embedding, config_.vocabulary, config_.width);
    if (config_.positions > 0) {
      AddMatrix(DecoderRole::kPositionEmbedding, names_.positions, config_.positions,
                config_.width);
    }
    for (layer_ = 0; layer_ < config_.layers; ++layer_) AddLayer();
    layer_ = -1;
    AddNorm(DecoderRole::kFinalNorm, names_.final_norm, config_.width);
    if (!config_.tie_embeddings) {
      AddMatrix(DecoderRole::kHead, names_.head, config_.vocabulary, config_.width);
    }
    return std::move(tensors_);
  }

 private:
  // A linear map of a layer.
  struct Projection {
    DecoderRole role;
    std::string_view name;
    int64_t out;
    int64_t in;
    bool has_bias;
    Initial initial = Initial::kNormal;
  };

  void AddLayer() {
    const int64_t width = config_.width;
    const int64_t query = config_.query_width();
    const int64_t key = config_.key_width();
    AddNorm(DecoderRole::kInputNorm, names_.input_norm, width);
    const bool bias = config_.query_key_value_bias;
    if (!names_.query_key_value.empty()) {
      AddProjection(
          {DecoderRole::kQueryKeyValue, names_.query_key_value, query + 2 * key, width, bias});
    } else {
      AddProjection({DecoderRole::kQuery, names_.query, query, width, bias});
      AddProjection({DecoderRole::kKey, names_.key, key, width, bias});
      AddProjection({DecoderRole::kValue, names_.value, key, width, bias});
    }
    if (config_.query_key_norm) {
      AddRmsNorm(DecoderRole::kQueryNorm, names_.query_norm);
      AddRmsNorm(DecoderRole::kKeyNorm, names_.key_norm);
    }
    AddProjection({DecoderRole::kAttentionOutput, names_.attention_output, width, query,
                   config_.attention_output_bias, Initial::kResidualNormal});
    AddNorm(DecoderRole::kPostAttentionNorm, names_.post_attention_norm, width);
    const int64_t inside = config_.ffn_width;
    if (config_.activation == ActivationKind::kSwiGlu) {
      AddProjection({DecoderRole::kGate, names_.gate, inside, width, config_.mlp_bias});
    }
    AddProjection({DecoderRole::kUp, names_.up, inside, width, config_.mlp_bias});
    AddProjection({DecoderRole::kDown, names_.down, width, inside, config_.mlp_bias,
                   Initial::kResidualNormal});
  }

  std::string NameOf(DecoderRole role, std::string_view module, DecoderPart part) const {
    const std::string_view prefix = role == DecoderRole::kHead ? "" : names_.prefix;
    const std::string layer = layer_ < 0 ? "" : StrCat(names_.layers, layer_, ".");
    return StrCat(prefix, layer, module, part == DecoderPart::kWeight ? ".weight" : ".bias");
  }

  void Add(DecoderRole role, std::string_view module, DecoderPart part, std::vector<int64_t> shape,
           Initial initial) {
    tensors_.push_back({.name = NameOf(role, module, part),
                        .role = role,
                        .part = part,
                        .layer = layer_,
                        .shape = std::move(shape),
                        .stored_transposed = false,
                        .initial = initial});
  }
  void AddMatrix(DecoderRole role, std::string_view module, int64_t rows, int64_t cols) {
    Add(role, module, DecoderPart::kWeight, {rows, cols}, Initial::kNormal);
  }
  void AddProjection(const Projection& projection) {
    Add(projection.role, projection.name, DecoderPart::kWeight, {projection.out, projection.in},
        projection.initial);
    tensors_.back().stored_transposed = config_.family == DecoderFamily::kGpt2;
    if (!projection.has_bias) return;
    Add(projection.role, projection.name, DecoderPart::kBias, {projection.out}, Initial::kZeros);
  }
  void AddRmsNorm(DecoderRole role, std::string_view module) {
    Add(role, module, DecoderPart::kWeight, {config_.head_dim}, Initial::kOnes);
  }
  void AddNorm(DecoderRole role, std::string_view module, int64_t extent) {
    Add(role, module, DecoderPart::kWeight, {extent}, Initial::kOnes);
    if (config_.norm == NormKind::kLayer) {
      Add(role, module, DecoderPart::kBias, {extent}, Initial::kZeros);
    }
  }

  const DecoderConfig& config_;
  const FamilyNames& names_;
  int64_t layer_ = -1;
  std::vector<DecoderTensor> tensors_;
};

}  // namespace

int64_t DecoderTensor::elements() const {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

std::vector<DecoderTensor> DecoderTensors(const DecoderConfig& config) {
  return TensorList(config).Make();
}

std::string_view HeadName(DecoderFamily) { return "lm_head.weight"; }

std::string_view NamePrefix(DecoderFamily family) { return NamesOf(family).prefix; }

std::span<const std::string_view> IgnoredLayerNames(DecoderFamily family) {
  static constexpr std::string_view kGpt2Ignored[] = {"attn.bias", "attn.masked_bias"};
  static constexpr std::string_view kLlamaIgnored[] = {"self_attn.rotary_emb.inv_freq"};
  if (family == DecoderFamily::kGpt2) return kGpt2Ignored;
  return kLlamaIgnored;
}

DecoderConfig FamilyDefaults(DecoderFamily family) {
  DecoderConfig config{.family = family,
                       .layers = 0,
                       .width = 0,
                       .heads = 0,
                       .kv_heads = 0,
                       .head_dim = 0,
                       .ffn_width = 0,
                       .vocabulary = 0,
                       .max_sequence = 0};
  switch (family) {
    case DecoderFamily::kGpt2:
      config.norm = NormKind::kLayer;
      config.activation = ActivationKind::kGeluTanh;
      config.query_key_value_bias = true;
      config.attention_output_bias = true;
      config.mlp_bias = true;
      config.tie_embeddings = true;
      break;
    case DecoderFamily::kLlama:
    case DecoderFamily::kMistral:
      break;
    case DecoderFamily::kQwen2:
      config.query_key_value_bias = true;
      break;
    case DecoderFamily::kQwen3:
      config.query_key_norm = true;
      break;
  }
  return config;
}

}  // namespace gantry
