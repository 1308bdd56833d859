#include "trainer/booster/token_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/random.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Tokens that come up in many draws.
std::set<int32_t> Support(std::span<const float> logits, const SamplingOptions& options) {
  std::set<int32_t> seen;
  for (int64_t position = 0; position < 2000; ++position) {
    seen.insert(*SampleToken(logits, options, position));
  }
  return seen;
}

TEST(TokenSampler, GreedyTakesTheFirstOfTheLargest) {
  const std::array<float, 4> logits = {0.0f, 3.0f, 3.0f, -1.0f};
  for (int64_t position = 0; position < 10; ++position) {
    EXPECT_THAT(SampleToken(logits, {.temperature = 0.0}, position), IsOkAndHolds(1));
  }
}

TEST(TokenSampler, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits(50, 0.0f);
  std::vector<int32_t> first;
  std::vector<int32_t> again;
  std::vector<int32_t> other;
  for (int64_t position = 0; position < 20; ++position) {
    first.push_back(*SampleToken(logits, {.seed = 3}, position));
    again.push_back(*SampleToken(logits, {.seed = 3}, position));
    other.push_back(*SampleToken(logits, {.seed = 4}, position));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_GT(std::set<int32_t>(first.begin(), first.end()).size(), 5u);
}

// 20,000 draws of a probability p have a standard deviation of at most 0.0036; five of those.
TEST(TokenSampler, FrequenciesFollowTheSoftmax) {
  const std::array<float, 3> logits = {1.0f, 0.0f, 2.0f};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    SCOPED_TRACE(temperature);
    std::array<double, 3> expected{};
    double sum = 0.0;
    for (size_t i = 0; i < 3; ++i) sum += expected[i] = std::exp(logits[i] / temperature);
    std::array<int, 3> counts{};
    for (int64_t position = 0; position < 20000; ++position) {
      const auto token = SampleToken(logits, {.temperature = temperature, .seed = 11}, position);
      ++counts[static_cast<size_t>(*token)];
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(counts[i] / 20000.0, expected[i] / sum, 0.018);
  }
}

TEST(TokenSampler, TopKKeepsTheMostLikelyTokens) {
  const std::array<float, 5> logits = {1.0f, 5.0f, 4.5f, 4.5f, 4.4f};
  const SamplingOptions hot = {.temperature = 10.0};
  for (const int64_t k : {1, 2, 3, 5, 9}) {
    SCOPED_TRACE(k);
    SamplingOptions options = hot;
    options.top_k = k;
    const std::vector<int32_t> by_likelihood = {1, 2, 3, 4, 0};
    const auto end = by_likelihood.begin() + std::min<int64_t>(k, 5);
    EXPECT_EQ(Support(logits, options), std::set<int32_t>(by_likelihood.begin(), end));
  }
}

TEST(TokenSampler, TopPKeepsTheSmallestSetThatReachesIt) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const float log_two = std::log(2.0f);
  const std::array<float, 4> logits = {-log_two, 2 * -log_two, 3 * -log_two, 3 * -log_two};
  EXPECT_THAT(Support(logits, {.top_p = 0.01}), ElementsAre(0));
  EXPECT_THAT(Support(logits, {.top_p = 0.49}), ElementsAre(0));
  EXPECT_THAT(Support(logits, {.top_p = 0.6}), ElementsAre(0, 1));
  EXPECT_THAT(Support(logits, {.top_p = 0.8}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Support(logits, {.top_p = 1.0}), ElementsAre(0, 1, 2, 3));
  // After top_k = 2 the probabilities are 2/3 and 1/3.
  EXPECT_THAT(Support(logits, {.top_k = 2, .top_p = 0.6}), ElementsAre(0));
}

// Property: for random logits, what is drawn is among the top k and in the nucleus by definition.
TEST(TokenSampler, DrawsStayInTheRestrictedSet) {
  constexpr uint64_t kSeed = 20240607;
  SCOPED_TRACE(kSeed);
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t index = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(static_cast<size_t>(1 + random.Below(40, index++)));
    for (float& logit : logits) logit = static_cast<float>(3.0 * random.Normal(index++));
    const SamplingOptions options = {.temperature = 0.3 + random.Uniform(index++),
                                     .top_k = random.Below(10, index++),
                                     .top_p = 1.0 - random.Uniform(index++),
                                     .seed = index};
    ASSERT_THAT(ValidateSampling(options), IsOk());
    for (int64_t position = 0; position < 20; ++position) {
      const auto token = SampleToken(logits, options, position);
      ASSERT_THAT(token, IsOk());
      int64_t better = 0;        // tokens more likely than the drawn one
      double better_mass = 0.0;  // and their probability among the top k
      double mass = 0.0;
      std::vector<float> sorted = logits;
      std::sort(sorted.rbegin(), sorted.rend());
      if (options.top_k > 0 && options.top_k < static_cast<int64_t>(sorted.size())) {
        sorted.resize(static_cast<size_t>(options.top_k));
      }
      for (const float logit : sorted) {
        const double weight = std::exp(logit / options.temperature);
        mass += weight;
        if (logit <= logits[static_cast<size_t>(*token)]) continue;
        ++better;
        better_mass += weight;
      }
      ASSERT_LT(better, static_cast<int64_t>(sorted.size()));
      ASSERT_LT(better_mass, options.top_p * mass * (1 + 1e-9));
    }
  }
}

