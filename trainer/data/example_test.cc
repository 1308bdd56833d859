#include "trainer/data/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/testing/status_matchers.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/json_text.h"
#include "trainer/chat_template/value.h"

namespace gantry {
namespace {

std::string Messages(std::string_view line) {
  const absl::StatusOr<Example> example = ParseExample(line);
  if (!example.ok()) return std::string(example.status().message());
  EXPECT_EQ(example->kind, Example::Kind::kMessages);
  Budget budget({.steps = 10000, .text_bytes = 10000});
  return *WriteJson(example->messages, {}, budget);
}

TEST(ParseExample, TakesConversationsOfEveryForm) {
  const std::string chat =
      R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}])";
  for (
      const std::string_view line :
      {R"({"messages": [{"role": "user", "content": "Hi"},
                         {"role": "assistant", "content": "Yes?"}], "id": 7})",
       R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}])",
       R"({"messages": [{"from": "human", "content": "Hi"},
                         {"from": "assistant", "content": "Yes?"}]})",
       R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes?"}]})",
       R"({"messages": [{"role": "user", "content": "Hi", "name": null},
                         {"role": "assistant", "content": "Yes?", "tool_calls": null}]})"}) {
    EXPECT_EQ(Messages(line), chat) << line;
  }
  const std::string_view tools =
      R"({"conversations": [{"from": "system", "value": "S"},
          {"from": "function_call", "value": "f"}, {"from": "observation", "value": "1"}]})";
  const std::string_view want =
      R"([{"role": "system", "content": "S"}, {"role": "assistant", "content": "f"}, )"
      R"({"role": "tool", "content": "1"}])";
  EXPECT_EQ(Messages(tools), want);
}

TEST(ParseExample, NamesWhatWasThoughtAsTransformersDoes) {
  const std::string_view reasoning =
      R"([{"role": "assistant", "content": "2", "reasoning": "1+1"}])";
  const std::string_view want =
      R"([{"thinking": "1+1", "role": "assistant", "content": "2", "reasoning": "1+1", )"
      R"("reasoning_content": "1+1"}])";
  EXPECT_EQ(Messages(reasoning), want);
  const std::string_view standard =
      R"([{"role": "assistant", "content": "2", "reasoning_content": "x"}])";
  const std::string_view again =
      R"([{"thinking": "x", "role": "assistant", "content": "2", "reasoning_content": "x"}])";
  EXPECT_EQ(Messages(standard), again);
}

TEST(ParseExample, KeepsToolsAndVariables) {
  const auto example = ParseExample(
      R"({"messages": [{"role": "user", "content": "Hi"},
                       {"role": "assistant", "tool_calls": [{"id": "1"}], "content": null}],
          "tools": [{"type": "function"}], "chat_template_kwargs": {"enable_thinking": false}})");
  ASSERT_TRUE(example.ok()) << example.status();
  ASSERT_TRUE(example->tools.has_value());
  EXPECT_EQ(example->tools->items().size(), 1u);
  ASSERT_EQ(example->variables.size(), 1u);
  EXPECT_EQ(example->variables[0].first.string(), "enable_thinking");
  EXPECT_FALSE(
      ParseExample(R"({"messages": [{"role": "user", "content": ""}], "tools": []})")->tools);
}

TEST(ParseExample, TakesCompletionsAndText) {
  const auto completion = ParseExample(R"({"prompt": "1+1=", "completion": "2", "text_id": 1})");
  ASSERT_TRUE(completion.ok()) << completion.status();
  EXPECT_EQ(completion->kind, Example::Kind::kPromptCompletion);
  EXPECT_EQ(completion->prompt, "1+1=");
  EXPECT_EQ(completion->completion, "2");
  EXPECT_TRUE(ParseExample(R"({"prompt": "", "completion": "2"})").ok());
  const auto text = ParseExample(R"({"text": "Once\u00e9\n"})");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->kind, Example::Kind::kText);
  EXPECT_EQ(text->text, "Once\u00e9\n");
}

TEST(ParseExample, RefusesWhatIsMalformed) {
  struct Row {
    std::string_view line;
    std::string_view message;
  };
  const Row rows[] = {
      {"", "no JSON at byte"},
      {"{\"text\": \"a\"", "no JSON at byte"},
      {"{\"text\": \"\xff\"}", "no JSON at byte"},
      {"{\"text\": \"a\"} {}", "no JSON at byte"},
      {"7", "neither an object nor a list of messages, but int"},
      {"null", "but NoneType"},
      {"{}", "none of \"messages\""},
      {"{\"prompt\": \"a\"}", "none of \"messages\""},
      {"{\"text\": \"a\", \"messages\": []}", "more than one of"},
      {"{\"text\": 1}", "\"text\" is no text, but int"},
      {"{\"text\": \"\"}", "\"text\" is empty"},
      {"{\"prompt\": [], \"completion\": \"a\"}", "\"prompt\" is no text, but list"},
      {"{\"prompt\": \"a\", \"completion\": \"\"}", "\"completion\" is empty"},
      {"[]", "\"messages\" is empty"},
      {"{\"messages\": {}}", "\"messages\" is no list, but dict"},
      {"[1]", "messages[0]: no object, but int"},
      {"[{\"content\": \"a\"}]", "messages[0]: no \"role\""},
      {"[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": 1, \"content\": \"a\"}]",
       "messages[1]: \"role\" is no text, but int"},
      {"[{\"role\": \"\", \"content\": \"a\"}]", "messages[0]: an empty role"},
      {"[{\"role\": \"user\"}]", "messages[0]: neither content nor tool_calls"},
      {"[{\"role\": \"user\", \"content\": 5}]", "its content is neither a text nor a list"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": {}}",
       "\"tools\" is no list"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": 1}",
       "\"chat_template_kwargs\" is no object"},
      {"{\"text\": 1e999}", "no JSON at byte"},
      {"{\"text\": \"a\", \"n\": 99999999999999999999}", "more than 64 bits"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(ParseExample(row.line).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, std::string(row.message)))
        << row.line;
  }
  EXPECT_THAT(ParseExample(std::string(100000, '[')).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "nests deeper than 100"));
}

}  // namespace
}  // namespace gantry
