// Generation with a cache against the reference's logits of the whole sequence, whatever the pieces
// in which the tokens arrive.
#include "trainer/models/decoder_generator.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/models/testing/decoder_bench.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 271828;

struct Variant {
  const char* name;
  DType dtype;
  bool tied;
  double tolerance;
  DecoderFamily family = DecoderFamily::kLlama;
};

class DecoderGeneratorTest : public ::testing::TestWithParam<Variant> {
 protected:
  DecoderGeneratorTest()
      : config_(MakeConfig()),
        bench_(config_, {.compute_dtype = GetParam().dtype}, {}),
        batch_(config_, 1, 12, kSeed) {}

  static DecoderConfig MakeConfig() {
    const bool is_llama = GetParam().family == DecoderFamily::kLlama;
    DecoderConfig config = is_llama ? TinyLlamaConfig() : TinyDecoderConfig(GetParam().family);
    config.parameter_dtype = GetParam().dtype;
    config.tie_embeddings = GetParam().tied;
    // Keys that are cached keep the rotation they had: a dynamic scaling has no whole to compare.
    config.rope_scaling = {};
    return config;
  }

  std::unique_ptr<DecoderGenerator> MakeGenerator(int64_t capacity) {
    auto generator = DecoderGenerator::Create(&bench_.model(), {.capacity = capacity});
    EXPECT_THAT(generator, IsOk());
    return *std::move(generator);
  }

  // Appends `count` tokens and compares the logits with the last one's row of the reference.
  void AppendAndCheck(DecoderGenerator& generator, int64_t count,
                      const std::vector<double>& expected) {
    std::vector<float> logits(23, std::nanf(""));
    const auto tokens =
        std::span(batch_.tokens)
            .subspan(static_cast<size_t>(generator.length(0)), static_cast<size_t>(count));
    ASSERT_THAT(generator.Append(tokens, logits), IsOk());
    const auto row = static_cast<size_t>((generator.length(0) - 1) * config_.vocabulary);
    for (size_t v = 0; v < logits.size(); ++v) {
      ASSERT_NEAR(logits[v], expected[row + v], GetParam().tolerance)
          << "after " << generator.length(0) << " tokens, logit " << v;
    }
  }

  DecoderConfig config_;
  DecoderBench bench_;
  RandomBatch batch_;
};

TEST_P(DecoderGeneratorTest, LogitsAreTheWholeSequences) {
  bench_.SealWithValues(kSeed);
  const std::vector<double> expected = ReferenceLogits(bench_.Parameters(), config_, batch_.view());
  for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{12}, std::vector<int64_t>(12, 1),
                                             std::vector<int64_t>{5, 1, 1, 4, 1}}) {
    const std::unique_ptr<DecoderGenerator> generator = MakeGenerator(12);
    for (const int64_t count : pieces) AppendAndCheck(*generator, count, expected);
    EXPECT_EQ(generator->length(0), 12);
  }
}

TEST_P(DecoderGeneratorTest, TruncatedTokensAreForgotten) {
  bench_.SealWithValues(kSeed);
  const std::vector<double> expected = ReferenceLogits(bench_.Parameters(), config_, batch_.view());
  const std::unique_ptr<DecoderGenerator> generator = MakeGenerator(12);
  AppendAndCheck(*generator, 3, expected);
  std::vector<float> logits(23);
  const std::vector<int32_t> others = {1, 2, 3, 4, 5, 6};
  ASSERT_THAT(generator->Append(others, logits), IsOk());
  generator->Truncate(0, 3);
  AppendAndCheck(*generator, 1, expected);
  generator->Truncate(0, 0);
  AppendAndCheck(*generator, 9, expected);
  EXPECT_DEATH(generator->Truncate(0, 10), "10 of 9");
}

// Sequences of different lengths, appended to together and apart, in steps of a few tokens: each
// has the logits that it has alone.
TEST_P(DecoderGeneratorTest, SequencesSideBySideAreEachAlone) {
  bench_.SealWithValues(kSeed);
  const std::vector<double> expected = ReferenceLogits(bench_.Parameters(), config_, batch_.view());
  for (const int64_t step_tokens : {1, 4, 5, 100}) {
    auto generator = DecoderGenerator::Create(
        &bench_.model(), {.sequences = 3, .capacity = 12, .step_tokens = step_tokens});
    ASSERT_THAT(generator, IsOk());
    // All sequences are prefixes of one: `counts` tokens of each come next, 0 for none.
    const auto append = [&](const std::vector<int64_t>& counts) {
      std::vector<SequenceTokens> appended;
      for (int64_t i = 2; i >= 0; --i) {  // in another order than the cache's
        const int64_t count = counts[static_cast<size_t>(i)];
        if (count == 0) continue;
        appended.push_back({.sequence = i,
                            .tokens = std::span(batch_.tokens)
                                          .subspan(static_cast<size_t>((*generator)->length(i)),
                                                   static_cast<size_t>(count))});
      }
      std::vector<float> logits(23 * appended.size(), std::nanf(""));
      ASSERT_THAT((*generator)->Append(appended, logits), IsOk());
      for (size_t n = 0; n < appended.size(); ++n) {
        const auto row = static_cast<size_t>(((*generator)->length(appended[n].sequence) - 1) * 23);
        for (size_t v = 0; v < 23; ++v) {
          ASSERT_NEAR(logits[23 * n + v], expected[row + v], GetParam().tolerance)
              << "sequence " << appended[n].sequence << ", logit " << v;
        }
      }
    };
    append({5, 1, 3});
    append({1, 1, 1});
    append({0, 6, 1});
    append({6, 0, 2});
    EXPECT_EQ((*generator)->length(0), 12);
    EXPECT_EQ((*generator)->length(1), 8);
    EXPECT_EQ((*generator)->length(2), 7);
  }
}

