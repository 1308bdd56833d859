// Goal: parameter, low half and tie bit give back every f32 master, and updates of states in this
// form have the bits of updates with an f32 master. Method: all low halves beside awkward high
// halves, and many AdamW steps on every instruction set over masters among which ties are planted.
#include "offload/split_master.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "chunk/optimizer_states.h"
#include "gtest/gtest.h"
#include "offload/dispatch_targets.h"
#include "offload/elements.h"
#include "offload/optimizer.h"

namespace gantry {
namespace {

uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }

// The state of some elements in this form.
struct SplitArrays {
  explicit SplitArrays(int64_t count) : parameter(count), low_half(count), variance(count) {}

  void Set(int64_t i, float master, float new_variance) {
    const SplitState split = SplitMaster(master, new_variance);
    parameter[i] = split.parameter;
    low_half[i] = split.low_half;
    variance[i] = split.variance;
  }
  float Master(int64_t i) const { return JoinMaster(parameter[i], low_half[i], variance[i]); }

  std::vector<BFloat16> parameter;
  std::vector<uint16_t> low_half;
  std::vector<float> variance;
};

// Either sign; zero, subnormals, the least and the greatest exponents, odd and even mantissas,
// infinity with all its NaNs.
std::vector<uint16_t> AwkwardHighHalves() {
  std::vector<uint16_t> halves;
  for (const int sign : {0, 0x8000}) {
    for (const int half :
         {0x0000, 0x0001, 0x0002, 0x007e, 0x007f, 0x0080, 0x0081, 0x00ff, 0x0100, 0x3f7f, 0x3f80,
          0x3f81, 0x7f00, 0x7f7e, 0x7f7f, 0x7f80, 0x7fc0, 0x7fff}) {
      halves.push_back(static_cast<uint16_t>(sign | half));
    }
  }
  return halves;
}

TEST(SplitMasterTest, GivesBackEveryMasterBesideAnyVariance) {
  for (const uint16_t high : AwkwardHighHalves()) {
    for (uint32_t low = 0; low < 0x10000; ++low) {
      const auto master = std::bit_cast<float>(uint32_t{high} << 16 | low);
      const float expected = std::isnan(master) ? std::numeric_limits<float>::quiet_NaN() : master;
      for (const float variance : {0.0f, -0.0f, 0.25f, -0.25f}) {
        const SplitState split = SplitMaster(master, variance);
        ASSERT_EQ(split.parameter, BFloat16(expected)) << BitsOf(master);
        ASSERT_EQ(BitsOf(JoinMaster(split.parameter, split.low_half, split.variance)),
                  BitsOf(expected));
        ASSERT_EQ(BitsOf(VarianceOf(split.variance)), BitsOf(std::fabs(variance)));
      }
    }
  }
}

TEST(SplitMasterTest, OnlyTiesRoundedUpCarryTheBit) {
  EXPECT_FALSE(std::signbit(SplitMaster(std::bit_cast<float>(0x3f808000u), 1.0f).variance));
  EXPECT_TRUE(std::signbit(SplitMaster(std::bit_cast<float>(0x3f818000u), 1.0f).variance));
  EXPECT_TRUE(std::signbit(SplitMaster(std::bit_cast<float>(0xbf818000u), 0.0f).variance));
  EXPECT_FALSE(std::signbit(SplitMaster(std::bit_cast<float>(0x3f818001u), -1.0f).variance));
}

// With a learning rate of zero and no decay the update keeps the master: joins and splits alone.
TEST(SplitMasterTest, KernelJoinsAndSplitsAsTheFunctionsDo) {
  const OptimizerHyper hyper = {.learning_rate = 0.0};
  const auto team = ThreadTeam::Create({.threads = 1}).value();
  const std::vector<uint16_t> halves = AwkwardHighHalves();
  const auto count = static_cast<int64_t>(halves.size()) * 0x10000;
  for (const int64_t target : DispatchTargets()) {
    SCOPED_TRACE(DispatchTargetName(target));
    const ScopedDispatchTarget scope(target);
    SplitArrays actual(count);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t high = halves[i / 0x10000];
      actual.Set(i, std::bit_cast<float>(high << 16 | static_cast<uint32_t>(i % 0x10000)), 0.5f);
    }
    SplitArrays expected = actual;
    for (int64_t i = 0; i < count; ++i) {
      // Multiplied by the decay of 1, and 0 subtracted.
      expected.Set(i, expected.Master(i) - 0.0f, 0.5f * static_cast<float>(hyper.beta2));
    }
    std::vector<float> momentum(count);
    const std::vector<float> gradient(count);
    UpdateSlice({.count = count,
                 .low_half = actual.low_half.data(),
                 .momentum = momentum.data(),
                 .variance = actual.variance.data(),
                 .gradient = {gradient.data(), DType::kF32},
                 .parameter = Elements{actual.parameter.data(), DType::kBF16}},
                hyper, 1.0f, team.get());
    EXPECT_EQ(actual.parameter, expected.parameter);
    EXPECT_EQ(actual.low_half, expected.low_half);
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(BitsOf(actual.variance[i]), BitsOf(expected.variance[i])) << i;
    }
  }
}

