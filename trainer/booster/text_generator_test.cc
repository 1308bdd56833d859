#include "trainer/booster/text_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/testing/status_matchers.h"
#include "trainer/booster/parameter_hash.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/stop_source.h"
#include "trainer/booster/testing/tiny_run.h"
#include "trainer/models/decoder.h"

namespace gantry {
namespace {

using ::testing::IsEmpty;

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
  absl::StatusOr<std::string> Generate(const TextRequest& request) {
    streamed_.clear();
    return GenerateText(*model_, request, [this](char byte) { streamed_ += byte; });
  }

  RunConfig config_;
  TinyMachine machine_;
  std::unique_ptr<DecoderModel> model_;
  std::string streamed_;
};

TEST_F(TextGeneratorTest, TextRepeatsWithItsSeedAndStreams) {
  Seal(3);
  const TextRequest request = {.prompt = "ab", .tokens = 30, .sampling = {.seed = 1}};
  const auto text = Generate(request);
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(text->size(), 30u);
  EXPECT_EQ(streamed_, *text);
  EXPECT_THAT(Generate(request), IsOkAndHolds(*text));
  TextRequest other = request;
  other.sampling.seed = 2;
  EXPECT_NE(*Generate(other), *text);
}

// With the prompt grown by what came out, the rest comes out the same: the cache changes nothing.
TEST_F(TextGeneratorTest, ALongerPromptContinuesTheSameText) {
  Seal(3);
  const std::string whole = *Generate({.prompt = "ab", .tokens = 20, .sampling = {.seed = 1}});
  const std::string prompt = "ab" + whole.substr(0, 7);
  EXPECT_EQ(*Generate({.prompt = prompt, .tokens = 13, .sampling = {.seed = 1}}), whole.substr(7));
}

TEST_F(TextGeneratorTest, ADryRunMakesNoText) {
  EXPECT_THAT(Generate({.prompt = "ab", .tokens = 30, .sampling = {}}), IsOkAndHolds(""));
  EXPECT_THAT(streamed_, IsEmpty());
}

TEST_F(TextGeneratorTest, AStopEndsIt) {
  Seal(3);
  StopSource stop;
  const auto text = GenerateText(
      *model_, {.prompt = "a", .tokens = 50, .sampling = {}, .stop = &stop}, [&](char) {
        streamed_ += 'x';
        if (streamed_.size() == 5) stop.Request();
      });
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(text->size(), 5u);
}

TEST_F(TextGeneratorTest, RefusesWhatDoesNotFit) {
  Seal(3);
  EXPECT_THAT(Generate({.prompt = "", .tokens = 1, .sampling = {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "the prompt is empty"));
  EXPECT_THAT(Generate({.prompt = "a", .tokens = 0, .sampling = {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "a text of 0 tokens"));
  EXPECT_THAT(Generate({.prompt = "a", .tokens = 63, .sampling = {}}), IsOk());
  EXPECT_THAT(Generate({.prompt = "a", .tokens = 64, .sampling = {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "max_sequence, 64"));
  EXPECT_THAT(Generate({.prompt = "a", .tokens = 1, .sampling = {.top_p = 0.0}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "top_p"));
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
