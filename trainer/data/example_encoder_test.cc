// The tokenizer's tokens are bytes, so what is scored can be read as text.
#include "trainer/data/example_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/testing/status_matchers.h"
#include "trainer/chat_template/chat_template.h"
#include "trainer/data/example.h"
#include "trainer/data/testing/byte_tokenizer.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

constexpr std::string_view kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
constexpr std::string_view kMarked =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}"
    "{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}";
// Drops what was thought in all turns but the last.
constexpr std::string_view kForgetful =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' and "
    "loop.last %}{{ '<think>' + (m.thinking or '') + '</think>' }}{% endif %}"
    "{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
constexpr std::string_view kTwoTurns =
    R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"},
        {"role": "user", "content": "assistant\n"}, {"role": "assistant", "content": "日本"}])";

struct Scenario {
  explicit Scenario(std::string_view source, AddsBos adds_bos = AddsBos::kNo)
      : tokenizer(MakeByteTokenizer(adds_bos)), chat(ChatTemplate::Compile(source).value()) {}

  absl::StatusOr<EncodedExample> Encode(std::string_view line,
                                        ScoredTurns turns = ScoredTurns::kAll,
                                        std::string eos = "<|im_end|>") const {
    const absl::StatusOr<ExampleEncoder> encoder =
        ExampleEncoder::Create({.tokenizer = tokenizer.get(),
                                .chat_template = &chat,
                                .bos_token = "<s>",
                                .eos_token = std::move(eos),
                                .scored_turns = turns});
    GANTRY_CHECK_OK(encoder.status());
    const absl::StatusOr<Example> example = ParseExample(line);
    GANTRY_CHECK_OK(example.status());
    return encoder->Encode(*example);
  }

  // The text of the tokens that are scored, with | where one is left out.
  std::string Scored(const absl::StatusOr<EncodedExample>& encoded) const {
    if (!encoded.ok()) return std::string(encoded.status().message());
    std::string text;
    std::vector<int32_t> run;
    for (size_t i = 0; i <= encoded->tokens.size(); ++i) {
      if (i < encoded->tokens.size() && encoded->scored[i] != 0) {
        run.push_back(encoded->tokens[i]);
      } else if (!run.empty()) {
        text += tokenizer->Decode(run, {.skip_special_tokens = false}) + "|";
        run.clear();
      }
    }
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat;
};

TEST(ExampleEncoder, ScoresTheTurnsOfTheAssistant) {
  const Scenario scenario(kChatMl);
  const auto encoded = scenario.Encode(kTwoTurns);
  EXPECT_EQ(scenario.Scored(encoded), "Yo<|im_end|>|日本<|im_end|>|");
  EXPECT_EQ(encoded->scored_tokens(), 3 + 7);
  EXPECT_EQ(scenario.tokenizer->Decode(encoded->tokens, {.skip_special_tokens = false}),
            encoded->text);
  EXPECT_EQ(scenario.Scored(scenario.Encode(kTwoTurns, ScoredTurns::kLast)), "日本<|im_end|>|");
  // Without an EOS the line end belongs to the turn.
  EXPECT_EQ(scenario.Scored(scenario.Encode(kTwoTurns, ScoredTurns::kLast, "")),
            "日本<|im_end|>\n|");
}

TEST(ExampleEncoder, ScoresWhatTheTemplateMarks) {
  const Scenario marked(kMarked);
  const Scenario plain(kChatMl);
  const auto encoded = marked.Encode(kTwoTurns);
  EXPECT_EQ(marked.Scored(encoded), "Yo<|im_end|>|日本<|im_end|>|");
  EXPECT_EQ(encoded->scored, plain.Encode(kTwoTurns)->scored);
  EXPECT_EQ(marked.Scored(marked.Encode(kTwoTurns, ScoredTurns::kLast)), "日本<|im_end|>|");
  const Scenario hidden(
      "{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}");
  EXPECT_THAT(hidden.Encode(kTwoTurns).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "within a macro"));
}

TEST(ExampleEncoder, RefusesATemplateThatWritesTurnsInAnotherWayLater) {
  const Scenario scenario(kForgetful);
  EXPECT_THAT(scenario.Encode(kTwoTurns).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "writes messages[1] in another way"));
  EXPECT_EQ(scenario.Scored(scenario.Encode(kTwoTurns, ScoredTurns::kLast)),
            "<think></think>日本<|im_end|>|");
  const auto thought = scenario.Encode(
      R"([{"role": "user", "content": "Hi"},
          {"role": "assistant", "content": "Yo", "reasoning": "hm"}])");
  EXPECT_EQ(scenario.Scored(thought), "<think>hm</think>Yo<|im_end|>|");
}