TEST(TokenSampler, ExtremeLogitsDoNotOverflow) {
  const std::array<float, 3> logits = {3e38f, -3e38f, -kInfinity};
  EXPECT_THAT(Support(logits, {.temperature = 1e-3}), ElementsAre(0));
  const std::array<float, 1> one = {-1e30f};
  EXPECT_THAT(SampleToken(one, {}, 0), IsOkAndHolds(0));
}

TEST(TokenSampler, RefusesLogitsThatAreNoNumbers) {
  EXPECT_THAT(SampleToken(std::array<float, 2>{1.0f, kNaN}, {.temperature = 0.0}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, "diverged"));
  EXPECT_THAT(SampleToken(std::array<float, 2>{1.0f, kInfinity}, {}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, "inf"));
  EXPECT_THAT(SampleToken(std::array<float, 2>{-kInfinity, -kInfinity}, {}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, "inf"));
}

TEST(TokenSampler, RefusesImpossibleOptions) {
  EXPECT_THAT(ValidateSampling({}), IsOk());
  EXPECT_THAT(ValidateSampling({.temperature = -1.0}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ValidateSampling({.temperature = kInfinity}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ValidateSampling({.top_k = -1}), StatusIs(absl::StatusCode::kInvalidArgument));
  for (const double top_p : {0.0, -0.5, 1.1, static_cast<double>(kNaN)}) {
    EXPECT_THAT(ValidateSampling({.top_p = top_p}), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(SeenTokens, PenalizesWhatWasThereOnce) {
  const std::vector<int32_t> prompt = {1, 3, 1};
  SeenTokens seen(prompt);
  seen.Add(0);
  seen.Add(3);
  std::vector<float> logits = {2.0F, -1.0F, 5.0F, 0.0F, -3.0F};
  seen.Penalize(logits, 2.0);
  EXPECT_THAT(logits, ::testing::ElementsAre(1.0F, -2.0F, 5.0F, 0.0F, -3.0F));
  seen.Penalize(logits, 1.0);
  EXPECT_THAT(logits, ::testing::ElementsAre(1.0F, -2.0F, 5.0F, 0.0F, -3.0F));
}

TEST(TokenSampler, RefusesPenaltiesThatAreNone) {
  EXPECT_THAT(ValidateSampling({.repetition_penalty = 1.3}), IsOk());
  for (const double penalty : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(ValidateSampling({.repetition_penalty = penalty}),
                StatusIs(absl::StatusCode::kInvalidArgument, "repetition_penalty"));
  }
}

}  // namespace
}  // namespace gantry
