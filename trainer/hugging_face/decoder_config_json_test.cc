// Goal: config.json of both versions of Transformers gives the model it means, what cannot be run
// is refused with its key and value, and what is written is read again as the same model.
#include "trainer/hugging_face/decoder_config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/families.h"
#include "trainer/models/rotary.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Json = nlohmann::json;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Json Llama() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 128,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": [2, 3], "use_cache": true, "pretraining_tp": 1})");
}
Json Gpt2() {
  return Json::parse(R"({
    "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32,
    "n_inner": null, "vocab_size": 100, "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
    "scale_attn_weights": true, "eos_token_id": 50256, "n_ctx": 32})");
}
Json Qwen3() {
  Json json = Llama();
  json["model_type"] = "qwen3";
  json["head_dim"] = 32;
  return json;
}

absl::StatusOr<HuggingFaceConfig> Parse(const Json& json,
                                        ModelPurpose purpose = ModelPurpose::kInference) {
  return ParseHuggingFaceConfig(json.dump(), purpose);
}
Json With(Json json, std::string_view key, Json value) {
  json[std::string(key)] = std::move(value);
  return json;
}
Json Without(Json json, std::string_view key) {
  json.erase(std::string(key));
  return json;
}

TEST(DecoderConfigJsonTest, ReadsALlamaOfVersion4) {
  const auto config = Parse(Llama(), ModelPurpose::kTraining);
  ASSERT_THAT(config, IsOk());
  const DecoderConfig& decoder = config->decoder;
  EXPECT_EQ(decoder.family, DecoderFamily::kLlama);
  EXPECT_EQ(decoder.layers, 2);
  EXPECT_EQ(decoder.width, 64);
  EXPECT_EQ(decoder.heads, 4);
  EXPECT_EQ(decoder.kv_heads, 2);
  EXPECT_EQ(decoder.head_dim, 16);
  EXPECT_EQ(decoder.ffn_width, 96);
  EXPECT_EQ(decoder.vocabulary, 100);
  EXPECT_EQ(decoder.max_sequence, 128);
  EXPECT_EQ(decoder.rope_theta, 500000.0);
  EXPECT_EQ(decoder.rope_scaling, RopeScaling{});
  EXPECT_EQ(decoder.norm_epsilon, 1e-5);
  EXPECT_FALSE(decoder.tie_embeddings);
  EXPECT_FALSE(decoder.query_key_value_bias);
  EXPECT_THAT(decoder.windows, IsEmpty());
  EXPECT_EQ(config->dtype, DType::kBF16);
  EXPECT_THAT(config->end_tokens, ElementsAre(2, 3));
  EXPECT_EQ(config->begin_token, 1);
  EXPECT_EQ(config->padding_token, std::nullopt);
}

TEST(DecoderConfigJsonTest, BothVersionsGiveTheSameModel) {
  const Json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64},
                        {"rope_type", "llama3"}};
  const auto version4 = Parse(With(Llama(), "rope_scaling", scaling));
  ASSERT_THAT(version4, IsOk());
  Json json = Without(Without(Llama(), "rope_theta"), "torch_dtype");
  json["dtype"] = "bfloat16";
  json["rope_parameters"] = With(scaling, "rope_theta", 500000.0);
  const auto version5 = Parse(json);
  ASSERT_THAT(version5, IsOk());
  EXPECT_EQ(version4->decoder, version5->decoder);
  EXPECT_EQ(version4->dtype, version5->dtype);
  EXPECT_EQ(version5->decoder.rope_scaling.kind, RopeScalingKind::kLlama3);
  EXPECT_EQ(version5->decoder.rope_scaling.factor, 8.0);
  EXPECT_EQ(version5->decoder.rope_scaling.original_positions, 64);
  // The old name of the kind.
  Json old = Without(scaling, "rope_type");
  old["type"] = "llama3";
  const auto oldest = Parse(With(Llama(), "rope_scaling", old));
  ASSERT_THAT(oldest, IsOk());
  EXPECT_EQ(oldest->decoder, version5->decoder);
}

