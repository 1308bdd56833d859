#include "trainer/tokenizer/tokenizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(TokenizerConfigTest, ReadsTokensFlagsAndTheTemplate) {
  const auto config = ParseTokenizerConfig(R"({
    "add_bos_token": true, "add_eos_token": false, "bos_token": "<s>",
    "eos_token": {"__type": "AddedToken", "content": "</s>", "special": true},
    "pad_token": null, "unk_token": "<unk>", "model_max_length": 8192,
    "chat_template": "{{ messages }}", "tokenizer_class": "LlamaTokenizer"
  })");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->add_bos_token, true);
  EXPECT_EQ(config->add_eos_token, false);
  EXPECT_EQ(config->bos_token, "<s>");
  EXPECT_EQ(config->eos_token, "</s>");
  EXPECT_EQ(config->pad_token, std::nullopt);
  EXPECT_EQ(config->unk_token, "<unk>");
  EXPECT_EQ(config->model_max_length, 8192);
  EXPECT_THAT(config->chat_templates, UnorderedElementsAre(Pair("default", "{{ messages }}")));
}

TEST(TokenizerConfigTest, WhatIsNotThereIsEmpty) {
  const auto config = ParseTokenizerConfig("{}");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->add_bos_token, std::nullopt);
  EXPECT_EQ(config->bos_token, std::nullopt);
  EXPECT_EQ(config->model_max_length, std::nullopt);
  EXPECT_THAT(config->chat_templates, IsEmpty());
}

TEST(TokenizerConfigTest, NoLimitIsNone) {
  for (const char* length : {"1000000000000000019884624838656", "1e30"}) {
    const auto config = ParseTokenizerConfig(StrCat("{\"model_max_length\": ", length, "}"));
    ASSERT_THAT(config, IsOk());
    EXPECT_EQ(config->model_max_length, std::nullopt);
  }
}

TEST(TokenizerConfigTest, TemplatesMayHaveNames) {
  const auto config = ParseTokenizerConfig(R"({"chat_template": [
    {"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]})");
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->chat_templates,
              UnorderedElementsAre(Pair("default", "A"), Pair("tool_use", "B")));
}

TEST(TokenizerConfigTest, NamesWhatIsMalformed) {
  struct Case {
    const char* json;
    const char* message;
  };
  const Case cases[] = {
      {"", "no JSON"},
      {"[]", "must be an object"},
      {R"({"bos_token": 1})", "bos_token is 1"},
      {R"({"eos_token": {"id": 2}})", "eos_token.content is missing"},
      {R"({"add_bos_token": "yes"})", "add_bos_token is \"yes\""},
      {R"({"model_max_length": 0})", "model_max_length is 0"},
      {R"({"model_max_length": "long"})", "must be a number"},
      {R"({"chat_template": 1})", "chat_template is 1"},
      {R"({"chat_template": [{"name": "a"}]})", "chat_template[0].template is missing"},
      {R"({"chat_template": [{"name": "a", "template": ""}, {"name": "a", "template": ""}]})",
       "chat_template[1].name is \"a\"; a template of that name is there twice"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(ParseTokenizerConfig(c.json),
                StatusIs(absl::StatusCode::kInvalidArgument, c.message));
  }
  EXPECT_THAT(ParseTokenizerConfig(std::string_view("{}\0{", 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, "a zero byte"));
}

class TokenizerConfigFolderTest : public ::testing::Test {
 protected:
  TokenizerConfigFolderTest() : folder_(::testing::TempDir() + "config_test") {
    static_cast<void>(RemoveTree(calls_, folder_));
    GANTRY_CHECK_OK(MakeDirectories(calls_, folder_));
  }
  void Write(const std::string& name, const std::string& content) {
    GANTRY_CHECK_OK(
        WriteFileAtomically(calls_, StrCat(folder_, "/", name), std::as_bytes(std::span(content))));
  }

  PosixFileCalls calls_;
  const std::string folder_;
};

TEST_F(TokenizerConfigFolderTest, TheFilesMayBeMissing) {
  const auto config = LoadTokenizerConfig(calls_, folder_);
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->chat_templates, IsEmpty());
}

TEST_F(TokenizerConfigFolderTest, ATemplateFileComesFirst) {
  Write("tokenizer_config.json", R"({"chat_template": "old", "bos_token": "<s>"})");
  Write("chat_template.jinja", "new");
  const auto config = LoadTokenizerConfig(calls_, folder_);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->bos_token, "<s>");
  EXPECT_THAT(config->chat_templates, UnorderedElementsAre(Pair("default", "new")));
}

TEST_F(TokenizerConfigFolderTest, ErrorsNameTheFile) {
  Write("tokenizer_config.json", "{");
  EXPECT_THAT(
      LoadTokenizerConfig(calls_, folder_),
      StatusIs(absl::StatusCode::kInvalidArgument, "config_test/tokenizer_config.json: no"));
}

}  // namespace
}  // namespace gantry
