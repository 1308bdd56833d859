#include "trainer/models/lora_config.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

DecoderConfig Model(DecoderFamily family) {
  DecoderConfig config = FamilyDefaults(family);
  config.layers = 12;
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

LoraConfig Targets(const std::vector<std::string>& targets) {
  return {.rank = 2, .targets = targets};
}

// Names of the weights that have adapters.
std::vector<std::string> Adapted(DecoderFamily family, const std::vector<std::string>& targets) {
  const auto tensors = AdapterTensors(Model(family), Targets(targets));
  EXPECT_THAT(tensors, IsOk());
  std::vector<std::string> names;
  for (const AdapterTensor& tensor : *tensors) {
    if (tensor.part == AdapterPart::kA) names.push_back(tensor.base);
  }
  return names;
}

TEST(LoraConfigTest, TargetsAreEndsOfNamesOrPatterns) {
  const DecoderFamily llama = DecoderFamily::kLlama;
  EXPECT_EQ(Adapted(llama, {"q_proj"}).size(), 12U);
  EXPECT_EQ(Adapted(llama, {"q_proj", "v_proj"}).size(), 24U);
  EXPECT_EQ(Adapted(llama, {"self_attn.q_proj", "q_proj"}).size(), 12U);
  EXPECT_EQ(Adapted(llama, {"model.layers.1.mlp.up_proj"}),
            (std::vector<std::string>{"model.layers.1.mlp.up_proj.weight"}));
  // 1, 10 and 11; four maps of attention each.
  EXPECT_EQ(Adapted(llama, {"layers.1*.self_attn.*"}).size(), 12U);
  EXPECT_EQ(Adapted(llama, {"all-linear"}).size(), 12U * 7);
  EXPECT_EQ(Adapted(llama, {"*"}).size(), 12U * 7);
  EXPECT_EQ(Adapted(DecoderFamily::kGpt2, {"all-linear"}).size(), 12U * 4);
  EXPECT_EQ(Adapted(DecoderFamily::kGpt2, {"c_proj"}).size(), 24U);
  EXPECT_EQ(Adapted(DecoderFamily::kGpt2, {"attn.c_proj"}).size(), 12U);
}

TEST(LoraConfigTest, TargetsThatNothingHasAreErrors) {
  for (const char* target : {"proj", "lm_head", "embed_tokens", "q_proj.weight", "q_norm",
                             "layers.12.*", "input_layernorm"}) {
    EXPECT_THAT(AdapterTensors(Model(DecoderFamily::kQwen3), Targets({"q_proj", target})),
                StatusIs(absl::StatusCode::kInvalidArgument, target))
        << target;
  }
}

TEST(LoraConfigTest, NamesAndShapesArePefts) {
  LoraConfig lora = Targets({"layers.0.mlp.down_proj", "layers.0.self_attn.k_proj"});
  lora.magnitudes = true;
  const auto tensors = AdapterTensors(Model(DecoderFamily::kLlama), lora);
  ASSERT_THAT(tensors, IsOk());
  std::vector<std::string> lines;
  for (const AdapterTensor& tensor : *tensors) {
    std::string line = tensor.name;
    for (const int64_t extent : tensor.shape) line += StrCat(" ", extent);
    lines.push_back(line);
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{"model.layers.0.self_attn.k_proj.lora_A.weight 2 12",
                                      "model.layers.0.self_attn.k_proj.lora_B.weight 4 2",
                                      "model.layers.0.self_attn.k_proj.lora_magnitude_vector 4",
                                      "model.layers.0.mlp.down_proj.lora_A.weight 2 20",
                                      "model.layers.0.mlp.down_proj.lora_B.weight 12 2",
                                      "model.layers.0.mlp.down_proj.lora_magnitude_vector 12"}));
}

TEST(LoraConfigTest, ScalesArePefts) {
  LoraConfig lora{.rank = 16, .alpha = 8};
  EXPECT_EQ(lora.scale(), 0.5);
  lora.rank_stabilized = true;
  EXPECT_EQ(lora.scale(), 2.0);
}

TEST(LoraConfigTest, NamesTheBadField) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    const char* message;
    std::function<void(LoraConfig&)> change;
  } cases[] = {
      {"rank", [](LoraConfig& c) { c.rank = 0; }},
      {"rank", [](LoraConfig& c) { c.rank = (int64_t{1} << 20) + 1; }},
      {"alpha", [](LoraConfig& c) { c.alpha = 0; }},
      {"alpha", [nan](LoraConfig& c) { c.alpha = nan; }},
      {"dropout", [](LoraConfig& c) { c.dropout = 1; }},
      {"dropout", [nan](LoraConfig& c) { c.dropout = nan; }},
      {"targets are empty", [](LoraConfig& c) { c.targets.clear(); }},
      {"target is empty", [](LoraConfig& c) { c.targets.emplace_back(); }},
  };
  for (const auto& bad : cases) {
    LoraConfig lora = Targets({"q_proj"});
    ASSERT_THAT(ValidateLoraConfig(lora), IsOk());
    bad.change(lora);
    EXPECT_THAT(ValidateLoraConfig(lora),
                StatusIs(absl::StatusCode::kInvalidArgument, bad.message));
  }
}

}  // namespace
}  // namespace gantry
