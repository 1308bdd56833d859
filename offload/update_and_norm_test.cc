// Goal: the combined pass has the bits of SegmentSumSquares and UpdateSlice one after the other,
// for slices that begin and end anywhere. Method: both, on copies.
#include "offload/update_and_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "offload/dispatch_targets.h"
#include "offload/elements.h"
#include "offload/gradient_norm.h"
#include "offload/optimizer.h"

namespace gantry {
namespace {

struct Range {
  explicit Range(int64_t size)
      : count(size),
        master(size),
        momentum(size),
        variance(size),
        gradient(size),
        parameter(size),
        partials(SegmentCount(size)) {
    const Random random({.seed = 5, .stream = static_cast<uint64_t>(size)});
    for (int64_t i = 0; i < size; ++i) {
      master[i] = static_cast<float>(random.Normal(static_cast<uint64_t>(2 * i)));
      gradient[i] = BFloat16(static_cast<float>(random.Normal(static_cast<uint64_t>(2 * i + 1))));
    }
  }
  ConstElements Gradient() const { return {gradient.data(), DType::kBF16}; }
  // Tensors of growing size, 64 elements apart, the last one to the end.
  std::vector<RangeSlice> Slices() {
    std::vector<RangeSlice> slices;
    const OptimizerSlice all = {.count = count,
                                .master = master.data(),
                                .momentum = momentum.data(),
                                .variance = variance.data(),
                                .gradient = Gradient(),
                                .parameter = Elements{parameter.data(), DType::kBF16}};
    int64_t size = 1;
    for (int64_t begin = 0; begin < count; begin += size + 64, size = 3 * size + 2) {
      const double rate = 1e-3 * static_cast<double>(1 + slices.size());
      slices.push_back({.begin = begin,
                        .state = PartOf(all, begin, std::min(size, count - begin)),
                        .hyper = {.learning_rate = rate, .weight_decay = 0.1}});
    }
    return slices;
  }
  bool operator==(const Range& other) const {
    return master == other.master && momentum == other.momentum && variance == other.variance &&
           gradient == other.gradient && parameter == other.parameter && partials == other.partials;
  }

  int64_t count;
  std::vector<float> master, momentum, variance;
  std::vector<BFloat16> gradient, parameter;
  std::vector<double> partials;
};

void ExpectBitsOfTwoPasses(int64_t count, ThreadTeam* team) {
  SCOPED_TRACE(count);
  Range together(count);
  Range apart(count);
  EXPECT_TRUE(UpdateAndSumSquares(together.Gradient(), count, together.Slices(), 0.5f,
                                  together.partials, team));
  EXPECT_TRUE(SegmentSumSquares(apart.Gradient(), count, apart.partials, team));
  for (const RangeSlice& slice : apart.Slices()) {
    UpdateSlice(slice.state, slice.hyper, 0.5f, team);
  }
  EXPECT_TRUE(together == apart);
}

TEST(UpdateAndNormTest, HasTheBitsOfTwoPasses) {
  SCOPED_TRACE("seed 5");
  constexpr int64_t kSegment = kNormSegmentElements;
  for (const int threads : {1, 3}) {
    const auto team = ThreadTeam::Create({.threads = threads}).value();
    for (const int64_t target : DispatchTargets()) {
      SCOPED_TRACE(DispatchTargetName(target));
      const ScopedDispatchTarget scope(target);
      for (const int64_t count : {int64_t{0}, int64_t{1}, kSegment, kSegment + 1, 2 * kSegment,
                                  2 * kSegment + 1, 5 * kSegment + 77}) {
        ExpectBitsOfTwoPasses(count, team.get());
      }
    }
  }
}

TEST(UpdateAndNormTest, TellsWhatIsNotFiniteAndUpdatesNevertheless) {
  const auto team = ThreadTeam::Create({.threads = 2}).value();
  Range range(3 * kNormSegmentElements);
  range.gradient[2 * kNormSegmentElements] = BFloat16(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(UpdateAndSumSquares(range.Gradient(), range.count, range.Slices(), 1.0f,
                                   range.partials, team.get()));
  EXPECT_TRUE(std::isfinite(range.partials[1]));
  EXPECT_FALSE(std::isfinite(range.partials[2]));
  EXPECT_NE(range.momentum[0], 0.0f);
}

TEST(UpdateAndNormDeathTest, SlicesOutsideOfTheRangeAbort) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto team = ThreadTeam::Create({.threads = 1}).value();
  Range range(1000);
  const auto update = [&](std::vector<RangeSlice> slices, int64_t count) {
    static_cast<void>(
        UpdateAndSumSquares(range.Gradient(), count, slices, 1.0f, range.partials, team.get()));
  };
  EXPECT_DEATH(update(range.Slices(), 999), "count");
  std::vector<RangeSlice> slices = range.Slices();
  std::swap(slices[0], slices[1]);
  EXPECT_DEATH(update(slices, 1000), "slice.begin");
  slices = range.Slices();
  slices[1].state.gradient.data = range.gradient.data();
  EXPECT_DEATH(update(slices, 1000), "gradient.data");
}

}  // namespace
}  // namespace gantry
