// Goal: partial sums have the bits of their one definition on every instruction set and team, are
// accurate, and are not finite exactly when an element is not.
// Method: a scalar reference with the documented order, exact small integers, long double sums.
#include "offload/gradient_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "offload/dispatch_targets.h"
#include "offload/elements.h"

namespace gantry {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr int64_t kShortThirdSegment = 2 * kNormSegmentElements + 21;

// Calls body for every element type on every instruction set.
void ForEachVariant(const std::function<void(DType)>& body) {
  for (const int64_t target : DispatchTargets()) {
    const ScopedDispatchTarget scope(target);
    for (const DType dtype : kDTypes) {
      SCOPED_TRACE(testing::Message() << DispatchTargetName(target) << " " << dtype);
      body(dtype);
    }
  }
}

std::unique_ptr<ThreadTeam> MakeTeam(int threads) {
  return ThreadTeam::Create({.threads = threads}).value();
}

// Values rounded to a type, beside their encoding. `lead` elements come before data(), so that it
// is not aligned to a vector.
struct Gradient {
  Gradient(DType dtype, std::vector<float> floats, int64_t lead)
      : dtype(dtype),
        values(std::move(floats)),
        lead_bytes(lead * SizeOf(dtype)),
        bytes(lead_bytes + static_cast<int64_t>(values.size()) * SizeOf(dtype)) {
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t word = std::bit_cast<uint32_t>(values[i]);
      if (dtype == DType::kBF16) {
        word = FloatToBF16Bits(values[i]);
        values[i] = BF16BitsToFloat(static_cast<uint16_t>(word));
      } else if (dtype == DType::kF16) {
        word = FloatToF16Bits(values[i]);
        values[i] = F16BitsToFloat(static_cast<uint16_t>(word));
      }
      std::memcpy(bytes.data() + lead_bytes + static_cast<int64_t>(i) * SizeOf(dtype), &word,
                  SizeOf(dtype));
    }
  }
  ConstElements elements() const { return {.data = bytes.data() + lead_bytes, .dtype = dtype}; }
  int64_t count() const { return static_cast<int64_t>(values.size()); }

  DType dtype;
  std::vector<float> values;
  int64_t lead_bytes;
  std::vector<uint8_t> bytes;
};

Gradient RandomGradient(DType dtype, int64_t count, int64_t lead) {
  const Random random({.seed = 31337, .stream = static_cast<uint64_t>(count)});
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(random.Normal(static_cast<uint64_t>(i)));
  }
  return Gradient(dtype, std::move(values), lead);
}

// The definition: 16 lanes, then a tree.
std::vector<double> ReferencePartials(const std::vector<float>& values) {
  std::vector<double> partials;
  for (size_t begin = 0; begin < values.size(); begin += 16384) {
    double lanes[16] = {};
    const size_t end = std::min(values.size(), begin + 16384);
    for (size_t i = begin; i < end; ++i) {
      const double x = values[i];
      lanes[(i - begin) % 16] += x * x;
    }
    for (int width = 8; width > 0; width /= 2) {
      for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    }
    partials.push_back(lanes[0]);
  }
  return partials;
}

struct Result {
  bool finite;
  std::vector<double> partials;
};

Result Measure(const Gradient& gradient, ThreadTeam* team) {
  // Poisoned, so that a segment left out is seen.
  Result result = {.finite = false,
                   .partials = std::vector<double>(SegmentCount(gradient.count()), -1.0)};
  result.finite = SegmentSumSquares(gradient.elements(), gradient.count(), result.partials, team);
  return result;
}

TEST(GradientNormTest, SegmentsCountStartedOnes) {
  EXPECT_EQ(SegmentCount(0), 0);
  EXPECT_EQ(SegmentCount(1), 1);
  EXPECT_EQ(SegmentCount(16384), 1);
  EXPECT_EQ(SegmentCount(16385), 2);
}

void ExpectDefinition(DType dtype, int64_t count, ThreadTeam* team) {
  SCOPED_TRACE(testing::Message() << "seed 31337 count " << count);
  const Gradient gradient = RandomGradient(dtype, count, count % 3);
  const Result result = Measure(gradient, team);
  EXPECT_TRUE(result.finite);
  EXPECT_EQ(result.partials, ReferencePartials(gradient.values));
}

TEST(GradientNormTest, BitsMatchTheDefinitionOnEveryTargetAndTeam) {
  for (const int threads : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << threads << " threads");
    const auto team = MakeTeam(threads);
    ForEachVariant([&](DType dtype) {
      for (const int64_t count : {0, 1, 15, 16, 17, 1000, 16383, 16384, 16385, 200'001}) {
        ExpectDefinition(dtype, count, team.get());
      }
    });
  }
}

TEST(GradientNormTest, SplitsBetweenSegmentsGiveTheSamePartials) {
  SCOPED_TRACE("seed 31337");
  const auto team = MakeTeam(2);
  const Gradient gradient = RandomGradient(DType::kBF16, 5 * kNormSegmentElements + 77, 0);
  const std::vector<double> whole = Measure(gradient, team.get()).partials;
  std::vector<double> split(whole.size());
  const int64_t first = 2 * kNormSegmentElements;
  ASSERT_TRUE(SegmentSumSquares(gradient.elements(), first, std::span(split).first(2), team.get()));
  const auto* rest = static_cast<const uint16_t*>(gradient.elements().data) + first;
  ASSERT_TRUE(SegmentSumSquares({.data = rest, .dtype = DType::kBF16}, gradient.count() - first,
                                std::span(split).subspan(2), team.get()));
  EXPECT_EQ(split, whole);
}

