#include "trainer/data/byte_token_source.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/batch_sampler.h"
#include "trainer/data/token_source.h"

namespace gantry {
namespace {

TEST(ByteTokenSource, GivesTheSamplersSequences) {
  std::vector<uint8_t> text(300);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<uint8_t>(i * 7);
  const BatchSampler sampler = *BatchSampler::Create(text, {.seed = 5, .sequence_length = 9});
  const ByteTokenSource source(sampler, "print");
  EXPECT_EQ(source.sequence_length(), 9);
  EXPECT_EQ(source.sequences_per_epoch(), 0);
  EXPECT_EQ(source.scored_tokens_per_epoch(), 0);
  EXPECT_EQ(source.fingerprint(), "print");

  const absl::StatusOr<SampledTokens> read = source.Read(6, 3);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->tokens, sampler.Random(6, 3).tokens);
  EXPECT_EQ(read->targets, sampler.Random(6, 3).targets);
  EXPECT_TRUE(read->documents.empty());
  EXPECT_EQ(read->scored_tokens, 27);

  const EvenSequences range{.first = 1, .count = 2, .total = 4};
  const absl::StatusOr<SampledTokens> even = source.ReadEvenly(range);
  ASSERT_TRUE(even.ok());
  EXPECT_EQ(even->tokens, sampler.Evenly(range).tokens);
  EXPECT_EQ(even->scored_tokens, 18);
}

}  // namespace
}  // namespace gantry
