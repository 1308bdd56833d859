#include "placement_policy/built_in_models.h"

#include <array>
#include <cstddef>
#include <string>

#include "base/strings.h"

namespace gantry {
namespace {

struct NamedModel {
  std::string_view name;
  ModelShape shape;
};

// From the config.json that each model was published with.
constexpr std::array<NamedModel, 9> kBuiltInModels = {{
    {"gpt2",
     {.family = ModelFamily::kGpt2,
      .layers = 12,
      .width = 768,
      .heads = 12,
      .kv_heads = 12,
      .head_dim = 64,
      .ffn_width = 3072,
      .vocabulary = 50257,
      .positions = 1024,
      .tied_embeddings = true,
      .query_key_value_bias = true,
      .attention_output_bias = true,
      .mlp_bias = true}},
    {"llama2-7b",
     {.family = ModelFamily::kLlama,
      .layers = 32,
      .width = 4096,
      .heads = 32,
      .kv_heads = 32,
      .head_dim = 128,
      .ffn_width = 11008,
      .vocabulary = 32000}},
    {"llama3-8b",
     {.family = ModelFamily::kLlama,
      .layers = 32,
      .width = 4096,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .ffn_width = 14336,
      .vocabulary = 128256}},
    {"llama3-70b",
     {.family = ModelFamily::kLlama,
      .layers = 80,
      .width = 8192,
      .heads = 64,
      .kv_heads = 8,
      .head_dim = 128,
      .ffn_width = 28672,
      .vocabulary = 128256}},
    {"mistral-7b",
     {.family = ModelFamily::kMistral,
      .layers = 32,
      .width = 4096,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .ffn_width = 14336,
      .vocabulary = 32000,
      .window = 4096}},
    {"mixtral-8x7b",
     {.family = ModelFamily::kMixtral,
      .layers = 32,
      .width = 4096,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .vocabulary = 32000,
      .mixture = {.experts = 8, .experts_per_token = 2, .expert_width = 14336}}},
    {"qwen2-7b",
     {.family = ModelFamily::kQwen2,
      .layers = 28,
      .width = 3584,
      .heads = 28,
      .kv_heads = 4,
      .head_dim = 128,
      .ffn_width = 18944,
      .vocabulary = 152064,
      .query_key_value_bias = true}},
    {"qwen3-8b",
     {.family = ModelFamily::kQwen3,
      .layers = 36,
      .width = 4096,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .ffn_width = 12288,
      .vocabulary = 151936,
      .query_key_norm = true}},
    {"deepseek-v3",
     {.family = ModelFamily::kDeepSeekV3,
      .layers = 61,
      .width = 7168,
      .heads = 128,
      .kv_heads = 128,
      .ffn_width = 18432,
      .vocabulary = 129280,
      .mixture = {.experts = 256,
                  .experts_per_token = 8,
                  .expert_width = 2048,
                  .shared_experts = 1,
                  .dense_layers = 3},
      .latent =
          {.kv_rank = 512, .query_rank = 1536, .nope_dim = 128, .rope_dim = 64, .value_dim = 128}}},
}};

constexpr std::array<std::string_view, kBuiltInModels.size()> kBuiltInNames = [] {
  std::array<std::string_view, kBuiltInModels.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kBuiltInModels[i].name;
  return names;
}();

}  // namespace

absl::StatusOr<ModelShape> BuiltInModel(std::string_view name) {
  for (const NamedModel& model : kBuiltInModels) {
    if (model.name == name) return model.shape;
  }
  std::string known;
  for (const std::string_view other : kBuiltInNames)
    known += (known.empty() ? "" : ", ") + std::string(other);
  return NotFound("no built-in model '", name, "'; there are ", known);
}

std::span<const std::string_view> BuiltInModelNames() { return kBuiltInNames; }

}  // namespace gantry
