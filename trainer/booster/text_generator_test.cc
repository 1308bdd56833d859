#include "trainer/booster/text_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/testing/status_matchers.h"
#include "trainer/booster/parameter_hash.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/stop_source.h"
#include "trainer/booster/testing/tiny_run.h"
#include "trainer/booster/text_codec.h"
#include "trainer/booster/token_sampler.h"
#include "trainer/models/decoder.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

class TextGeneratorTest : public ::testing::Test {
 protected:
  TextGeneratorTest() : config_(TinyConfig(::testing::TempDir())), machine_(config_) {
    auto model = DecoderModel::Create(machine_.context(), config_.model, {});
    GANTRY_CHECK_OK(model.status());
    model_ = *std::move(model);
  }
  void Seal(uint64_t seed) {
    GANTRY_CHECK_OK(machine_.store().Seal());
    GANTRY_CHECK_OK(model_->InitializeWeights(seed));
  }
  static std::vector<int32_t> Tokens(std::string_view text) { return *ByteCodec().Encode(text); }
  absl::StatusOr<std::vector<GeneratedText>> GenerateAll(const TextRequest& request) {
    streamed_.assign(request.prompts.size(), "");
    return GenerateTexts(*model_, ByteCodec(), request, [this](size_t i, std::string_view piece) {
      EXPECT_FALSE(piece.empty());
      streamed_[i] += piece;
      if (on_piece_) on_piece_();
    });
  }
  absl::StatusOr<std::string> Generate(std::string_view prompt, int64_t tokens,
                                       const SamplingOptions& sampling = {.seed = 1}) {
    GANTRY_ASSIGN_OR_RETURN(
        std::vector<GeneratedText> texts,
        GenerateAll({.prompts = {Tokens(prompt)}, .tokens = tokens, .sampling = sampling}));
    return std::move(texts.front().text);
  }

  RunConfig config_;
  TinyMachine machine_;
  std::unique_ptr<DecoderModel> model_;
  std::vector<std::string> streamed_;
  std::function<void()> on_piece_;
};

TEST_F(TextGeneratorTest, TextRepeatsWithItsSeedAndStreams) {
  Seal(3);
  const auto text = Generate("ab", 30, {.seed = 1});
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(text->size(), 30u);
  EXPECT_THAT(streamed_, ElementsAre(*text));
  EXPECT_THAT(Generate("ab", 30, {.seed = 1}), IsOkAndHolds(*text));
  EXPECT_NE(*Generate("ab", 30, {.seed = 2}), *text);
}

// With the prompt grown by what came out, the rest comes out the same: the cache changes nothing.
TEST_F(TextGeneratorTest, ALongerPromptContinuesTheSameText) {
  Seal(3);
  const std::string whole = *Generate("ab", 20);
  EXPECT_EQ(*Generate("ab" + whole.substr(0, 7), 13), whole.substr(7));
}

TEST_F(TextGeneratorTest, ADryRunMakesNoText) {
  EXPECT_THAT(Generate("ab", 30), IsOkAndHolds(""));
  EXPECT_THAT(streamed_, ElementsAre(""));
}

TEST_F(TextGeneratorTest, AStopEndsIt) {
  Seal(3);
  StopSource stop;
  int pieces = 0;
  on_piece_ = [&] {
    if (++pieces == 5) stop.Request();
  };
  const auto texts = GenerateAll(
      {.prompts = {Tokens("a")}, .tokens = 50, .sampling = {.temperature = 0.0}, .stop = &stop});
  ASSERT_THAT(texts, IsOk());
  EXPECT_EQ((*texts)[0].end, TextEnd::kStopped);
  EXPECT_LT((*texts)[0].tokens, 50);
  EXPECT_EQ(streamed_[0], (*texts)[0].text);
}

// Each of several prompts gets the text that it gets alone, with its seed.
TEST_F(TextGeneratorTest, PromptsOfAnyLengthsGoTogether) {
  Seal(3);
  const std::vector<std::string> prompts = {"abcdefgh", "x", "ab"};
  TextRequest request{.prompts = {}, .tokens = 12, .sampling = {.seed = 5}};
  for (const std::string& prompt : prompts) request.prompts.push_back(Tokens(prompt));
  const auto texts = GenerateAll(request);
  ASSERT_THAT(texts, IsOk());
  const std::vector<std::string> streamed = streamed_;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ((*texts)[i].tokens, 12);
    EXPECT_EQ((*texts)[i].end, TextEnd::kLength);
    EXPECT_EQ((*texts)[i].text, streamed[i]);
    EXPECT_THAT(Generate(prompts[i], 12, {.seed = 5 + i}), IsOkAndHolds((*texts)[i].text));
  }
}