TEST_P(DecoderGeneratorTest, DryRunMakesTheSameEvents) {
  const auto events = [&] {
    bench_.recording().TakeEvents();
    const std::unique_ptr<DecoderGenerator> generator = MakeGenerator(12);
    std::vector<float> logits(23);
    EXPECT_THAT(generator->Append(std::span(batch_.tokens).first(5), logits), IsOk());
    EXPECT_THAT(generator->Append(std::span(batch_.tokens).subspan(5, 1), logits), IsOk());
    return bench_.recording().TakeEvents();
  };
  const std::vector<std::string> dry = events();
  bench_.SealWithValues(kSeed);
  EXPECT_EQ(events(), dry);
  EXPECT_GT(dry.size(), 50U);
}

INSTANTIATE_TEST_SUITE_P(
    Variants, DecoderGeneratorTest,
    ::testing::Values(Variant{"F32", DType::kF32, false, 1e-4},
                      Variant{"F32Tied", DType::kF32, true, 1e-4},
                      Variant{"BF16", DType::kBF16, false, 0.15},
                      Variant{"Gpt2", DType::kF32, true, 1e-4, DecoderFamily::kGpt2},
                      Variant{"Mistral", DType::kF32, false, 1e-4, DecoderFamily::kMistral},
                      Variant{"Qwen2", DType::kF32, true, 1e-4, DecoderFamily::kQwen2},
                      Variant{"Qwen3", DType::kF32, false, 1e-4, DecoderFamily::kQwen3}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DecoderGeneratorErrorsTest, BadRequestsAreErrors) {
  const DecoderConfig config = TinyLlamaConfig();
  DecoderBench bench(config, {}, {});
  bench.SealWithValues(kSeed);
  for (const int64_t capacity : {int64_t{0}, config.max_sequence + 1}) {
    EXPECT_THAT(DecoderGenerator::Create(&bench.model(), {.capacity = capacity}),
                StatusIs(absl::StatusCode::kInvalidArgument, "cache"));
  }
  EXPECT_THAT(DecoderGenerator::Create(&bench.model(), {.sequences = 0, .capacity = 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, "0 sequences"));
  EXPECT_THAT(DecoderGenerator::Create(&bench.model(), {.capacity = 4, .step_tokens = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, "0 tokens at a time"));
  EXPECT_THAT(
      DecoderGenerator::Create(&bench.model(), {.sequences = int64_t{1} << 40, .capacity = 4}),
      StatusIs(absl::StatusCode::kInvalidArgument, "elements"));
  auto generator = DecoderGenerator::Create(&bench.model(), {.capacity = 4});
  ASSERT_THAT(generator, IsOk());
  std::vector<float> logits(23);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  const SequenceTokens twice[] = {{.sequence = 0, .tokens = std::span(tokens).first(1)},
                                  {.sequence = 0, .tokens = std::span(tokens).first(1)}};
  std::vector<float> two(46);
  EXPECT_THAT((*generator)->Append(twice, two),
              StatusIs(absl::StatusCode::kInvalidArgument, "named twice"));
  const SequenceTokens absent{.sequence = 1, .tokens = std::span(tokens).first(1)};
  EXPECT_THAT((*generator)->Append(std::span(&absent, 1), logits),
              StatusIs(absl::StatusCode::kInvalidArgument, "sequence 1 of 1"));
  EXPECT_THAT((*generator)->Append(std::span<const SequenceTokens>(), logits),
              StatusIs(absl::StatusCode::kInvalidArgument, "no sequences"));
  const auto append = [&](std::span<const int32_t> some, size_t logit_count) {
    return (*generator)->Append(some, std::span(logits).first(logit_count));
  };
  EXPECT_THAT(append({}, 23), StatusIs(absl::StatusCode::kInvalidArgument, "no tokens"));
  EXPECT_THAT(append(tokens, 23),
              StatusIs(absl::StatusCode::kInvalidArgument, "5 tokens after 0 do not fit"));
  EXPECT_THAT(append(std::span(tokens).first(1), 22),
              StatusIs(absl::StatusCode::kInvalidArgument, "22 logits"));
  const std::vector<int32_t> unknown = {1, 23};
  EXPECT_THAT(append(unknown, 23), StatusIs(absl::StatusCode::kInvalidArgument, "token 23"));
  EXPECT_EQ((*generator)->length(0), 0);
  EXPECT_THAT(append(std::span(tokens).first(4), 23), IsOk());
  EXPECT_THAT(append(std::span(tokens).first(1), 23),
              StatusIs(absl::StatusCode::kInvalidArgument, "1 tokens after 4"));
}

TEST(DecoderGeneratorErrorsTest, StoreErrorsLeaveTheLength) {
  const DecoderConfig config = TinyLlamaConfig();
  DecoderBench bench(config, {}, {});
  bench.SealWithValues(kSeed);
  auto generator = DecoderGenerator::Create(&bench.model(), {.capacity = 4});
  ASSERT_THAT(generator, IsOk());
  std::vector<float> logits(23);
  const std::vector<int32_t> tokens = {1, 2};
  ASSERT_THAT(bench.recording().BeginStep({}), IsOk());  // a step inside a step
  EXPECT_THAT((*generator)->Append(tokens, logits),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ((*generator)->length(0), 0);
}

}  // namespace
}  // namespace gantry
