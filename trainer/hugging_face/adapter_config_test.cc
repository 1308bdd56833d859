#include "trainer/hugging_face/adapter_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(AdapterConfigTest, ReadsAnAdapter) {
  const auto config = ParseAdapterConfig(R"({
      "peft_type": "LORA", "r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "use_rslora": false,
      "target_modules": ["q_proj", "v_proj"], "bias": "none", "modules_to_save": null,
      "rank_pattern": {}, "use_dora": false, "fan_in_fan_out": true, "task_type": "CAUSAL_LM",
      "init_lora_weights": "gaussian", "base_model_name_or_path": "meta-llama/Llama-3.2-1B"})");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->rank, 16);
  EXPECT_EQ(config->alpha, 32.0);
  EXPECT_EQ(config->scale(), 2.0);
  EXPECT_EQ(config->dropout, 0.05);
  EXPECT_TRUE(config->fan_in_fan_out);
  EXPECT_THAT(config->target_modules, ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(config->base_model, "meta-llama/Llama-3.2-1B");
  const auto stabilized = ParseAdapterConfig(
      R"({"peft_type": "LORA", "r": 16, "lora_alpha": 32, "use_rslora": true,
          "target_modules": "all-linear"})");
  ASSERT_THAT(stabilized, IsOk());
  EXPECT_EQ(stabilized->scale(), 8.0);
  EXPECT_THAT(stabilized->target_modules, ElementsAre("all-linear"));
}

TEST(AdapterConfigTest, ComesBackAsItWasWritten) {
  AdapterConfig config{.rank = 3, .alpha = 4.5, .rank_stabilized = true, .dropout = 0.1};
  EXPECT_THAT(ParseAdapterConfig(MakeAdapterConfigJson(config)), IsOkAndHolds(config));
  config.alpha = 6;
  config.target_modules = {"c_attn"};
  config.fan_in_fan_out = true;
  config.base_model = "gpt2";
  const std::string text = MakeAdapterConfigJson(config);
  EXPECT_THAT(ParseAdapterConfig(text), IsOkAndHolds(config));
  EXPECT_NE(text.find("\"lora_alpha\": 6,"), std::string::npos) << text;
}

TEST(AdapterConfigTest, OtherAdaptersAreNamed) {
  struct Row {
    std::string_view more;
    std::string_view message;
  };
  for (const Row& row : {
           Row{R"("use_dora": true)", "use_dora is true, but only plain LoRA of linear maps"},
           Row{R"("use_dora": 1)", "use_dora is 1, but only plain LoRA"},
           Row{R"("modules_to_save": ["lm_head"])", "modules_to_save is a list of 1, but only"},
           Row{R"("rank_pattern": {"q_proj": 4})", "rank_pattern is an object, but only plain"},
           Row{R"("alpha_pattern": {"q_proj": 4})", "alpha_pattern is an object"},
           Row{R"("lora_bias": true)", "lora_bias is true"},
           Row{R"("bias": "all")", "bias is \"all\", only \"none\" is supported"},
           Row{R"("init_lora_weights": "pissa")", "is \"pissa\", which changes the base model"},
           Row{R"("init_lora_weights": 1)", "init_lora_weights is 1, not a text"},
           Row{R"("lora_alpha": "16")", "lora_alpha is \"16\", not a number"},
           Row{R"("lora_alpha": 1e9)", "outside [-1e+06, 1e+06]"},
           Row{R"("lora_dropout": 1.5)", "lora_dropout is 1.5, outside [0, 1]"},
           Row{R"("use_rslora": "yes")", "use_rslora is \"yes\", neither true nor false"},
           Row{R"("target_modules": [1])", "target_modules[0] is 1, not a text"},
           Row{R"("target_modules": 1)", "target_modules is 1, not a list"},
           Row{R"("base_model_name_or_path": 1)", "base_model_name_or_path is 1, not a text"},
           Row{R"("r": 8)", "the key 'r' is there twice"},
       }) {
    const std::string json = StrCat(R"({"peft_type": "LORA", "r": 8, )", row.more, "}");
    EXPECT_THAT(ParseAdapterConfig(json), StatusIs(kInvalid, std::string(row.message))) << json;
  }
  EXPECT_THAT(ParseAdapterConfig(""), StatusIs(kInvalid, "adapter_config.json: no JSON"));
  EXPECT_THAT(ParseAdapterConfig("[]"), StatusIs(kInvalid, "not an object"));
  EXPECT_THAT(ParseAdapterConfig("{}"), StatusIs(kInvalid, "peft_type is missing"));
  EXPECT_THAT(ParseAdapterConfig(R"({"peft_type": "IA3"})"),
              StatusIs(kInvalid, "peft_type is \"IA3\", only \"LORA\" is supported"));
  EXPECT_THAT(ParseAdapterConfig(R"({"peft_type": "LORA"})"), StatusIs(kInvalid, "r is missing"));
  EXPECT_THAT(ParseAdapterConfig(R"({"peft_type": "LORA", "r": 0})"),
              StatusIs(kInvalid, "r is 0, outside [1, 65536]"));
  EXPECT_THAT(ParseAdapterConfig(R"({"peft_type": "LORA", "r": 65537})"),
              StatusIs(kInvalid, "outside [1, 65536]"));
}

}  // namespace
}  // namespace gantry