TEST(DecoderConfigJsonTest, ReadsEveryKindOfRope) {
  const auto scaling = [](Json rope) {
    const auto config = Parse(With(Llama(), "rope_scaling", std::move(rope)));
    EXPECT_THAT(config, IsOk());
    return config.ok() ? config->decoder.rope_scaling : RopeScaling{};
  };
  EXPECT_EQ(scaling({{"rope_type", "default"}}), RopeScaling{});
  EXPECT_EQ(scaling(Json::object()), RopeScaling{});
  EXPECT_EQ(scaling({{"type", "linear"}, {"factor", 2.0}}).factor, 2.0);
  const RopeScaling dynamic = scaling({{"rope_type", "dynamic"}, {"factor", 4}});
  EXPECT_EQ(dynamic.kind, RopeScalingKind::kDynamic);
  EXPECT_EQ(dynamic.original_positions, 128);
  const RopeScaling yarn = scaling({{"rope_type", "yarn"},
                                    {"factor", 4.0},
                                    {"original_max_position_embeddings", 32},
                                    {"beta_fast", 16},
                                    {"truncate", false},
                                    {"attention_factor", nullptr}});
  EXPECT_EQ(yarn.beta_fast, 16.0);
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_EQ(yarn.original_positions, 32);
  const std::vector<double> factors(8, 1.5);
  const RopeScaling longrope = scaling({{"rope_type", "longrope"},
                                        {"short_factor", factors},
                                        {"long_factor", factors},
                                        {"original_max_position_embeddings", 32}});
  EXPECT_EQ(longrope.factor, 4.0);
  EXPECT_EQ(longrope.long_factors, factors);
}

TEST(DecoderConfigJsonTest, ReadsGpt2) {
  const auto config = Parse(Gpt2());
  ASSERT_THAT(config, IsOk());
  const DecoderConfig& decoder = config->decoder;
  EXPECT_EQ(decoder.family, DecoderFamily::kGpt2);
  EXPECT_EQ(decoder.ffn_width, 256);
  EXPECT_EQ(decoder.positions, 32);
  EXPECT_EQ(decoder.max_sequence, 32);
  EXPECT_EQ(decoder.activation, ActivationKind::kGeluTanh);
  EXPECT_TRUE(decoder.tie_embeddings);
  EXPECT_THAT(config->end_tokens, ElementsAre(50256));
  EXPECT_EQ(config->dtype, std::nullopt);
  const auto exact = Parse(With(Gpt2(), "activation_function", "gelu"));
  ASSERT_THAT(exact, IsOk());
  EXPECT_EQ(exact->decoder.activation, ActivationKind::kGelu);
}

TEST(DecoderConfigJsonTest, ReadsTheOtherFamilies) {
  Json json = With(Llama(), "model_type", "mistral");
  json["sliding_window"] = 32;
  auto config = Parse(json);
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->decoder.windows, ElementsAre(32, 32));
  config = Parse(With(json, "sliding_window", nullptr));
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->decoder.windows, IsEmpty());

  json = With(Llama(), "model_type", "qwen2");
  json["layer_types"] = {"full_attention", "full_attention"};
  json["use_sliding_window"] = false;
  json["sliding_window"] = 32768;
  config = Parse(json);
  ASSERT_THAT(config, IsOk());
  EXPECT_TRUE(config->decoder.query_key_value_bias);
  EXPECT_FALSE(config->decoder.attention_output_bias);
  EXPECT_THAT(config->decoder.windows, IsEmpty());

  config = Parse(Qwen3());
  ASSERT_THAT(config, IsOk());
  EXPECT_TRUE(config->decoder.query_key_norm);
  EXPECT_EQ(config->decoder.head_dim, 32);
}

TEST(DecoderConfigJsonTest, DropoutMattersToTrainingOnly) {
  EXPECT_THAT(Parse(Gpt2(), ModelPurpose::kInference), IsOk());
  EXPECT_THAT(Parse(Gpt2(), ModelPurpose::kTraining),
              StatusIs(kInvalid, "attn_pdrop is 0.1, but training has no dropout"));
  EXPECT_THAT(Parse(With(Llama(), "attention_dropout", 0.05), ModelPurpose::kTraining),
              StatusIs(kInvalid, "config.json: attention_dropout is 0.05, but training has no"));
  EXPECT_THAT(Parse(With(Llama(), "attention_dropout", 2)),
              StatusIs(kInvalid, "attention_dropout is 2, outside [0, 1]"));
}

struct Row {
  Json json;
  std::string_view message;
};

