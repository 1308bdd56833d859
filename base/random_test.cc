#include "base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

namespace gantry {
namespace {

using Words = std::array<uint32_t, 4>;

constexpr uint64_t kSeed = 0x5eed;

// Random123's known-answer file (kat_vectors, "philox4x32 10").
TEST(PhiloxTest, MatchesThePublishedVectors) {
  EXPECT_EQ(Philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint64_t kOnes = ~uint64_t{0};
  EXPECT_EQ(Philox(kOnes, kOnes, kOnes), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Checkpoints rely on these never changing.
TEST(RandomTest, BitsAreTheFirstTwoWords) {
  EXPECT_EQ(Random({.seed = 0, .stream = 0}).Bits(0), 0xe169c58d6627e8d5);
  const Random random({.seed = 0x299f31d0a4093822, .stream = 0x0370734413198a2e});
  EXPECT_EQ(random.Bits(0x85a308d3243f6a88), 0x94fdccebd16cfe09);
}

TEST(RandomTest, SeedStreamAndIndexAllCount) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t stream = 0; stream < 10; ++stream) {
      const Random random({.seed = seed, .stream = stream});
      for (uint64_t index = 0; index < 10; ++index) seen.insert(random.Bits(index));
    }
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(RandomTest, ValuesDoNotDependOnTheOrderOfCalls) {
  const Random random({.seed = kSeed, .stream = 3});
  std::vector<uint64_t> forward;
  for (uint64_t i = 0; i < 100; ++i) forward.push_back(random.Bits(i));
  const Random copy = random;
  for (uint64_t i = 100; i-- > 0;) EXPECT_EQ(copy.Bits(i), forward[i]);
}

TEST(RandomTest, UniformHasTheRightMomentsAndRange) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const Random random({.seed = kSeed, .stream = 1});
  constexpr int64_t kCount = 200'000;
  double sum = 0;
  double squares = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double value = random.Uniform(i);
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value - 0.5;
    squares += (value - 0.5) * (value - 0.5);
  }
  // Five standard errors: sqrt(1/12 / n) and sqrt(1/180 / n).
  EXPECT_NEAR(sum / kCount, 0.0, 5 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / kCount));
}

TEST(RandomTest, NormalHasTheRightMoments) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const Random random({.seed = kSeed, .stream = 2});
  constexpr int64_t kCount = 200'000;
  std::array<double, 5> moments{};
  for (uint64_t i = 0; i < kCount; ++i) {
    const double value = random.Normal(i);
    ASSERT_TRUE(std::isfinite(value));
    for (size_t power = 1; power < moments.size(); ++power) {
      moments[power] += std::pow(value, static_cast<double>(power)) / kCount;
    }
  }
  // Five standard errors; the variances of x, x^2, x^3, x^4 are 1, 2, 15, 96.
  EXPECT_NEAR(moments[1], 0.0, 5 * std::sqrt(1.0 / kCount));
  EXPECT_NEAR(moments[2], 1.0, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(moments[3], 0.0, 5 * std::sqrt(15.0 / kCount));
  EXPECT_NEAR(moments[4], 3.0, 5 * std::sqrt(96.0 / kCount));
}

TEST(RandomTest, NormalNeighboursAreUncorrelated) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const Random random({.seed = kSeed, .stream = 2});
  constexpr int64_t kCount = 100'000;
  double product = 0;
  for (uint64_t i = 0; i < kCount; ++i) product += random.Normal(i) * random.Normal(i + 1);
  EXPECT_NEAR(product / kCount, 0.0, 5 * std::sqrt(1.0 / kCount));
}

TEST(RandomTest, BelowIsEven) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const Random random({.seed = kSeed, .stream = 4});
  constexpr int64_t kBound = 10;
  constexpr int64_t kCount = 100'000;
  std::array<int64_t, kBound> counts{};
  for (uint64_t i = 0; i < kCount; ++i) {
    const int64_t value = random.Below(kBound, i);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, kBound);
    ++counts[static_cast<size_t>(value)];
  }
  double chi_squared = 0;
  for (const int64_t count : counts) {
    const double expected = static_cast<double>(kCount) / kBound;
    chi_squared += std::pow(static_cast<double>(count) - expected, 2) / expected;
  }
  EXPECT_LT(chi_squared, 33.7);  // 9 degrees of freedom, p = 10^-4
}

TEST(RandomTest, BelowIsEvenForHugeBounds) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const Random random({.seed = kSeed, .stream = 5});
  // Reducing 64 bits modulo 3 * 2^61 would hit the lowest two thirds twice as often.
  constexpr int64_t kBound = int64_t{3} << 61;
  constexpr int64_t kCount = 60'000;
  std::array<int64_t, 3> thirds{};
  for (uint64_t i = 0; i < kCount; ++i) {
    const int64_t value = random.Below(kBound, i);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, kBound);
    ++thirds[static_cast<size_t>(value / (kBound / 3))];
  }
  for (const int64_t count : thirds) EXPECT_NEAR(count, kCount / 3, 5 * std::sqrt(kCount * 2 / 9));
}

// floor(x * bound / 2^128), worked out with big integers; the last needs the carry of the low half.
TEST(RandomTest, BelowHasItsExactValues) {
  const Random random({.seed = 0, .stream = 0});
  EXPECT_EQ(random.Below(10, 0), 6);
  EXPECT_EQ(random.Below(10, 4), 9);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(random.Below(kMax, 0), 5584584399899055653);
  EXPECT_EQ(random.Below(kMax, 6), 318532712236412302);
}

TEST(RandomTest, BelowAtTheLimits) {
  const Random random({.seed = kSeed, .stream = 6});
  for (uint64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(random.Below(1, i), 0);
    ASSERT_GE(random.Below(std::numeric_limits<int64_t>::max(), i), 0);
  }
}

TEST(RandomDeathTest, BelowNeedsAPositiveBound) {
  const Random random({.seed = kSeed, .stream = 7});
  EXPECT_DEATH(static_cast<void>(random.Below(0, 0)), "bound >= 1");
}

}  // namespace
}  // namespace gantry
