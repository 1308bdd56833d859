// Goal: codes name the values of bitsandbytes' dynamic maps, an element becomes the nearest of
// them, encoding what was decoded changes nothing, and updates give the same bits on every
// instruction set, for any team and split, and train as well as f32 moments. Method: maps from
// their definition in double; a reference update made of DecodeBlock, UpdateSlice and EncodeBlock;
// an ill-conditioned noisy quadratic of 2^17 parameters.
#include "offload/eight_bit_states.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
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

constexpr int64_t kBlock = kQuantizationBlockElements;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr OptimizerKind kKinds[] = {OptimizerKind::kAdamW, OptimizerKind::kAdam,
                                    OptimizerKind::kSgd, OptimizerKind::kLion};

void ForEachTarget(const std::function<void()>& body) {
  for (const int64_t target : DispatchTargets()) {
    SCOPED_TRACE(DispatchTargetName(target));
    const ScopedDispatchTarget scope(target);
    body();
  }
}

std::unique_ptr<ThreadTeam> MakeTeam(int threads) {
  return ThreadTeam::Create({.threads = threads}).value();
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) bits[i] = std::bit_cast<uint32_t>(values[i]);
  return bits;
}

// One block's moments and their encoding.
struct Block {
  std::vector<float> momentum = std::vector<float>(kBlock);
  std::vector<float> variance = std::vector<float>(kBlock);
  std::vector<uint8_t> codes = std::vector<uint8_t>(kBlock * kCodeBytesPerElement);
  EightBitScales scales{};

  void Encode() { scales = EncodeBlock(momentum.data(), variance.data(), codes.data()); }
  Block Decoded() const {
    Block result = *this;
    DecodeBlock(codes.data(), scales, result.momentum.data(), result.variance.data());
    return result;
  }
};

