#include "trainer/hugging_face/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(GenerationConfigTest, ReadsWhatSamplingNeeds) {
  const auto config = ParseGenerationConfig(R"({
      "_from_model_config": true, "bos_token_id": 1, "eos_token_id": [2, 128001],
      "pad_token_id": 0, "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
      "repetition_penalty": 1.1, "max_new_tokens": 512, "transformers_version": "4.51.0"})");
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->end_tokens, ElementsAre(2, 128001));
  EXPECT_EQ(config->begin_token, 1);
  EXPECT_EQ(config->padding_token, 0);
  EXPECT_EQ(config->do_sample, true);
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->top_p, 0.95);
  EXPECT_EQ(config->repetition_penalty, 1.1);
  EXPECT_EQ(config->max_new_tokens, 512);
}

TEST(GenerationConfigTest, WhatIsNotGivenIsEmpty) {
  EXPECT_THAT(ParseGenerationConfig("{}"), IsOkAndHolds(GenerationConfig{}));
  EXPECT_THAT(ParseGenerationConfig(R"({"eos_token_id": null, "pad_token_id": -1, "top_k": null,
                                        "temperature": null, "do_sample": null})"),
              IsOkAndHolds(GenerationConfig{}));
  const auto one = ParseGenerationConfig(R"({"eos_token_id": 7})");
  ASSERT_THAT(one, IsOk());
  EXPECT_THAT(one->end_tokens, ElementsAre(7));
  const auto none = ParseGenerationConfig(R"({"eos_token_id": []})");
  ASSERT_THAT(none, IsOk());
  EXPECT_THAT(none->end_tokens, IsEmpty());
}

TEST(GenerationConfigTest, WrongValuesAreNamed) {
  struct Row {
    std::string_view json;
    std::string_view message;
  };
  for (const Row& row : {
           Row{"", "generation_config.json: no JSON from byte 1 on"},
           Row{"[]", "not an object"},
           Row{R"({"eos_token_id": "2"})", "eos_token_id is \"2\", not an integer"},
           Row{R"({"eos_token_id": [2, "x"]})", "eos_token_id[1] is \"x\", not an integer"},
           Row{R"({"eos_token_id": [-1]})", "eos_token_id[0] is -1, outside [0, 2147483647]"},
           Row{R"({"eos_token_id": 2147483648})", "outside [-1, 2147483647]"},
           Row{R"({"bos_token_id": 1.5})", "bos_token_id is 1.5, not an integer"},
           Row{R"({"temperature": -1})", "temperature is -1, outside [0, 10000]"},
           Row{R"({"temperature": "hot"})", "temperature is \"hot\", not a number"},
           Row{R"({"top_k": -1})", "top_k is -1, outside [0, "},
           Row{R"({"top_p": 1.5})", "top_p is 1.5, outside [0, 1]"},
           Row{R"({"repetition_penalty": 0})", "repetition_penalty is 0, outside"},
           Row{R"({"do_sample": 1})", "do_sample is 1, neither true nor false"},
           Row{R"({"top_k": 1, "top_k": 1})", "the key 'top_k' is there twice"},
       }) {
    EXPECT_THAT(ParseGenerationConfig(row.json), StatusIs(kInvalid, std::string(row.message)))
        << row.json;
  }
  std::string many = R"({"eos_token_id": [0)";
  for (int i = 0; i < 1024; ++i) many += ", 1";
  EXPECT_THAT(ParseGenerationConfig(many + "]}"), StatusIs(kInvalid, "at most 1024 token ids"));
}

}  // namespace
}  // namespace gantry
