#include "trainer/data/token_text_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/testing/status_matchers.h"
#include "trainer/data/token_source.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

absl::StatusOr<TokenTextSource> Source(int64_t tokens, int64_t length, uint64_t seed = 1) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 1000);
  return TokenTextSource::Create(std::move(ids),
                                 {.sequence_length = length, .seed = seed, .fingerprint = "f"});
}

TEST(TokenTextSourceTest, TargetsAreTheNextTokens) {
  const auto source = Source(50, 8);
  ASSERT_THAT(source, IsOk());
  const absl::StatusOr<SampledTokens> batch = source->Read(3, 4);
  ASSERT_THAT(batch, IsOk());
  ASSERT_EQ(batch->tokens.size(), 32U);
  EXPECT_EQ(batch->scored_tokens, 32);
  for (size_t i = 0; i < batch->tokens.size(); ++i) {
    EXPECT_EQ(batch->targets[i], batch->tokens[i] + 1);
    if (i % 8 == 0) continue;
    EXPECT_EQ(batch->tokens[i], batch->tokens[i - 1] + 1);
  }
}

TEST(TokenTextSourceTest, SequencesAreFunctionsOfTheirNumber) {
  const auto source = Source(1000, 8);
  const SampledTokens all = *source->Read(0, 6);
  for (int64_t i = 0; i < 6; ++i) {
    const SampledTokens one = *source->Read(i, 1);
    EXPECT_TRUE(std::equal(one.tokens.begin(), one.tokens.end(), all.tokens.begin() + i * 8));
  }
  EXPECT_NE(Source(1000, 8, 2)->Read(0, 6)->tokens, all.tokens);
}

TEST(TokenTextSourceTest, EvenSequencesSpanTheText) {
  const auto source = Source(100, 4);
  const SampledTokens batch = *source->ReadEvenly({.first = 0, .count = 3, .total = 3});
  EXPECT_EQ(batch.tokens.front(), 1000);
  EXPECT_EQ(batch.targets.back(), 1099);
}

TEST(TokenTextSourceTest, TheShortestTextHasOneSequence) {
  EXPECT_THAT(Source(4, 4), StatusIs(absl::StatusCode::kInvalidArgument, "no sequence of 4"));
  EXPECT_THAT(Source(0, 1), StatusIs(absl::StatusCode::kInvalidArgument));
  const auto source = Source(5, 4);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(source->Read(7, 1)->tokens, ElementsAre(1000, 1001, 1002, 1003));
}

}  // namespace
}  // namespace gantry