// 1000 steps of `kind`; every tenth step the masters are moved onto ties in both forms.
void ExpectBitsOfF32Master(OptimizerKind kind, ThreadTeam* team) {
  constexpr int64_t kCount = 103;
  constexpr int64_t kSteps = 1000;
  const Random random({.seed = 4711, .stream = 3});
  OptimizerHyper hyper = {.kind = kind, .learning_rate = 1e-3, .weight_decay = 0.1};
  std::vector<float> master(kCount), momentum(kCount), variance(kCount);
  std::vector<BFloat16> parameter(kCount), gradient(kCount);
  SplitArrays split(kCount);
  std::vector<float> split_momentum(kCount);
  int64_t ties_up = 0;
  for (hyper.step = 1; hyper.step <= kSteps; ++hyper.step) {
    for (int64_t i = 0; i < kCount; ++i) {
      const auto index = static_cast<uint64_t>(hyper.step * kCount + i);
      gradient[i] = BFloat16(static_cast<float>(random.Normal(2 * index)));
      if (hyper.step % 10 != 1) continue;
      master[i] = std::bit_cast<float>(
          (BitsOf(static_cast<float>(random.Normal(2 * index + 1))) & 0xffff0000u) | 0x8000u);
      split.Set(i, master[i], split.variance[i]);
      ties_up += std::signbit(split.variance[i]);
    }
    UpdateSlice({.count = kCount,
                 .master = master.data(),
                 .momentum = momentum.data(),
                 .variance = variance.data(),
                 .gradient = {gradient.data(), DType::kBF16},
                 .parameter = Elements{parameter.data(), DType::kBF16}},
                hyper, 0.5f, team);
    UpdateSlice({.count = kCount,
                 .low_half = split.low_half.data(),
                 .momentum = split_momentum.data(),
                 .variance = split.variance.data(),
                 .gradient = {gradient.data(), DType::kBF16},
                 .parameter = Elements{split.parameter.data(), DType::kBF16}},
                hyper, 0.5f, team);
    ASSERT_EQ(split.parameter, parameter) << "step " << hyper.step;
    ASSERT_EQ(split_momentum, momentum) << "step " << hyper.step;
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(BitsOf(split.Master(i)), BitsOf(master[i])) << "step " << hyper.step << " " << i;
      ASSERT_EQ(BitsOf(VarianceOf(split.variance[i])), BitsOf(variance[i]));
    }
  }
  EXPECT_GT(ties_up, kSteps / 10 * kCount / 4);
}

TEST(SplitMasterTest, ThousandStepsHaveTheBitsOfAnF32MasterOnEveryTarget) {
  SCOPED_TRACE("seed 4711");
  const auto team = ThreadTeam::Create({.threads = 1}).value();
  for (const int64_t target : DispatchTargets()) {
    SCOPED_TRACE(DispatchTargetName(target));
    const ScopedDispatchTarget scope(target);
    for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdam}) {
      ExpectBitsOfF32Master(kind, team.get());
    }
  }
}

}  // namespace
}  // namespace gantry
