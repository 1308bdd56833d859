// Goal: published config.json files give the shapes whose parameters are counted exactly, and every
// missing or absurd value is refused with its key and what is allowed.
#include "placement_policy/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/model_structure.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr std::string_view kGpt2 = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
  "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 50257})";
constexpr std::string_view kLlama2 = R"({
  "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
  "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "tie_word_embeddings": false, "torch_dtype": "float16", "use_cache": true,
  "vocab_size": 32000})";
constexpr std::string_view kLlama3 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072,
  "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "rope_theta": 500000.0,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})";
constexpr std::string_view kLlama3Large = R"({
  "hidden_size": 8192, "intermediate_size": 28672, "model_type": "llama",
  "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8,
  "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 128256})";
constexpr std::string_view kMistral = R"({
  "architectures": ["MistralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
  "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false,
  "vocab_size": 32000})";
constexpr std::string_view kMixtral = R"({
  "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
  "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "num_local_experts": 8, "output_router_logits": false, "rope_theta": 1000000.0,
  "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false,
  "vocab_size": 32000})";
constexpr std::string_view kQwen2 = R"({
  "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944,
  "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "qwen2",
  "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
  "sliding_window": 131072, "tie_word_embeddings": false, "use_sliding_window": false,
  "vocab_size": 152064})";
constexpr std::string_view kQwen3 = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128,
  "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 40960,
  "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32,
  "num_hidden_layers": 36, "num_key_value_heads": 8, "rope_scaling": null,
  "sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false,
  "vocab_size": 151936})";
constexpr std::string_view kDeepSeek = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "ep_size": 1,
  "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432,
  "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v3",
  "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
  "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
  "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
  "quantization_config": {"fmt": "e4m3", "weight_block_size": [128, 128]},
  "tie_word_embeddings": false, "topk_group": 4, "v_head_dim": 128, "vocab_size": 129280})";