TEST(ExampleEncoder, ScoresCompletions) {
  const Scenario scenario("");
  EXPECT_EQ(scenario.Scored(scenario.Encode(R"({"prompt": "2+2=", "completion": " 4"})",
                                            ScoredTurns::kAll, "</s>")),
            " 4</s>|");
  // "=4" is one token, which begins in the prompt.
  const auto merged =
      scenario.Encode(R"({"prompt": "2+2=", "completion": "44"})", ScoredTurns::kAll, "</s>");
  EXPECT_THAT(merged->tokens, ElementsAre('2', '+', '2', kEquals4, '4', kEos));
  EXPECT_THAT(merged->scored, ElementsAre(0, 0, 0, 0, 1, 1));
  // Nothing predicts a document's first token.
  EXPECT_EQ(scenario.Scored(scenario.Encode(R"({"prompt": "", "completion": "abc"})",
                                            ScoredTurns::kAll, "</s>")),
            "bc</s>|");
}

TEST(ExampleEncoder, ScoresTextAndEndsIt) {
  const Scenario scenario("");
  EXPECT_EQ(scenario.Scored(scenario.Encode(R"({"text": "abé"})", ScoredTurns::kAll, "</s>")),
            "bé</s>|");
  EXPECT_EQ(scenario.Scored(scenario.Encode(R"({"text": "ab"})", ScoredTurns::kAll, "")), "b|");
  // Not twice.
  EXPECT_THAT(scenario.Encode(R"({"text": "ab</s>"})", ScoredTurns::kAll, "</s>")->tokens,
              ElementsAre('a', 'b', kEos));
}

TEST(ExampleEncoder, BeginsWithOneBosAtMost) {
  const Scenario with("{{ bos_token }}" + std::string(kChatMl), AddsBos::kYes);
  const Scenario without(kChatMl, AddsBos::kYes);
  const std::string_view chat =
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  const auto encoded = with.Encode(chat);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(encoded->tokens[0], kBos);
  EXPECT_EQ(encoded->tokens[1], kTurnStart);
  EXPECT_EQ(without.Encode(chat)->tokens[0], kTurnStart);
  // The tokenizer adds it before text, also where the text has it already.
  for (const std::string_view line : {R"({"text": "ab"})", R"({"text": "<s>ab"})"}) {
    const auto text = with.Encode(line, ScoredTurns::kAll, "</s>");
    EXPECT_THAT(text->tokens, ElementsAre(kBos, 'a', 'b', kEos)) << line;
    EXPECT_THAT(text->scored, ElementsAre(0, 1, 1, 1)) << line;
  }
}

// Tokenizers that leave spaces out of a token's range: the space is a token of its own here, with
// an empty range.
TEST(ExampleEncoder, ScoresTokensWhoseRangeIsTrimmed) {
  Scenario scenario(kMarked);
  scenario.tokenizer = MakeByteTokenizer(AddsBos::kNo, TrimsOffsets::kYes);
  EXPECT_EQ(
      scenario.Scored(scenario.Encode(
          R"([{"role": "user", "content": " a "}, {"role": "assistant", "content": " b  c "}])")),
      " b  c <|im_end|>|");
}

TEST(ExampleEncoder, RefusesWhatHasNothingToScore) {
  const Scenario scenario(kChatMl);
  EXPECT_THAT(scenario.Encode(R"([{"role": "user", "content": "a"}])").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "no assistant turn"));
  EXPECT_THAT(scenario.Encode(R"({"text": "a"})", ScoredTurns::kAll, "").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "it has 1 tokens"));
  EXPECT_THAT(
      scenario.Encode(R"({"prompt": "2=", "completion": "4"})", ScoredTurns::kAll, "").status(),
      StatusIs(absl::StatusCode::kInvalidArgument, "none of its tokens is scored"));
  const Scenario refusing("{{ raise_exception('no ' + messages[0].role) }}");
  EXPECT_THAT(refusing.Encode(kTwoTurns).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "the template refuses: no user"));
  const auto encoder = ExampleEncoder::Create({.tokenizer = scenario.tokenizer.get()});
  ASSERT_TRUE(encoder.ok());
  EXPECT_THAT(encoder->Encode(*ParseExample(kTwoTurns)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "no chat template"));
  EXPECT_THAT(ExampleEncoder::Create({.tokenizer = scenario.tokenizer.get(), .eos_token = "<nope>"})
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "no token '<nope>', the model's eos"));
}

TEST(EncodedExample, LosesItsEnd) {
  const Scenario scenario("");
  auto encoded = scenario.Encode(R"({"text": "abcdef"})", ScoredTurns::kAll, "</s>");
  ASSERT_TRUE(encoded.ok());
  EXPECT_FALSE(encoded->Truncate(7));
  EXPECT_TRUE(encoded->Truncate(3));
  EXPECT_THAT(encoded->tokens, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(encoded->scored_tokens(), 2);
}

}  // namespace
}  // namespace gantry