TEST(DecoderConfigJsonTest, WhatCannotBeRunIsNamed) {
  Json qwen2 = With(Llama(), "model_type", "qwen2");
  const Json llama3 = {{"rope_type", "llama3"}, {"factor", 8.0}};
  const std::vector<Row> table = {
      {With(Llama(), "model_type", "mixtral"), "num_local_experts is missing"},
      {With(Llama(), "model_type", "falcon"), "model_type is \"falcon\"; it must be one of gpt2"},
      {With(Llama(), "hidden_act", "gelu"), "hidden_act is \"gelu\", only silu is supported"},
      {With(Gpt2(), "activation_function", "relu"),
       "activation_function is \"relu\", it must be gelu_new, gelu_pytorch_tanh or gelu"},
      {With(Llama(), "quantization_config", {{"bits", 4}}),
       "quantization_config is an object, but only models that are not quantised"},
      {With(Llama(), "partial_rotary_factor", 0.5), "partial_rotary_factor is 0.5, only 1 is"},
      {With(Llama(), "rope_parameters", {{"partial_rotary_factor", 0.5}}),
       "rope_parameters.partial_rotary_factor is 0.5, only 1 is"},
      {With(Llama(), "rope_scaling", {{"type", "mrope"}}),
       "rope_scaling.type is \"mrope\", it must be one of default, linear, dynamic, llama3, yarn"},
      {With(Llama(), "rope_scaling", {{"type", "linear"}}), "rope_scaling.factor is missing"},
      {With(Llama(), "rope_scaling", {{"type", "linear"}, {"factor", nullptr}}),
       "rope_scaling.factor is null, not a number"},
      {With(Llama(), "rope_scaling", {{"type", "linear"}, {"factor", -1}}),
       "rope_scaling.factor is -1, outside"},
      {With(Llama(), "rope_scaling", {{"type", "linear"}, {"factor", "2"}}), "not a number"},
      {With(Llama(), "rope_scaling", {{"type", 1}}), "rope_scaling.type is 1, not a text"},
      {With(Llama(), "rope_scaling", 1), "rope_scaling is 1, not an object"},
      {With(Llama(), "rope_scaling", llama3), "rope_scaling.low_freq_factor is missing"},
      {With(Llama(), "rope_scaling", {{"type", "longrope"}, {"long_factor", {1}}}),
       "rope_scaling.short_factor is missing"},
      {With(Llama(), "rope_scaling", {{"type", "longrope"}, {"short_factor", {1}}}),
       "rope_scaling.short_factor is a list of 1, not a list of 8"},
      {With(Llama(), "rope_theta", 0), "rope_theta is 0, outside"},
      {With(Llama(), "rope_theta", "10000"), "rope_theta is \"10000\", not a number"},
      {With(With(Llama(), "rope_scaling", llama3), "rope_parameters", llama3),
       "while rope_parameters is there too"},
      {With(Llama(), "rms_norm_eps", 0), "rms_norm_eps is 0, outside"},
      {With(Llama(), "rms_norm_eps", -1e-5), "rms_norm_eps is -1e-05, outside"},
      {With(Llama(), "torch_dtype", "float8"), "torch_dtype is \"float8\", it must be float32"},
      {With(Llama(), "dtype", 16), "dtype is 16, not a text"},
      {With(Llama(), "eos_token_id", "</s>"), "eos_token_id is \"</s>\", not an integer"},
      {With(qwen2, "use_sliding_window", true), "use_sliding_window is true; only false is"},
      {With(qwen2, "layer_types", {"full_attention", "sliding_attention"}),
       "layer_types[1] is \"sliding_attention\", only full_attention is supported"},
      {With(qwen2, "layer_types", "full_attention"),
       "layer_types is \"full_attention\", not a list"},
      {With(Gpt2(), "scale_attn_weights", false), "scale_attn_weights is false, only true is"},
      {With(Gpt2(), "scale_attn_by_inverse_layer_idx", true), "is true, only false is supported"},
      {With(Gpt2(), "add_cross_attention", true), "add_cross_attention is true; only false"},
      // Sizes.
      {With(Llama(), "hidden_size", -64), "hidden_size is -64; it must be an integer in [1, "},
      {With(Llama(), "num_hidden_layers", 1e300), "num_hidden_layers is 1e+300; it must be"},
      {With(Llama(), "num_hidden_layers", 1 << 30), "num_hidden_layers is 1073741824; it must"},
      {With(Llama(), "vocab_size", 0), "vocab_size is 0; it must be"},
      {With(Llama(), "num_key_value_heads", 3), "num_key_value_heads is 3; it must divide"},
      {With(Llama(), "num_attention_heads", 64), "must be even for rotary positions, not 1"},
      {With(Llama(), "max_position_embeddings", -1), "max_position_embeddings is -1, outside"},
      {Without(Llama(), "max_position_embeddings"), "max_position_embeddings is missing"},
      {Without(Llama(), "hidden_size"), "hidden_size is missing"},
      {Json::array(), "not an object"},
  };
  for (const Row& row : table) {
    const auto config = Parse(row.json);
    EXPECT_THAT(config, StatusIs(kInvalid, std::string(row.message)));
    EXPECT_THAT(config, StatusIs(kInvalid, "config.json")) << row.message;
  }
}