TEST(GradientNormTest, SmallIntegersAreExact) {
  const auto team = MakeTeam(1);
  for (const DType dtype : kDTypes) {
    const Gradient gradient(dtype, {3.0f, -4.0f, 12.0f, 84.0f}, 1);  // 3-4-12-84-85
    const Result result = Measure(gradient, team.get());
    EXPECT_EQ(std::sqrt(CombineSegments(result.partials)), 85.0);
  }
}

TEST(GradientNormTest, NeitherOverflowsNorUnderflows) {
  const auto team = MakeTeam(1);
  const float max = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  const Gradient large(DType::kF32, std::vector<float>(kNormSegmentElements, max), 0);
  const Result result = Measure(large, team.get());
  EXPECT_TRUE(result.finite);
  EXPECT_NEAR(std::sqrt(result.partials[0]) / max, 128.0, 1e-12);
  const Gradient small(DType::kF32, std::vector<float>(4, least), 0);
  EXPECT_EQ(std::sqrt(Measure(small, team.get()).partials[0]), 2.0 * least);
}

TEST(GradientNormTest, AgreesWithLongDouble) {
  SCOPED_TRACE("seed 31337");
  const auto team = MakeTeam(2);
  const Gradient gradient = RandomGradient(DType::kF32, 1'000'000, 0);
  long double sum = 0;
  for (const float value : gradient.values) sum += static_cast<long double>(value) * value;
  const double actual = CombineSegments(Measure(gradient, team.get()).partials);
  EXPECT_NEAR(actual / static_cast<double>(sum), 1.0, 1e-14);
  EXPECT_NEAR(actual, 1e6, 1e4);  // the variance is 1
}

// Two segments and a short one of halves, but for one element.
void ExpectSeenInItsSegmentOnly(DType dtype, float bad, int64_t where, ThreadTeam* team) {
  SCOPED_TRACE(testing::Message() << bad << " at " << where);
  std::vector<float> values(kShortThirdSegment, 0.5f);
  values[where] = bad;
  const Result result = Measure(Gradient(dtype, std::move(values), 0), team);
  EXPECT_FALSE(result.finite);
  const int64_t segment = where / kNormSegmentElements;
  for (int64_t s = 0; s < SegmentCount(kShortThirdSegment); ++s) {
    EXPECT_EQ(std::isfinite(result.partials[s]), s != segment) << s;
  }
  const double expected = std::isnan(bad) ? std::numeric_limits<double>::quiet_NaN()
                                          : std::numeric_limits<double>::infinity();
  EXPECT_EQ(std::bit_cast<uint64_t>(result.partials[segment]), std::bit_cast<uint64_t>(expected));
}

TEST(GradientNormTest, OneElementThatIsNotFiniteIsSeenInItsSegmentOnly) {
  const auto team = MakeTeam(2);
  ForEachVariant([&](DType dtype) {
    for (const float bad : {kInfinity, -kInfinity, kNan, -kNan}) {
      for (const int64_t where :
           {int64_t{0}, int64_t{13}, kNormSegmentElements - 1, kNormSegmentElements,
            kShortThirdSegment - 6, kShortThirdSegment - 1}) {
        ExpectSeenInItsSegmentOnly(dtype, bad, where, team.get());
      }
    }
  });
}

TEST(GradientNormTest, CombinesPairwiseInAFixedOrder) {
  EXPECT_EQ(CombineSegments({}), 0.0);
  const std::vector<double> one = {0.1};
  EXPECT_EQ(CombineSegments(one), 0.1);
  const std::vector<double> five = {0.1, 0.2, 0.3, 0.4, 0.5};
  EXPECT_EQ(CombineSegments(five), ((0.1 + 0.2) + (0.3 + 0.4)) + 0.5);
  const std::vector<double> three = {1.0, 1e-16, 1e-16};
  EXPECT_EQ(CombineSegments(three), (1.0 + 1e-16) + 1e-16);
  EXPECT_NE(CombineSegments(three), 1.0 + (1e-16 + 1e-16)) << "the order would not matter";
}

TEST(GradientNormTest, PairwiseErrorStaysSmallOverManySegments) {
  const std::vector<double> partials(1'000'000, 0.1);
  EXPECT_NEAR(CombineSegments(partials), 1e5, 1e5 * 4e-15);
}

TEST(GradientNormDeathTest, PartialsOfAnotherSizeAbort) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto team = MakeTeam(1);
  const Gradient gradient = RandomGradient(DType::kF32, 16385, 0);
  std::vector<double> partials(1);
  EXPECT_DEATH(static_cast<void>(
                   SegmentSumSquares(gradient.elements(), gradient.count(), partials, team.get())),
               "SegmentCount");
}

}  // namespace
}  // namespace gantry
