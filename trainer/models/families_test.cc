#include "trainer/models/families.h"

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

constexpr DecoderFamily kFamilies[] = {DecoderFamily::kGpt2, DecoderFamily::kLlama,
                                       DecoderFamily::kMistral, DecoderFamily::kQwen2,
                                       DecoderFamily::kQwen3};

DecoderConfig Small(DecoderFamily family) {
  DecoderConfig config = FamilyDefaults(family);
  config.layers = 2;
  config.width = 12;
  config.heads = 3;
  config.kv_heads = family == DecoderFamily::kGpt2 ? 3 : 1;
  config.head_dim = 4;
  config.ffn_width = 20;
  config.vocabulary = 30;
  config.max_sequence = 16;
  if (family == DecoderFamily::kGpt2) config.positions = 16;
  return config;
}

// "name [extents]", with "^T" where files hold the transpose, of the first layer and what is in no
// layer.
std::vector<std::string> Described(const DecoderConfig& config) {
  std::vector<std::string> lines;
  for (const DecoderTensor& tensor : DecoderTensors(config)) {
    if (tensor.layer > 0) continue;
    std::string line = tensor.name;
    for (const int64_t extent : tensor.shape) line += StrCat(" ", extent);
    lines.push_back(line + (tensor.stored_transposed ? " ^T" : ""));
  }
  return lines;
}

TEST(FamiliesTest, Gpt2FusesQueryKeyAndValueAndStoresTransposes) {
  EXPECT_EQ(
      Described(Small(DecoderFamily::kGpt2)),
      (std::vector<std::string>{
          "transformer.wte.weight 30 12", "transformer.wpe.weight 16 12",
          "transformer.h.0.ln_1.weight 12", "transformer.h.0.ln_1.bias 12",
          "transformer.h.0.attn.c_attn.weight 36 12 ^T", "transformer.h.0.attn.c_attn.bias 36",
          "transformer.h.0.attn.c_proj.weight 12 12 ^T", "transformer.h.0.attn.c_proj.bias 12",
          "transformer.h.0.ln_2.weight 12", "transformer.h.0.ln_2.bias 12",
          "transformer.h.0.mlp.c_fc.weight 20 12 ^T", "transformer.h.0.mlp.c_fc.bias 20",
          "transformer.h.0.mlp.c_proj.weight 12 20 ^T", "transformer.h.0.mlp.c_proj.bias 12",
          "transformer.ln_f.weight 12", "transformer.ln_f.bias 12"}));
}

TEST(FamiliesTest, Qwen2HasBiasesOfQueriesKeysAndValuesOnly) {
  EXPECT_EQ(
      Described(Small(DecoderFamily::kQwen2)),
      (std::vector<std::string>{
          "model.embed_tokens.weight 30 12", "model.layers.0.input_layernorm.weight 12",
          "model.layers.0.self_attn.q_proj.weight 12 12", "model.layers.0.self_attn.q_proj.bias 12",
          "model.layers.0.self_attn.k_proj.weight 4 12", "model.layers.0.self_attn.k_proj.bias 4",
          "model.layers.0.self_attn.v_proj.weight 4 12", "model.layers.0.self_attn.v_proj.bias 4",
          "model.layers.0.self_attn.o_proj.weight 12 12",
          "model.layers.0.post_attention_layernorm.weight 12",
          "model.layers.0.mlp.gate_proj.weight 20 12", "model.layers.0.mlp.up_proj.weight 20 12",
          "model.layers.0.mlp.down_proj.weight 12 20", "model.norm.weight 12",
          "lm_head.weight 30 12"}));
}

TEST(FamiliesTest, Qwen3NormsHeads) {
  DecoderConfig config = Small(DecoderFamily::kQwen3);
  config.head_dim = 6;
  config.tie_embeddings = true;
  EXPECT_EQ(
      Described(config),
      (std::vector<std::string>{
          "model.embed_tokens.weight 30 12", "model.layers.0.input_layernorm.weight 12",
          "model.layers.0.self_attn.q_proj.weight 18 12",
          "model.layers.0.self_attn.k_proj.weight 6 12",
          "model.layers.0.self_attn.v_proj.weight 6 12", "model.layers.0.self_attn.q_norm.weight 6",
          "model.layers.0.self_attn.k_norm.weight 6",
          "model.layers.0.self_attn.o_proj.weight 12 18",
          "model.layers.0.post_attention_layernorm.weight 12",
          "model.layers.0.mlp.gate_proj.weight 20 12", "model.layers.0.mlp.up_proj.weight 20 12",
          "model.layers.0.mlp.down_proj.weight 12 20", "model.norm.weight 12"}));
}

TEST(FamiliesTest, DefaultsAreValidOnceExtentsAreSet) {
  for (const DecoderFamily family : kFamilies) {
    EXPECT_THAT(ValidateDecoderConfig(Small(family)), IsOk()) << family;
    EXPECT_THAT(ValidateDecoderConfig(FamilyDefaults(family)),
                StatusIs(absl::StatusCode::kInvalidArgument, "layers"));
  }
}

TEST(FamiliesTest, EveryTensorHasItsOwnNamePlaceAndStart) {
  for (const DecoderFamily family : kFamilies) {
    std::set<std::string> names;
    std::set<std::tuple<DecoderRole, DecoderPart, int64_t>> places;
    for (const DecoderTensor& tensor : DecoderTensors(Small(family))) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      EXPECT_TRUE(places.insert({tensor.role, tensor.part, tensor.layer}).second) << tensor.name;
      const bool is_norm = tensor.name.find("norm") != std::string::npos ||
                           tensor.name.find("ln_") != std::string::npos;
      const bool is_bias = tensor.part == DecoderPart::kBias;
      EXPECT_EQ(tensor.is_vector(), is_norm || is_bias) << tensor.name;
      EXPECT_EQ(tensor.initial == Initial::kZeros, is_bias) << tensor.name;
      EXPECT_EQ(tensor.initial == Initial::kOnes, is_norm && !is_bias) << tensor.name;
      const bool into_stream =
          tensor.role == DecoderRole::kAttentionOutput || tensor.role == DecoderRole::kDown;
      EXPECT_EQ(tensor.initial == Initial::kResidualNormal, into_stream && !is_bias) << tensor.name;
    }
  }
}

}  // namespace
}  // namespace gantry