TEST(DecoderConfigJsonTest, PlannedFamiliesAreTold) {
  Json json = With(Llama(), "model_type", "mixtral");
  json["num_local_experts"] = 8;
  json["num_experts_per_tok"] = 2;
  EXPECT_THAT(Parse(json), StatusIs(kInvalid,
                                    "mixtral, which can be planned but not run; run are "
                                    "gpt2, llama, mistral, qwen2, qwen3"));
}

// Of all families and kinds of positions.
std::vector<DecoderConfig> Models() {
  std::vector<DecoderConfig> models;
  const std::vector<Json> files = {Llama(), Gpt2(), With(Llama(), "model_type", "mistral"),
                                   With(Llama(), "model_type", "qwen2"), Qwen3()};
  for (const Json& json : files) models.push_back(Parse(json)->decoder);
  models.push_back(Parse(With(With(Llama(), "attention_bias", true), "mlp_bias", true))->decoder);
  models.push_back(Parse(With(Llama(), "tie_word_embeddings", true))->decoder);
  const std::vector<double> factors(8, 1.5);
  const std::vector<Json> ropes = {
      {{"type", "linear"}, {"factor", 2.0}},
      {{"type", "dynamic"}, {"factor", 2.0}},
      {{"type", "llama3"},
       {"factor", 8.0},
       {"low_freq_factor", 1.0},
       {"high_freq_factor", 4.0},
       {"original_max_position_embeddings", 64}},
      {{"type", "yarn"}, {"factor", 4.0}, {"mscale", 0.7}, {"mscale_all_dim", 0.5}},
      {{"type", "yarn"}, {"factor", 4.0}, {"attention_factor", 0.9}, {"truncate", false}},
      {{"type", "longrope"}, {"short_factor", factors}, {"long_factor", factors}}};
  for (const Json& rope : ropes) {
    models.push_back(Parse(With(Llama(), "rope_scaling", rope))->decoder);
  }
  models.push_back(
      Parse(With(With(Llama(), "model_type", "mistral"), "sliding_window", nullptr))->decoder);
  return models;
}

TEST(DecoderConfigJsonTest, WhatIsWrittenIsReadAgain) {
  for (const DecoderConfig& model : Models()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const std::string text = MakeConfigJson(model, dtype);
      const auto config = ParseHuggingFaceConfig(text, ModelPurpose::kTraining);
      ASSERT_THAT(config, IsOk()) << text;
      EXPECT_EQ(config->decoder, model) << text;
      EXPECT_EQ(config->dtype, dtype);
    }
  }
}

TEST(DecoderConfigJsonTest, OnlyTheTypeIsReplaced) {
  const auto version4 = WithDType(Llama().dump(), DType::kF32);
  ASSERT_THAT(version4, IsOk());
  EXPECT_EQ(Json::parse(*version4), With(Llama(), "torch_dtype", "float32"));
  Json json = Without(Llama(), "torch_dtype");
  json["dtype"] = "float32";
  const auto version5 = WithDType(json.dump(), DType::kF16);
  ASSERT_THAT(version5, IsOk());
  EXPECT_EQ(Json::parse(*version5), With(json, "dtype", "float16"));
  EXPECT_THAT(WithDType(R"({"z": 1, "a": 2})", DType::kBF16),
              IsOkAndHolds("{\n  \"z\": 1,\n  \"a\": 2,\n  \"torch_dtype\": \"bfloat16\"\n}\n"));
  EXPECT_THAT(WithDType("[]", DType::kF32), StatusIs(kInvalid, "not an object"));
  EXPECT_THAT(WithDType("{", DType::kF32), StatusIs(kInvalid, "no JSON"));
}

}  // namespace
}  // namespace gantry
