#include "trainer/data/batch_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

// Bytes that tell where they stand, up to 256 of them.
std::vector<uint8_t> Counting(int64_t bytes) {
  std::vector<uint8_t> text(static_cast<size_t>(bytes));
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<uint8_t>(i);
  return text;
}

BatchSampler Sampler(std::span<const uint8_t> text, uint64_t seed, int64_t length) {
  return *BatchSampler::Create(text, {.seed = seed, .sequence_length = length});
}

TEST(BatchSampler, TargetsAreTheNextTokensOfOneWindow) {
  const auto text = Counting(200);
  const SampledTokens batch = Sampler(text, 7, 10).Random(3, 4);
  EXPECT_EQ(batch.sequences, 4);
  EXPECT_EQ(batch.length, 10);
  ASSERT_EQ(batch.tokens.size(), 40u);
  ASSERT_EQ(batch.targets.size(), 40u);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
    if (i % 10 == 0) continue;
    EXPECT_EQ(batch.tokens[i], batch.tokens[i - 1] + 1);
  }
}

TEST(BatchSampler, ASequenceDependsOnItsNumberOnly) {
  const auto text = Counting(256);
  const BatchSampler sampler = Sampler(text, 1, 5);
  const SampledTokens whole = sampler.Random(8, 6);
  std::vector<int32_t> pieces;
  for (const int64_t first : {8, 10, 12}) {
    const SampledTokens piece = Sampler(text, 1, 5).Random(first, 2);
    pieces.insert(pieces.end(), piece.tokens.begin(), piece.tokens.end());
  }
  EXPECT_EQ(pieces, whole.tokens);
}

TEST(BatchSampler, SeedsAndNumbersDiffer) {
  const auto text = Counting(256);
  EXPECT_NE(Sampler(text, 1, 5).Random(0, 8).tokens, Sampler(text, 2, 5).Random(0, 8).tokens);
  EXPECT_NE(Sampler(text, 1, 5).Random(0, 8).tokens, Sampler(text, 1, 5).Random(8, 8).tokens);
}

// 4,000 draws of 20 places leave none out: the chance of one left out is 20 * (19/20)^4000.
TEST(BatchSampler, EveryPlaceIsDrawn) {
  const auto text = Counting(30);
  const SampledTokens batch = Sampler(text, 5, 10).Random(0, 4000);
  std::set<int32_t> starts;
  for (size_t i = 0; i < batch.tokens.size(); i += 10) starts.insert(batch.tokens[i]);
  EXPECT_EQ(starts.size(), 20u);
  EXPECT_EQ(*starts.begin(), 0);
  EXPECT_EQ(*starts.rbegin(), 19);
}

TEST(BatchSampler, TheShortestTextHasOnePlace) {
  const auto text = Counting(4);
  EXPECT_THAT(Sampler(text, 9, 3).Random(100, 2).tokens, ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(BatchSampler::Create(text, {.seed = 0, .sequence_length = 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, "text of 4 bytes"));
  EXPECT_THAT(BatchSampler::Create({}, {.seed = 0, .sequence_length = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(BatchSampler::Create(text, {.seed = 0, .sequence_length = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(BatchSampler, EvenSequencesSpanTheTextWithoutTheSeed) {
  const auto text = Counting(101);
  const SampledTokens batch = Sampler(text, 3, 1).Evenly({.first = 0, .count = 4, .total = 4});
  EXPECT_THAT(batch.tokens, ElementsAre(0, 33, 66, 99));
  EXPECT_THAT(Sampler(text, 4, 1).Evenly({.first = 2, .count = 2, .total = 4}).tokens,
              ElementsAre(66, 99));
  EXPECT_THAT(Sampler(text, 4, 1).Evenly({.first = 0, .count = 1, .total = 1}).tokens,
              ElementsAre(0));
}

TEST(BatchSamplerDeathTest, ChecksItsRanges) {
  const auto text = Counting(10);
  const BatchSampler sampler = Sampler(text, 1, 2);
  EXPECT_DEATH(sampler.Random(-1, 1), "first >= 0");
  EXPECT_DEATH(sampler.Random(0, 0), "count >= 1");
  EXPECT_DEATH(sampler.Evenly({.first = 1, .count = 2, .total = 2}), "1 \\+ 2 of 2");
}

}  // namespace
}  // namespace gantry