TEST_F(TextGeneratorTest, EndTokensEndATextAndAreNoPartOfIt) {
  Seal(3);
  const std::string whole = *Generate("ab", 20);
  const char last = whole[9];
  const size_t first = whole.find(last);
  TextRequest request{.prompts = {Tokens("ab")}, .tokens = 20, .sampling = {.seed = 1}};
  request.end_tokens = {static_cast<unsigned char>(last)};
  const auto texts = GenerateAll(request);
  ASSERT_THAT(texts, IsOk());
  EXPECT_EQ((*texts)[0].text, whole.substr(0, first));
  EXPECT_EQ((*texts)[0].tokens, static_cast<int64_t>(first) + 1);
  EXPECT_EQ((*texts)[0].end, TextEnd::kEndToken);
}

// A stop text of three tokens, of which nothing comes out.
TEST_F(TextGeneratorTest, StopTextsEndATextAcrossTokens) {
  Seal(3);
  const std::string whole = *Generate("ab", 20);
  const std::string stop = whole.substr(8, 3);
  const size_t first = whole.find(stop);
  TextRequest request{
      .prompts = {Tokens("ab"), Tokens("ab")}, .tokens = 20, .sampling = {.seed = 1}};
  request.stop_texts = {"never to be seen", stop};
  const auto texts = GenerateAll(request);
  ASSERT_THAT(texts, IsOk());
  EXPECT_EQ((*texts)[0].text, whole.substr(0, first));
  EXPECT_EQ(streamed_[0], whole.substr(0, first));
  EXPECT_EQ((*texts)[0].end, TextEnd::kStopText);
  EXPECT_EQ((*texts)[0].tokens, static_cast<int64_t>(first) + 3);
}

// A penalty so large that nothing comes twice: there are 256 bytes.
TEST_F(TextGeneratorTest, PenaltiesKeepFromRepeating) {
  Seal(3);
  const auto text = Generate("ab", 60, {.temperature = 0.01, .repetition_penalty = 1e9});
  ASSERT_THAT(text, IsOk());
  std::set<char> bytes = {'a', 'b'};
  for (const char byte : *text) EXPECT_TRUE(bytes.insert(byte).second);
  EXPECT_EQ(bytes.size(), 62U);
}

TEST_F(TextGeneratorTest, RefusesWhatDoesNotFit) {
  Seal(3);
  EXPECT_THAT(GenerateAll({.prompts = {}, .tokens = 1, .sampling = {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "there is no prompt"));
  EXPECT_THAT(Generate("", 1), StatusIs(absl::StatusCode::kInvalidArgument, "the prompt is empty"));
  EXPECT_THAT(Generate("a", 0), StatusIs(absl::StatusCode::kInvalidArgument, "a text of 0 tokens"));
  EXPECT_THAT(Generate("a", 63), IsOk());
  EXPECT_THAT(Generate("a", 64), StatusIs(absl::StatusCode::kInvalidArgument, "max_sequence, 64"));
  EXPECT_THAT(Generate("a", 1, {.top_p = 0.0}),
              StatusIs(absl::StatusCode::kInvalidArgument, "top_p"));
  EXPECT_THAT(GenerateAll({.prompts = {{1}}, .tokens = 1, .sampling = {}, .stop_texts = {"a", ""}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "a stop text is empty"));
}

TEST_F(TextGeneratorTest, TheHashTellsWeightsApart) {
  Seal(3);
  const std::string hash = *HashParameters(machine_.store());
  EXPECT_THAT(HashParameters(machine_.store()), IsOkAndHolds(hash));
  GANTRY_CHECK_OK(model_->InitializeWeights(4));
  EXPECT_NE(*HashParameters(machine_.store()), hash);
  GANTRY_CHECK_OK(model_->InitializeWeights(3));
  EXPECT_THAT(HashParameters(machine_.store()), IsOkAndHolds(hash));
}

}  // namespace
}  // namespace gantry