struct Published {
  std::string_view name;
  std::string_view config;
  int64_t parameters;
};
// Counts as the models are published with. DeepSeek-V3's is what its 61 layers add up to: 58 x 256
// biases of the routers included, the layer that predicts a second token left out (the report,
// arXiv 2412.19437, says 671B).
const std::vector<Published>& AllPublished() {
  static const std::vector<Published> all = {
      {"gpt2", kGpt2, 124'439'808},
      {"llama2-7b", kLlama2, 6'738'415'616},
      {"llama3-8b", kLlama3, 8'030'261'248},
      {"llama3-70b", kLlama3Large, 70'553'706'496},
      {"mistral-7b", kMistral, 7'241'732'096},
      {"mixtral-8x7b", kMixtral, 46'702'792'704},
      {"qwen2-7b", kQwen2, 7'615'616'512},
      {"qwen3-8b", kQwen3, 8'190'735'360},
      {"deepseek-v3", kDeepSeek, 671'026'419'200},
  };
  return all;
}

// `config` with one key changed; null removes it.
std::string With(std::string_view config, const std::string& key, const Json& value) {
  Json json = Json::parse(config);
  json[key] = value;
  return json.dump();
}
std::string Without(std::string_view config, const std::string& key) {
  Json json = Json::parse(config);
  json.erase(key);
  return json.dump();
}

TEST(ModelConfigTest, PublishedConfigsCountTheirParametersExactly) {
  for (const Published& model : AllPublished()) {
    SCOPED_TRACE(std::string(model.name));
    const auto shape = ParseModelConfig(model.config);
    ASSERT_THAT(shape, IsOk());
    EXPECT_EQ(ParameterCount(*shape), model.parameters);
    int64_t sum = 0;
    for (const TensorShape& tensor : TensorsOf(*shape)) sum += tensor.elements();
    EXPECT_EQ(sum, model.parameters);
  }
}

TEST(ModelConfigTest, BuiltInModelsAreThePublishedOnes) {
  EXPECT_EQ(BuiltInModelNames().size(), AllPublished().size());
  for (const Published& model : AllPublished()) {
    const auto shape = ParseModelConfig(model.config);
    ASSERT_THAT(shape, IsOk());
    EXPECT_THAT(BuiltInModel(model.name), IsOkAndHolds(*shape)) << model.name;
  }
  EXPECT_THAT(BuiltInModel("llama4"),
              StatusIs(absl::StatusCode::kNotFound, "gpt2, llama2-7b, llama3-8b"));
}

TEST(ModelConfigTest, DefaultsAreThoseOfTransformers) {
  const auto shape_of = [](const std::string& config) {
    const auto shape = ParseModelConfig(config);
    EXPECT_THAT(shape, IsOk()) << config;
    return shape.ok() ? *shape : ModelShape{};
  };
  EXPECT_EQ(shape_of(Without(kLlama3, "num_key_value_heads")).kv_heads, 32);
  EXPECT_EQ(shape_of(Without(kLlama3, "tie_word_embeddings")).tied_embeddings, false);
  EXPECT_EQ(shape_of(With(kLlama3, "head_dim", 64)).head_dim, 64);
  EXPECT_EQ(shape_of(With(kLlama3, "head_dim", nullptr)).head_dim, 128);
  EXPECT_EQ(shape_of(With(kGpt2, "n_inner", nullptr)).ffn_width, 3072);
  EXPECT_EQ(shape_of(With(kGpt2, "n_inner", 1000)).ffn_width, 1000);
  EXPECT_EQ(shape_of(With(kGpt2, "tie_word_embeddings", false)).tied_embeddings, false);
  EXPECT_EQ(shape_of(Without(kMistral, "sliding_window")).window, 4096);
  EXPECT_EQ(shape_of(With(kMistral, "sliding_window", nullptr)).window, 0);
  EXPECT_EQ(shape_of(Without(kMixtral, "sliding_window")).window, 0);
  EXPECT_EQ(shape_of(With(kDeepSeek, "q_lora_rank", nullptr)).latent.query_rank, 0);
  EXPECT_EQ(shape_of(With(kDeepSeek, "n_shared_experts", nullptr)).mixture.shared_experts, 0);
  EXPECT_EQ(shape_of(Without(kDeepSeek, "moe_layer_freq")).mixture.experts, 256);
}

TEST(ModelConfigTest, BiasesAndTiedTablesChangeTheCount) {
  const auto count = [](const std::string& config) {
    const auto shape = ParseModelConfig(config);
    EXPECT_THAT(shape, IsOk()) << config;
    return shape.ok() ? ParameterCount(*shape) : -1;
  };
  const int64_t llama = 8'030'261'248;
  EXPECT_EQ(count(With(kLlama3, "tie_word_embeddings", true)), llama - int64_t{128256} * 4096);
  EXPECT_EQ(count(With(kLlama3, "attention_bias", true)), llama + 32 * (4096 + 2 * 1024 + 4096));
  EXPECT_EQ(count(With(kLlama3, "mlp_bias", true)), llama + 32 * (2 * 14336 + 4096));
  EXPECT_EQ(count(With(kDeepSeek, "attention_bias", true)),
            671'026'419'200 + 61 * (1536 + (512 + 64) + 7168));
  // Queries of full rank: [heads x 192, hidden] instead of two narrow matrices and a norm.
  const int64_t narrow = 7168 * 1536 + 1536 + 1536 * 128 * 192;
  EXPECT_EQ(count(With(kDeepSeek, "q_lora_rank", nullptr)),
            671'026'419'200 + 61 * (int64_t{7168} * 128 * 192 - narrow));
}

TEST(ModelConfigTest, EveryNeededKeyIsNamedWhenItIsMissing) {
  const std::vector<std::pair<std::string_view, std::vector<const char*>>> needed = {
      {kGpt2, {"n_layer", "n_embd", "n_head", "vocab_size", "n_positions", "model_type"}},
      {kLlama3,
       {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
        "vocab_size"}},
      {kMistral, {"num_key_value_heads", "intermediate_size"}},
      {kMixtral,
       {"num_key_value_heads", "intermediate_size", "num_local_experts", "num_experts_per_tok"}},
      {kQwen2, {"num_key_value_heads", "intermediate_size", "hidden_size"}},
      {kQwen3, {"num_key_value_heads", "head_dim", "intermediate_size"}},
      {kDeepSeek,
       {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
        "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts",
        "first_k_dense_replace", "intermediate_size", "vocab_size"}},
  };
  for (const auto& [config, keys] : needed) {
    for (const char* key : keys) {
      EXPECT_THAT(ParseModelConfig(Without(config, key)),
                  StatusIs(kInvalid, StrCat("config.json: ", key, " is missing; ")));
    }
  }
}

TEST(ModelConfigTest, AbsurdValuesAreNamedWithWhatIsAllowed) {
  const Json bad_numbers[] = {0,
                              -1,
                              1.5,
                              4096.0,
                              "4096",
                              nullptr,
                              true,
                              Json::array({1}),
                              18446744073709551615u,
                              (int64_t{1} << 24) + 1};
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads",
                          "intermediate_size", "vocab_size"}) {
    for (const Json& value : bad_numbers) {
      EXPECT_THAT(
          ParseModelConfig(With(kLlama3, key, value)),
          StatusIs(kInvalid, AllOf(HasSubstr(StrCat(key, " is ", value.dump(), "; it must be")),
                                   HasSubstr("an integer in [1, "))));
    }
  }
  EXPECT_THAT(ParseModelConfig(With(kLlama3, "tie_word_embeddings", 1)),
              StatusIs(kInvalid, "tie_word_embeddings is 1; it must be true or false"));
  EXPECT_THAT(ParseModelConfig(With(kLlama3, "num_key_value_heads", 5)),
              StatusIs(kInvalid,
                       "num_key_value_heads is 5; it must divide num_attention_heads, "
                       "32"));
  EXPECT_THAT(ParseModelConfig(With(kLlama3, "num_key_value_heads", 33)),
              StatusIs(kInvalid,
                       "num_key_value_heads is 33; it must be null or an integer in "
                       "[1, 32]"));
  EXPECT_THAT(ParseModelConfig(With(kLlama3, "num_attention_heads", 24)),
              StatusIs(kInvalid, "it must divide"));
  EXPECT_THAT(ParseModelConfig(With(kMixtral, "num_experts_per_tok", 9)),
              StatusIs(kInvalid, "num_experts_per_tok is 9; it must be an integer in [1, 8]"));
  EXPECT_THAT(ParseModelConfig(With(kDeepSeek, "first_k_dense_replace", 62)),
              StatusIs(kInvalid, "first_k_dense_replace is 62; it must be an integer in [0, 61]"));
  EXPECT_THAT(ParseModelConfig(With(kDeepSeek, "moe_layer_freq", 2)),
              StatusIs(kInvalid, "moe_layer_freq is 2; it must be null or an integer in [1, 1]"));
  EXPECT_THAT(ParseModelConfig(With(kQwen2, "use_sliding_window", true)),
              StatusIs(kInvalid, "use_sliding_window is true; only false is supported"));
  EXPECT_THAT(ParseModelConfig(With(kGpt2, "add_cross_attention", true)),
              StatusIs(kInvalid, "add_cross_attention is true"));
  EXPECT_THAT(ParseModelConfig(With(kLlama3, "model_type", "lama")),
              StatusIs(kInvalid, "model_type is \"lama\"; it must be one of gpt2, llama, mistral"));
  EXPECT_THAT(ParseModelConfig(With(kLlama3, "model_type", std::string(5000, 'x'))),
              StatusIs(kInvalid, "xxx...; it must be one of"));
}

TEST(ModelConfigTest, LimitsAreIncluded) {
  EXPECT_THAT(ParseModelConfig(With(kLlama3, "num_hidden_layers", kModelLayersMax)), IsOk());
  EXPECT_THAT(ParseModelConfig(With(kLlama3, "num_hidden_layers", kModelLayersMax + 1)),
              StatusIs(kInvalid, "num_hidden_layers is 4097"));
  EXPECT_THAT(ParseModelConfig(With(kLlama3, "vocab_size", kModelWidthMax)), IsOk());
  EXPECT_THAT(ParseModelConfig(With(kLlama3, "vocab_size", 1)), IsOk());
  // Each extent in its limits, their product not.
  Json wide = Json::parse(kLlama3);
  wide["hidden_size"] = kModelWidthMax;
  wide["intermediate_size"] = kModelWidthMax;
  wide["num_attention_heads"] = kModelHeadsMax;
  EXPECT_THAT(ParseModelConfig(wide.dump()), StatusIs(kInvalid, "more than 1125899906842624"));
  Json many = Json::parse(kDeepSeek);
  many["n_routed_experts"] = kModelExpertsMax;
  EXPECT_THAT(ParseModelConfig(many.dump()), StatusIs(kInvalid, "tensors"));
}

TEST(ModelConfigTest, RefusesWhatIsNoObject) {
  for (const char* text :
       {"", "{", "{\"model_type\": \"gpt2\"} x", "{'model_type': 1}", "{\"a\": \"\xff\"}"}) {
    EXPECT_THAT(ParseModelConfig(text), StatusIs(kInvalid, "config.json: no JSON from")) << text;
  }
  for (const char* text : {"[]", "7", "null"}) {
    EXPECT_THAT(ParseModelConfig(text), StatusIs(kInvalid, "not an object")) << text;
  }
  EXPECT_THAT(ParseModelConfig(R"({"model_type": "gpt2", "model_type": "llama"})"),
              StatusIs(kInvalid, "the key 'model_type' is there twice"));
}

TEST(ModelConfigTest, BoundsSizeAndDepth) {
  const auto nested = [](int depth) {
    return With(kGpt2, "extra",
                Json::parse(std::string(static_cast<size_t>(depth), '[') +
                            std::string(static_cast<size_t>(depth), ']')));
  };
  EXPECT_THAT(ParseModelConfig(nested(kModelConfigDepthMax - 1)), IsOk());
  EXPECT_THAT(ParseModelConfig(nested(kModelConfigDepthMax)), StatusIs(kInvalid, "deeper than 32"));
  EXPECT_THAT(ParseModelConfig(std::string(100'000, '[')), StatusIs(kInvalid, "deeper than 32"));
  std::string large(kGpt2);
  large.resize(kModelConfigBytesMax, ' ');
  EXPECT_THAT(ParseModelConfig(large), IsOk());
  large.push_back(' ');
  EXPECT_THAT(ParseModelConfig(large), StatusIs(kInvalid, "1048577 bytes; the most is 1048576"));
}

TEST(ModelConfigTest, CutTextNeverPasses) {
  for (size_t size = 0; size < kDeepSeek.size(); ++size) {
    EXPECT_THAT(ParseModelConfig(kDeepSeek.substr(0, size)), StatusIs(kInvalid)) << size;
  }
}

TEST(ModelConfigTest, ChangedBytesGiveAnErrorOrAValidShape) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const Random random({.seed = seed, .stream = 0});
    const auto below = [&](size_t bound, uint64_t index) {
      return static_cast<size_t>(random.Below(static_cast<int64_t>(bound), index));
    };
    std::string text(AllPublished()[below(AllPublished().size(), 0)].config);
    for (uint64_t i = 0; i <= below(3, 1); ++i) {
      // Digits and signs change numbers rather than break the text.
      static constexpr std::string_view kBytes = "0123456789-.e\",:{}[] \x80n";
      text[below(text.size(), 2 + 2 * i)] = kBytes[below(kBytes.size(), 3 + 2 * i)];
    }
    const auto shape = ParseModelConfig(text);
    if (!shape.ok()) {
      EXPECT_THAT(shape, StatusIs(kInvalid));
      continue;
    }
    ++accepted;
    EXPECT_THAT(shape->Validate(), IsOk());
  }
  // Neither all nor none, so both ends are met.
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 2900);
}

}  // namespace
}  // namespace gantry