// create_dynamic_map of bitsandbytes/functional.py with max_exponent_bits = 7, sorted.
std::vector<double> DynamicMapOf(bool with_sign) {
  std::vector<double> values = {0.0, 1.0};
  for (int i = 0; i < 7; ++i) {
    const int items = with_sign ? 1 << i : 1 << (i + 1);
    for (int j = 0; j < items; ++j) {
      const double low = 0.1 + 0.9 * j / items;
      const double high = 0.1 + 0.9 * (j + 1) / items;
      const double value = std::pow(10.0, i - 6) * (low + high) / 2;
      values.push_back(value);
      if (with_sign) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

double Nearest(const std::vector<double>& values, double x) {
  return *std::min_element(values.begin(), values.end(),
                           [&](double a, double b) { return std::fabs(a - x) < std::fabs(b - x); });
}

TEST(EightBitStatesTest, CodesAreTheValuesOfTheDynamicMaps) {
  ForEachTarget([] {
    Block block;
    for (int64_t i = 0; i < kBlock; ++i) {
      block.codes[2 * i] = block.codes[2 * i + 1] = static_cast<uint8_t>(i);
    }
    block.scales = {.momentum = 1.0f, .variance = 1.0f};
    const Block decoded = block.Decoded();
    const auto expect_map = [](std::vector<float> values, const std::vector<double>& map) {
      values.resize(256);
      std::sort(values.begin(), values.end());
      ASSERT_EQ(map.size(), 256u);
      for (size_t i = 0; i < 256; ++i) {
        EXPECT_NEAR(values[i], map[i], 3e-7 * std::fabs(map[i])) << i;
      }
    };
    expect_map(decoded.momentum, DynamicMapOf(true));
    expect_map(decoded.variance, DynamicMapOf(false));
  });
}

// Values over eleven decades, of either sign for the momentum.
Block RandomBlock(uint64_t stream, double scale) {
  const Random random({.seed = 8, .stream = stream});
  Block block;
  for (int64_t i = 0; i < kBlock; ++i) {
    const auto index = static_cast<uint64_t>(3 * i);
    const double spread = std::pow(10.0, -11.0 * random.Uniform(index));
    block.momentum[i] = static_cast<float>(scale * spread * random.Normal(index + 1));
    block.variance[i] = static_cast<float>(scale * spread * std::pow(random.Normal(index + 2), 2));
  }
  return block;
}

TEST(EightBitStatesTest, ElementsBecomeTheNearestValueWithinTheStatedError) {
  SCOPED_TRACE("seed 8");
  const std::vector<double> momentum_map = DynamicMapOf(true);
  const std::vector<double> variance_map = DynamicMapOf(false);
  ForEachTarget([&] {
    for (uint64_t stream = 0; stream < 4; ++stream) {
      Block block = RandomBlock(stream, 1.0);
      block.Encode();
      const Block decoded = block.Decoded();
      const double momentum_scale = block.scales.momentum;
      const double variance_scale = block.scales.variance;
      for (int64_t i = 0; i < kBlock; ++i) {
        const double m = block.momentum[i] / momentum_scale;
        const double best = std::fabs(Nearest(momentum_map, m) - m);
        EXPECT_NEAR(decoded.momentum[i] / momentum_scale, m, best + 1e-6) << m;
        EXPECT_LE(best, 0.0071);
        const double v = block.variance[i] / variance_scale;
        const double least = std::fabs(Nearest(variance_map, v) - v);
        EXPECT_NEAR(decoded.variance[i] / variance_scale, v, std::max(least, 3.3e-7) + 1e-6) << v;
        EXPECT_LE(least, 0.0036);
        EXPECT_EQ(decoded.variance[i] == 0, v == 0);
      }
    }
  });
}

TEST(EightBitStatesTest, GreatestMagnitudeIsExactWithEitherSign) {
  for (const float sign : {1.0f, -1.0f}) {
    Block block;
    block.momentum[5] = sign * 0.3f;
    block.momentum[6] = -0.2f;
    block.variance[2047] = 0.7f;
    block.Encode();
    const Block decoded = block.Decoded();
    EXPECT_EQ(block.scales.momentum, sign * 0.3f);
    EXPECT_EQ(decoded.momentum[5], sign * 0.3f);
    EXPECT_NEAR(decoded.momentum[6], -0.2f, 0.3 * 0.0071);
    EXPECT_EQ(decoded.variance[2047], 0.7f);
    EXPECT_EQ(decoded.momentum[0], 0.0f);
  }
  Block both;  // the signed map has no -1
  both.momentum[0] = -2.0f;
  both.momentum[1] = 2.0f;
  both.Encode();
  EXPECT_EQ(both.scales.momentum, 2.0f);
  EXPECT_NEAR(both.Decoded().momentum[0], -2.0f, 2 * 0.0071);
}

TEST(EightBitStatesTest, EncodingWhatWasDecodedChangesNothing) {
  SCOPED_TRACE("seed 8");
  ForEachTarget([] {
    uint64_t stream = 100;
    for (const double scale : {1.0, 1e-3, 3e-38, 0x1p-100, 0x1p-99, 1e-29, 1e-25, 1e20, 1e37}) {
      for (int repeat = 0; repeat < 4; ++repeat) {
        Block block = RandomBlock(stream++, scale);
        block.Encode();
        Block again = block.Decoded();
        const Block decoded = again;
        again.Encode();
        const Block twice = again.Decoded();
        ASSERT_EQ(Bits(twice.momentum), Bits(decoded.momentum)) << scale;
        ASSERT_EQ(Bits(twice.variance), Bits(decoded.variance)) << scale;
        ASSERT_EQ(again.codes, block.codes) << scale;
      }
    }
  });
}

TEST(EightBitStatesTest, EveryPairOfCodesComesBack) {
  ForEachTarget([] {
    for (const float scale : {1.0f, -0.37f, 1.5e-7f, 3.4e38f}) {
      Block block;
      block.scales = {.momentum = scale, .variance = std::fabs(scale)};
      for (int64_t i = 0; i < kBlock; ++i) {
        block.codes[2 * i] = static_cast<uint8_t>(i);
        block.codes[2 * i + 1] = static_cast<uint8_t>(255 - i % 256);
      }
      Block again = block.Decoded();
      again.Encode();
      EXPECT_EQ(again.codes, block.codes);
      EXPECT_EQ(again.scales.momentum, block.scales.momentum);
      EXPECT_EQ(again.scales.variance, block.scales.variance);
    }
  });
}

TEST(EightBitStatesTest, ZerosVanishedBlocksAndValuesThatAreNotFinite) {
  ForEachTarget([] {
    Block block;
    block.momentum[3] = -0.0f;
    block.Encode();
    EXPECT_EQ(block.codes, std::vector<uint8_t>(2 * kBlock));
    EXPECT_EQ(block.scales.momentum, 0.0f);
    block.momentum[0] = block.variance[0] = 0x1.fffffep-101f;
    block.Encode();
    EXPECT_EQ(block.codes, std::vector<uint8_t>(2 * kBlock));
    EXPECT_EQ(block.scales.variance, 0.0f);
    for (const float bad : {kInfinity, -kInfinity, kNan, -kNan}) {
      block = Block();
      block.momentum[7] = bad;
      block.momentum[8] = 1e-30f;
      block.variance[9] = 2.0f;
      block.Encode();
      Block decoded = block.Decoded();
      EXPECT_EQ(std::bit_cast<uint32_t>(decoded.momentum[7]), 0x7fc00000u);
      EXPECT_EQ(std::bit_cast<uint32_t>(decoded.momentum[8]), 0x7fc00000u);
      EXPECT_EQ(decoded.momentum[9], 0.0f);
      EXPECT_EQ(decoded.variance[9], 2.0f);
      const Block before = decoded;
      decoded.Encode();
      EXPECT_EQ(Bits(decoded.Decoded().momentum), Bits(before.momentum));
    }
  });
}

// A range of blocks with slices of several tensors and gaps between them.
struct Range {
  explicit Range(int64_t blocks)
      : count(blocks * kBlock),
        codes(count * kCodeBytesPerElement),
        scales(blocks),
        master(count),
        gradient(count),
        parameter(count) {
    const Random random({.seed = 31, .stream = static_cast<uint64_t>(blocks)});
    for (int64_t i = 0; i < count; ++i) {
      master[i] = static_cast<float>(random.Normal(static_cast<uint64_t>(2 * i)));
      gradient[i] = BFloat16(static_cast<float>(random.Normal(static_cast<uint64_t>(2 * i + 1))));
    }
  }
  EightBitRange View(int64_t first_block, int64_t blocks) {
    const int64_t begin = first_block * kBlock;
    return {.count = blocks * kBlock,
            .codes = codes.data() + begin * kCodeBytesPerElement,
            .scales = scales.data() + first_block,
            .master = master.data() + begin,
            .gradient = {gradient.data() + begin, DType::kBF16},
            .parameter = Elements{parameter.data() + begin, DType::kBF16}};
  }
  bool operator==(const Range& other) const {
    const auto same_scales = [](const EightBitScales& a, const EightBitScales& b) {
      return a.momentum == b.momentum && a.variance == b.variance;
    };
    return codes == other.codes && Bits(master) == Bits(other.master) &&
           parameter == other.parameter &&
           std::equal(scales.begin(), scales.end(), other.scales.begin(), same_scales);
  }

  int64_t count;
  std::vector<uint8_t> codes;
  std::vector<EightBitScales> scales;
  std::vector<float> master;
  std::vector<BFloat16> gradient;
  std::vector<BFloat16> parameter;
};

std::vector<EightBitSlice> SlicesOf(OptimizerKind kind, int64_t step) {
  const auto hyper = [&](double rate) {
    return OptimizerHyper{.kind = kind, .learning_rate = rate, .weight_decay = 0.01, .step = step};
  };
  return {{.begin = 64, .count = 700, .hyper = hyper(1e-3)},
          {.begin = 768, .count = 1, .hyper = hyper(2e-3)},
          {.begin = 832, .count = 3 * kBlock - 900, .hyper = hyper(3e-3)},
          {.begin = 5 * kBlock, .count = 60 * kBlock + 5, .hyper = hyper(1e-3)}};
}

// The documented steps: decode a block, update the elements inside slices, encode.
void ReferenceUpdate(Range& range, const std::vector<EightBitSlice>& slices, ThreadTeam* team) {
  const bool has_variance = StatesOf(slices[0].hyper.kind).variance;
  for (int64_t b = 0; b < range.count / kBlock; ++b) {
    std::vector<float> momentum(kBlock), variance(kBlock);
    float* const variances = has_variance ? variance.data() : nullptr;
    uint8_t* const codes = range.codes.data() + b * kBlock * kCodeBytesPerElement;
    DecodeBlock(codes, range.scales[b], momentum.data(), variances);
    for (const EightBitSlice& slice : slices) {
      for (int64_t i = slice.begin; i < slice.begin + slice.count; ++i) {
        if (i / kBlock != b) continue;
        UpdateSlice({.count = 1,
                     .master = &range.master[i],
                     .momentum = &momentum[i % kBlock],
                     .variance = has_variance ? &variance[i % kBlock] : nullptr,
                     .gradient = {&range.gradient[i], DType::kBF16},
                     .parameter = Elements{&range.parameter[i], DType::kBF16}},
                    slice.hyper, 0.5f, team);
      }
    }
    range.scales[b] = EncodeBlock(momentum.data(), variances, codes);
  }
}

constexpr int64_t kBlocks = 66;

Range ThreeSteps(OptimizerKind kind, ThreadTeam* team) {
  Range range(kBlocks);
  for (int64_t step = 1; step <= 3; ++step) {
    UpdateEightBit(range.View(0, kBlocks), SlicesOf(kind, step), 0.5f, team);
  }
  return range;
}

TEST(EightBitStatesTest, UpdatesMatchTheReferenceOnEveryTargetAndTeam) {
  SCOPED_TRACE("seed 31");
  const auto one = MakeTeam(1);
  const auto three = MakeTeam(3);
  for (const OptimizerKind kind : kKinds) {
    SCOPED_TRACE(Name(kind));
    Range expected(kBlocks);
    for (int64_t step = 1; step <= 3; ++step) {
      ReferenceUpdate(expected, SlicesOf(kind, step), one.get());
    }
    EXPECT_EQ(expected.codes[1] != 0 || expected.codes[129] != 0, StatesOf(kind).variance);
    ForEachTarget([&] {
      EXPECT_TRUE(ThreeSteps(kind, one.get()) == expected);
      EXPECT_TRUE(ThreeSteps(kind, three.get()) == expected);
    });
    const Range before(kBlocks);
    EXPECT_EQ(expected.master[63], before.master[63]);  // between slices
    EXPECT_EQ(expected.codes[126], 0);
    EXPECT_EQ(expected.parameter[4 * kBlock], BFloat16());
    EXPECT_NE(expected.master[64], before.master[64]);
  }
}

TEST(EightBitStatesTest, SplitsBetweenBlocksGiveTheSameBits) {
  const auto team = MakeTeam(2);
  const std::vector<EightBitSlice> slices = SlicesOf(OptimizerKind::kAdamW, 1);
  Range whole(kBlocks);
  Range split(kBlocks);
  UpdateEightBit(whole.View(0, kBlocks), slices, 1.0f, team.get());
  for (int64_t first = 0, blocks = 1; first < kBlocks; first += blocks, blocks = 1 + first % 16) {
    blocks = std::min(blocks, kBlocks - first);
    std::vector<EightBitSlice> parts;
    for (EightBitSlice part : slices) {
      const int64_t begin = std::max(part.begin, first * kBlock);
      const int64_t end = std::min(part.begin + part.count, (first + blocks) * kBlock);
      part.begin = begin - first * kBlock;
      part.count = end - begin;
      if (part.count > 0) parts.push_back(part);
    }
    UpdateEightBit(split.View(first, blocks), parts, 1.0f, team.get());
  }
  EXPECT_TRUE(split == whole);
  UpdateEightBit(whole.View(0, 0), {}, 1.0f, team.get());
  UpdateEightBit(whole.View(0, 1), {}, 1.0f, team.get());
  EXPECT_TRUE(split == whole);
}

// The mean of h (p - t)^2 / 2 with gradients that are mostly noise, as those of small batches are.
// Curvatures h spread over one decade inside a run of 3000 parameters, over four between the runs.
class Quadratic {
 public:
  static constexpr int64_t kParameters = int64_t{1} << 17;

  Quadratic() : curvature_(kParameters), target_(kParameters), noise_(kParameters) {
    for (int64_t i = 0; i < kParameters; ++i) {
      const auto index = static_cast<uint64_t>(2 * i);
      const double decades =
          4.0 * random_.Uniform(static_cast<uint64_t>(i / 3000)) + random_.Uniform(index);
      curvature_[i] = static_cast<float>(std::pow(10.0, -decades));
      target_[i] = static_cast<float>(random_.Normal(index + 1));
    }
  }
  void SetStep(int64_t step) {
    for (int64_t i = 0; i < kParameters; ++i) {
      const auto index = static_cast<uint64_t>((step + 2) * kParameters + i);
      noise_[i] = static_cast<float>(4.0 * random_.Uniform(index) - 2.0);
    }
  }
  void Gradient(const std::vector<float>& p, std::vector<float>& gradient) const {
    for (int64_t i = 0; i < kParameters; ++i) {
      gradient[i] = curvature_[i] * (p[i] - target_[i] + noise_[i]);
    }
  }
  double Loss(const std::vector<float>& p) const {
    double sum = 0;
    for (int64_t i = 0; i < kParameters; ++i) {
      sum += 0.5 * curvature_[i] * std::pow(double{p[i]} - target_[i], 2);
    }
    return sum / kParameters;
  }

 private:
  Random random_{{.seed = 271828, .stream = 1}};
  std::vector<float> curvature_;
  std::vector<float> target_;
  std::vector<float> noise_;
};

// One optimizer at work, twice: with f32 moments and with these.
class TwoRuns {
 public:
  explicit TwoRuns(const OptimizerHyper& hyper) : hyper_(hyper) {}

  void Step(const Quadratic& problem, int64_t step, ThreadTeam* team) {
    hyper_.step = step;
    std::vector<float> gradient(kCount);
    problem.Gradient(exact_, gradient);
    UpdateSlice({.count = kCount,
                 .master = exact_.data(),
                 .momentum = momentum_.data(),
                 .variance = StatesOf(hyper_.kind).variance ? variance_.data() : nullptr,
                 .gradient = {gradient.data(), DType::kF32},
                 .parameter = std::nullopt},
                hyper_, 1.0f, team);
    problem.Gradient(coded_, gradient);
    const EightBitSlice all = {.begin = 0, .count = kCount, .hyper = hyper_};
    UpdateEightBit({.count = kCount,
                    .codes = codes_.data(),
                    .scales = scales_.data(),
                    .master = coded_.data(),
                    .gradient = {gradient.data(), DType::kF32},
                    .parameter = std::nullopt},
                   std::span(&all, 1), 1.0f, team);
  }
  const std::vector<float>& exact() const { return exact_; }
  const std::vector<float>& coded() const { return coded_; }

 private:
  static constexpr int64_t kCount = Quadratic::kParameters;
  OptimizerHyper hyper_;
  std::vector<float> exact_ = std::vector<float>(kCount);
  std::vector<float> momentum_ = exact_;
  std::vector<float> variance_ = exact_;
  std::vector<float> coded_ = exact_;
  std::vector<uint8_t> codes_ = std::vector<uint8_t>(kCount * kCodeBytesPerElement);
  std::vector<EightBitScales> scales_ = std::vector<EightBitScales>(kCount / kBlock);
};

TEST(EightBitStatesTest, FinalLossIsThatOfF32MomentsWithinFourPercent) {
  SCOPED_TRACE("seed 271828");
  const auto team = MakeTeam(2);
  std::vector<TwoRuns> runs;
  for (const OptimizerKind kind : kKinds) {
    OptimizerHyper hyper = {.kind = kind, .learning_rate = 0.01};
    if (kind == OptimizerKind::kSgd) hyper.learning_rate = 0.05;
    if (kind == OptimizerKind::kLion) hyper.beta2 = 0.99;
    runs.emplace_back(hyper);
  }
  Quadratic problem;
  for (int64_t step = 1; step <= 200; ++step) {
    problem.SetStep(step);
    for (TwoRuns& run : runs) run.Step(problem, step, team.get());
  }
  const double start = problem.Loss(std::vector<float>(Quadratic::kParameters));
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(Name(kKinds[i]));
    const double exact = problem.Loss(runs[i].exact());
    EXPECT_LT(exact, 0.15 * start) << "hardly moved: the test would prove nothing";
    EXPECT_NEAR(problem.Loss(runs[i].coded()) / exact, 1.0, 0.04);
    EXPECT_NE(runs[i].coded(), runs[i].exact());
  }
}

TEST(EightBitStatesDeathTest, SlicesThatDoNotFitAbort) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto team = MakeTeam(1);
  Range range(2);
  const auto update = [&](std::vector<EightBitSlice> slices) {
    UpdateEightBit(range.View(0, 2), slices, 1.0f, team.get());
  };
  const OptimizerHyper hyper = {.learning_rate = 1e-3};
  EXPECT_DEATH(update({{.begin = 0, .count = 2 * kBlock + 1, .hyper = hyper}}), "range.count");
  EXPECT_DEATH(
      update({{.begin = 0, .count = 2, .hyper = hyper}, {.begin = 1, .count = 2, .hyper = hyper}}),
      "slice.begin");
  OptimizerHyper adafactor = hyper;
  adafactor.kind = OptimizerKind::kAdafactor;
  EXPECT_DEATH(update({{.begin = 0, .count = 2, .hyper = adafactor}}), "adafactor");
  EightBitRange half = range.View(0, 1);
  half.count = kBlock / 2;
  EXPECT_DEATH(UpdateEightBit(half, {}, 1.0f, team.get()), "kQuantizationBlockElements");
}

}  // namespace
}  // namespace gantry
