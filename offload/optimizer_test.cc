// Goal: every optimizer gives exactly the documented float arithmetic for every element type,
// instruction set, team and split, and nothing else in memory changes. Method: bits against a
// scalar reference with the same order of operations (this file is built with -ffp-contract=off),
// golden bits from numpy float32, and torch's formulas in double with a tolerance.
#include "offload/optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "chunk/optimizer_states.h"
#include "gtest/gtest.h"
#include "offload/dispatch_targets.h"
#include "offload/elements.h"

namespace gantry {
namespace {

constexpr OptimizerHyper kHyper = {.kind = OptimizerKind::kAdamW,
                                   .learning_rate = 1e-3,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .epsilon = 1e-8,
                                   .weight_decay = 0.01,
                                   .step = 3};
constexpr OptimizerKind kElementwise[] = {OptimizerKind::kAdamW, OptimizerKind::kAdam,
                                          OptimizerKind::kSgd, OptimizerKind::kLion};
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::unique_ptr<ThreadTeam> MakeTeam(int threads) {
  return ThreadTeam::Create({.threads = threads}).value();
}

float Get(const std::vector<uint8_t>& bytes, DType dtype, int64_t i) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + i * SizeOf(dtype), SizeOf(dtype));
  if (dtype == DType::kF32) return std::bit_cast<float>(word);
  const auto bits = static_cast<uint16_t>(word);
  return dtype == DType::kBF16 ? BF16BitsToFloat(bits) : F16BitsToFloat(bits);
}

void Put(std::vector<uint8_t>& bytes, DType dtype, int64_t i, float value) {
  uint32_t word = std::bit_cast<uint32_t>(value);
  if (dtype == DType::kBF16) word = FloatToBF16Bits(value);
  if (dtype == DType::kF16) word = FloatToF16Bits(value);
  std::memcpy(bytes.data() + i * SizeOf(dtype), &word, SizeOf(dtype));
}

// The state of some elements; operator== compares bits (of the floats too).
struct State {
  State(int64_t count, DType gradient, std::optional<DType> parameter)
      : master(count),
        momentum(count),
        variance(count),
        gradient_dtype(gradient),
        gradient(count * SizeOf(gradient)),
        parameter_dtype(parameter),
        parameter(parameter ? count * SizeOf(*parameter) : 0, uint8_t{0xa5}) {}

  OptimizerSlice Slice(OptimizerKind kind, int64_t offset, int64_t count) {
    OptimizerSlice slice = {.count = count,
                            .master = master.data() + offset,
                            .momentum = momentum.data() + offset,
                            .gradient = {.data = gradient.data() + offset * SizeOf(gradient_dtype),
                                         .dtype = gradient_dtype},
                            .parameter = std::nullopt};
    if (StatesOf(kind).variance) slice.variance = variance.data() + offset;
    if (parameter_dtype) {
      slice.parameter = {.data = parameter.data() + offset * SizeOf(*parameter_dtype),
                         .dtype = *parameter_dtype};
    }
    return slice;
  }
  int64_t count() const { return static_cast<int64_t>(master.size()); }

  std::vector<float> master, momentum, variance;
  DType gradient_dtype;
  std::vector<uint8_t> gradient;
  std::optional<DType> parameter_dtype;
  std::vector<uint8_t> parameter;
};

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) bits[i] = std::bit_cast<uint32_t>(values[i]);
  return bits;
}

void ExpectSameBits(const State& actual, const State& expected) {
  EXPECT_EQ(Bits(actual.master), Bits(expected.master));
  EXPECT_EQ(Bits(actual.momentum), Bits(expected.momentum));
  EXPECT_EQ(Bits(actual.variance), Bits(expected.variance));
  EXPECT_EQ(actual.gradient, expected.gradient);
  EXPECT_EQ(actual.parameter, expected.parameter);
}

State RandomState(int64_t count, DType gradient, std::optional<DType> parameter) {
  const Random random({.seed = 20240517, .stream = static_cast<uint64_t>(count)});
  State state(count, gradient, parameter);
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(4 * i);
    state.master[i] = static_cast<float>(0.1 * random.Normal(index));
    state.momentum[i] = static_cast<float>(1e-3 * random.Normal(index + 1));
    state.variance[i] = static_cast<float>(1e-6 * std::pow(random.Normal(index + 2), 2));
    Put(state.gradient, gradient, i, static_cast<float>(1e-2 * random.Normal(index + 3)));
  }
  return state;
}

float Canonical(float x) { return std::isnan(x) ? kNan : x; }

// Adam's moments and step on a decayed master, one rounding at a time.
void ReferenceAdamStep(const OptimizerHyper& hyper, float g, float& p, float& m, float& v) {
  const double steps = static_cast<double>(hyper.step);
  const auto beta1 = static_cast<float>(hyper.beta1);
  const auto beta2 = static_cast<float>(hyper.beta2);
  const auto rest1 = static_cast<float>(1.0 - hyper.beta1);
  const auto rest2 = static_cast<float>(1.0 - hyper.beta2);
  const auto size = static_cast<float>(hyper.learning_rate / (1.0 - std::pow(hyper.beta1, steps)));
  const auto correction = static_cast<float>(std::sqrt(1.0 - std::pow(hyper.beta2, steps)));
  const auto epsilon = static_cast<float>(hyper.epsilon);
  const float kept1 = beta1 * m;
  const float added1 = rest1 * g;
  m = kept1 + added1;
  const float kept2 = beta2 * v;
  const float half_added2 = rest2 * g;
  const float added2 = half_added2 * g;
  v = kept2 + added2;
  const float root = std::sqrt(v);
  const float corrected = root / correction;
  const float denominator = corrected + epsilon;
  const float numerator = size * m;
  const float quotient = numerator / denominator;
  p = p - quotient;
}

void ReferenceLion(const OptimizerHyper& hyper, float g, float& p, float& m) {
  const float kept1 = static_cast<float>(hyper.beta1) * m;
  const float added1 = static_cast<float>(1.0 - hyper.beta1) * g;
  const float c = kept1 + added1;
  const float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c;
  const float decayed = p * static_cast<float>(1.0 - hyper.learning_rate * hyper.weight_decay);
  const float moved = static_cast<float>(hyper.learning_rate) * sign;
  p = decayed - moved;
  const float kept2 = static_cast<float>(hyper.beta2) * m;
  const float added2 = static_cast<float>(1.0 - hyper.beta2) * g;
  m = kept2 + added2;
}

// The documented arithmetic of every kind, element by element.
void Reference(State& state, const OptimizerHyper& hyper, float factor, int64_t offset,
               int64_t count) {
  const auto rate = static_cast<float>(hyper.learning_rate);
  const auto decay = static_cast<float>(1.0 - hyper.learning_rate * hyper.weight_decay);
  for (int64_t i = offset; i < offset + count; ++i) {
    const float g = factor * Get(state.gradient, state.gradient_dtype, i);
    float p = state.master[i];
    float m = state.momentum[i];
    float v = state.variance[i];
    const float penalty = static_cast<float>(hyper.weight_decay) * p;
    if (hyper.kind == OptimizerKind::kAdamW) {
      p = p * decay;
      ReferenceAdamStep(hyper, g, p, m, v);
    } else if (hyper.kind == OptimizerKind::kAdam) {
      ReferenceAdamStep(hyper, g + penalty, p, m, v);
    } else if (hyper.kind == OptimizerKind::kSgd) {
      const float kept = static_cast<float>(hyper.beta1) * m;
      const float total = g + penalty;
      m = kept + total;
      const float moved = rate * m;
      p = p - moved;
    } else {
      ReferenceLion(hyper, g, p, m);
    }
    state.master[i] = Canonical(p);
    state.momentum[i] = Canonical(m);
    if (StatesOf(hyper.kind).variance) state.variance[i] = Canonical(v);
    if (state.parameter_dtype) {
      Put(state.parameter, *state.parameter_dtype, i, state.master[i]);
    }
  }
}

OptimizerHyper HyperOf(OptimizerKind kind) {
  OptimizerHyper hyper = kHyper;
  hyper.kind = kind;
  return hyper;
}

// Calls body for every elementwise kind's hyperparameters.
void ForEachKind(const std::function<void(const OptimizerHyper&)>& body) {
  for (const OptimizerKind kind : kElementwise) {
    SCOPED_TRACE(Name(kind));
    body(HyperOf(kind));
  }
}

void Update(State& state, const OptimizerHyper& hyper, float factor, ThreadTeam* team) {
  UpdateSlice(state.Slice(hyper.kind, 0, state.count()), hyper, factor, team);
}

// Calls body for every pair of element types, "no parameter" included, and instruction set.
void ForEachVariant(const std::function<void(DType, std::optional<DType>)>& body) {
  const std::optional<DType> parameters[] = {std::nullopt, DType::kF32, DType::kBF16, DType::kF16};
  for (const int64_t target : DispatchTargets()) {
    const ScopedDispatchTarget scope(target);
    for (const DType gradient : kDTypes) {
      for (const std::optional<DType>& parameter : parameters) {
        SCOPED_TRACE(testing::Message()
                     << DispatchTargetName(target) << " gradient " << gradient << " parameter "
                     << (parameter ? Name(*parameter) : std::string_view("none")));
        body(gradient, parameter);
      }
    }
  }
}

TEST(OptimizerTest, SeveralInstructionSetsAreCompared) {
  // x86-64 processors of the last ten years have AVX2; the scalar code is always there.
  EXPECT_GE(DispatchTargets().size(), 2u);
}

// Updates a part of `before` by each kind.
void ExpectReferenceBitsOfEveryKind(const State& before, int64_t offset, int64_t count,
                                    ThreadTeam* team) {
  SCOPED_TRACE(testing::Message() << "offset " << offset << " count " << count);
  ForEachKind([&](const OptimizerHyper& hyper) {
    State actual = before;
    State expected = before;
    UpdateSlice(actual.Slice(hyper.kind, offset, count), hyper, 0.75f, team);
    Reference(expected, hyper, 0.75f, offset, count);
    ExpectSameBits(actual, expected);
  });
}

TEST(OptimizerTest, OddCountsAndOffsetsMatchReferenceAndTouchNothingElse) {
  const auto team = MakeTeam(1);
  ForEachVariant([&](DType gradient, std::optional<DType> parameter) {
    for (const int64_t offset : {0, 1, 3, 7}) {
      for (const int64_t count : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 100}) {
        ExpectReferenceBitsOfEveryKind(RandomState(offset + count + 9, gradient, parameter), offset,
                                       count, team.get());
      }
    }
  });
}

TEST(OptimizerTest, TeamsMatchReferenceOverManyTasks) {
  constexpr int64_t kCount = 3 * 32 * 1024 + 1001;
  for (const int threads : {1, 2, 3}) {
    const auto team = MakeTeam(threads);
    ForEachVariant([&](DType gradient, std::optional<DType> parameter) {
      if (gradient == DType::kF16 || parameter == DType::kF32) return;  // covered by small counts
      SCOPED_TRACE(testing::Message() << threads << " threads");
      State actual = RandomState(kCount, gradient, parameter);
      State expected = actual;
      Update(actual, kHyper, 0.75f, team.get());
      Reference(expected, kHyper, 0.75f, 0, kCount);
      ExpectSameBits(actual, expected);
    });
  }
}

TEST(OptimizerTest, SplitsOfARangeGiveTheSameBits) {
  constexpr int64_t kCount = 40'000;
  const auto team = MakeTeam(2);
  const Random random({.seed = 7, .stream = 0});
  SCOPED_TRACE("seed 7");
  ForEachKind([&](const OptimizerHyper& hyper) {
    State whole = RandomState(kCount, DType::kBF16, DType::kBF16);
    State split = whole;
    Update(whole, hyper, 1.0f, team.get());
    int64_t pieces = 0;
    for (int64_t begin = 0; begin < kCount; ++pieces) {
      const int64_t size =
          std::min(1 + random.Below(3000, static_cast<uint64_t>(pieces)), kCount - begin);
      const OptimizerSlice slice = split.Slice(hyper.kind, begin, size);
      if (pieces % 2 == 0) {
        UpdateSlice(slice, hyper, 1.0f, team.get());
      } else {
        UpdateElements(slice, ComputeScalars(hyper), 1.0f);
      }
      begin += size;
    }
    EXPECT_GT(pieces, 10);
    ExpectSameBits(split, whole);
  });
}

// Bits computed with numpy 2.4 float32 arrays, operation by operation, three steps.
TEST(OptimizerTest, ThreeStepsMatchGoldenBits) {
  const float gradients[3][4] = {
      {0.5f, -0.125f, 2.0f, 0.0f}, {0.25f, 0.375f, -1.0f, 1e-3f}, {-1.0f, 0.0625f, 0.5f, -3.0f}};
  const auto team = MakeTeam(1);
  State state(4, DType::kF32, std::nullopt);
  state.master = {1.0f, -0.5f, 0.25f, 3.0f};
  OptimizerHyper hyper = kHyper;
  for (int step = 0; step < 3; ++step) {
    hyper.step = step + 1;
    std::memcpy(state.gradient.data(), gradients[step], sizeof(gradients[step]));
    Update(state, hyper, 1.0f, team.get());
  }
  EXPECT_EQ(Bits(state.master),
            (std::vector<uint32_t>{0x3f7f8ceeu, 0xbefffa46u, 0x3e7e58d5u, 0x403ffcccu}));
  EXPECT_EQ(Bits(state.momentum),
            (std::vector<uint32_t>{0xbd178d50u, 0x3cf4bc6au, 0x3df9db22u, 0xbe998dceu}));
  EXPECT_EQ(Bits(state.variance),
            (std::vector<uint32_t>{0x3aabf554u, 0x3927c17bu, 0x3babbcbbu, 0x3c1374bdu}));
}

// torch.optim's formulas (Lion: lion-pytorch's) in double for one element.
struct DoubleState {
  double p = 0.5, m = 0, v = 0;

  void Step(const OptimizerHyper& hyper, double g) {
    const double lr = hyper.learning_rate;
    const auto t = static_cast<double>(hyper.step);
    const bool decoupled =
        hyper.kind == OptimizerKind::kAdamW || hyper.kind == OptimizerKind::kLion;
    if (decoupled) p *= 1 - lr * hyper.weight_decay;
    if (!decoupled) g += hyper.weight_decay * p;
    switch (hyper.kind) {
      case OptimizerKind::kAdamW:
      case OptimizerKind::kAdam: {
        m = hyper.beta1 * m + (1 - hyper.beta1) * g;
        v = hyper.beta2 * v + (1 - hyper.beta2) * g * g;
        const double m_hat = m / (1 - std::pow(hyper.beta1, t));
        const double v_hat = v / (1 - std::pow(hyper.beta2, t));
        p -= lr * m_hat / (std::sqrt(v_hat) + hyper.epsilon);
        return;
      }
      case OptimizerKind::kSgd:
        m = hyper.step == 1 ? g : hyper.beta1 * m + g;
        p -= lr * m;
        return;
      default: {
        const double c = hyper.beta1 * m + (1 - hyper.beta1) * g;
        p -= lr * ((c > 0) - (c < 0));
        m = hyper.beta2 * m + (1 - hyper.beta2) * g;
      }
    }
  }
};

TEST(OptimizerTest, FollowsDoublePrecisionOverManySteps) {
  constexpr int64_t kCount = 64;
  constexpr int kSteps = 200;
  const auto team = MakeTeam(1);
  const Random random({.seed = 99, .stream = 1});
  SCOPED_TRACE("seed 99");
  ForEachKind([&](OptimizerHyper hyper) {
    State state(kCount, DType::kF32, std::nullopt);
    state.master.assign(kCount, 0.5f);
    std::vector<DoubleState> expected(kCount);
    for (hyper.step = 1; hyper.step <= kSteps; ++hyper.step) {
      for (int64_t i = 0; i < kCount; ++i) {
        const auto g =
            static_cast<float>(0.3 + random.Normal(static_cast<uint64_t>(hyper.step * kCount + i)));
        Put(state.gradient, DType::kF32, i, 8.0f * g);
        expected[i].Step(hyper, g);
      }
      Update(state, hyper, 0.125f, team.get());
    }
    for (int64_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(state.master[i], expected[i].p, 2e-6) << i;  // 200 roundings of 6e-8 * 0.5
      EXPECT_LT(expected[i].p, 0.48) << "hardly moved: the test would prove nothing";
    }
  });
}

TEST(OptimizerTest, PenaltyOfAdamAndSgdPassesThroughTheMoments) {
  const auto team = MakeTeam(1);
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kSgd}) {
    OptimizerHyper hyper = HyperOf(kind);
    hyper.weight_decay = 0.5;
    hyper.beta1 = 0.0;
    State state(1, DType::kF32, std::nullopt);
    state.master = {2.0f};
    Update(state, hyper, 1.0f, team.get());
    EXPECT_EQ(state.momentum[0], 1.0f) << Name(kind);
  }
}

TEST(OptimizerTest, LionStandsStillOnZeroAndShowsNan) {
  const auto team = MakeTeam(1);
  OptimizerHyper hyper = HyperOf(OptimizerKind::kLion);
  hyper.weight_decay = 0;
  State state(2, DType::kF32, std::nullopt);
  state.master = {2.0f, 3.0f};
  Put(state.gradient, DType::kF32, 1, kNan);
  Update(state, hyper, 1.0f, team.get());
  EXPECT_EQ(state.master[0], 2.0f);
  EXPECT_TRUE(std::isnan(state.master[1]));
  EXPECT_TRUE(std::isnan(state.momentum[1]));
}

TEST(OptimizerTest, DecayIsDecoupledFromTheGradient) {
  const auto team = MakeTeam(1);
  State state(2, DType::kBF16, DType::kBF16);
  state.master = {2.0f, -0.3f};
  OptimizerHyper hyper = kHyper;
  hyper.weight_decay = 0;
  Update(state, hyper, 1.0f, team.get());
  EXPECT_EQ(state.master, (std::vector<float>{2.0f, -0.3f}));
  EXPECT_EQ(Get(state.parameter, DType::kBF16, 1), BF16BitsToFloat(FloatToBF16Bits(-0.3f)));
  hyper.weight_decay = 0.5;
  hyper.learning_rate = 0.5;
  Update(state, hyper, 1.0f, team.get());
  EXPECT_EQ(state.master, (std::vector<float>{1.5f, -0.3f * 0.75f}));
  EXPECT_EQ(state.momentum, (std::vector<float>{0.0f, 0.0f}));
  EXPECT_EQ(state.variance, (std::vector<float>{0.0f, 0.0f}));
}

TEST(OptimizerTest, FirstStepMovesByTheLearningRateAndLateStepsAreUncorrected) {
  const auto team = MakeTeam(1);
  OptimizerHyper hyper = kHyper;
  hyper.weight_decay = 0;
  hyper.step = 1;
  State first(2, DType::kF32, std::nullopt);
  Put(first.gradient, DType::kF32, 0, 123.0f);
  Put(first.gradient, DType::kF32, 1, -1e-3f);
  Update(first, hyper, 1.0f, team.get());
  EXPECT_NEAR(first.master[0], -1e-3, 1e-9);
  EXPECT_NEAR(first.master[1], 1e-3, 2e-8);  // epsilon over |g| = 1e-5 of it

  hyper.step = int64_t{1} << 40;
  const OptimizerScalars scalars = ComputeScalars(hyper);
  EXPECT_EQ(scalars.step_size, 1e-3f);
  EXPECT_EQ(scalars.correction2, 1.0f);
}

// Every combination of awkward values for master, momentum and gradient, beside some variance.
State ExtremeState(DType gradient, std::optional<DType> parameter) {
  const auto nan_with_payload = std::bit_cast<float>(0xffc12345u);
  const auto signalling_nan = std::bit_cast<float>(0x7f800001u);
  // clang-format off
  const std::vector<float> values = {
      0.0f, -0.0f, 1.0f, -1.0f, 1e-45f, -1e-40f, 1e-38f, 1e-20f, 6e-8f, 65504.0f, 65520.0f, 1e19f,
      3.4e38f, -3.4e38f, kInfinity, -kInfinity, kNan, nan_with_payload, signalling_nan};
  // clang-format on
  const auto n = static_cast<int64_t>(values.size());
  State state(n * n * n, gradient, parameter);
  for (int64_t i = 0; i < state.count(); ++i) {
    state.master[i] = values[i % n];
    state.momentum[i] = values[i / n % n];
    state.variance[i] = std::fabs(values[i / 7 % n]);
    Put(state.gradient, gradient, i, values[i / n / n]);
  }
  return state;
}

TEST(OptimizerTest, ExtremeValuesMatchReferenceOnEveryTarget) {
  const auto team = MakeTeam(1);
  ForEachVariant([&](DType gradient, std::optional<DType> parameter) {
    for (const double epsilon : {0.0, 1e-8}) {
      ForEachKind([&](OptimizerHyper hyper) {
        State actual = ExtremeState(gradient, parameter);
        State expected = actual;
        hyper.epsilon = epsilon;
        Update(actual, hyper, 0.5f, team.get());
        Reference(expected, hyper, 0.5f, 0, actual.count());
        ExpectSameBits(actual, expected);  // NaNs too: the reference has one of them
      });
    }
  });
}

// Updates all of `state` on every instruction set and compares with the reference.
void ExpectReferenceBitsOnEveryTarget(const State& state, const OptimizerHyper& hyper) {
  const auto team = MakeTeam(1);
  State expected = state;
  Reference(expected, hyper, 1.0f, 0, expected.count());
  for (const int64_t target : DispatchTargets()) {
    SCOPED_TRACE(DispatchTargetName(target));
    const ScopedDispatchTarget scope(target);
    State actual = state;
    Update(actual, hyper, 1.0f, team.get());
    ExpectSameBits(actual, expected);
  }
}

// With no gradient, no decay and zero state the master passes through, so that the parameter shows
// the rounding alone. Values around every representable number and every tie between two.
TEST(OptimizerTest, ParameterRoundingMatchesBaseForEverySixteenBitNeighbourhood) {
  OptimizerHyper hyper = kHyper;
  hyper.weight_decay = 0;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const uint32_t tie = dtype == DType::kBF16 ? 0x8000 : 0x1000;
    const uint32_t distances[] = {0, 1, tie - 1, tie, tie + 1};
    State state(int64_t{65536} * 5, DType::kBF16, dtype);
    for (int64_t i = 0; i < state.count(); ++i) {
      const auto pattern = static_cast<uint16_t>(i / 5);
      const float exact =
          dtype == DType::kBF16 ? BF16BitsToFloat(pattern) : F16BitsToFloat(pattern);
      state.master[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(exact) + distances[i % 5]);
    }
    ExpectReferenceBitsOnEveryTarget(state, hyper);
  }
}

// With beta1 = 0 the momentum is the gradient as it was read.
TEST(OptimizerTest, GradientConversionMatchesBaseForEverySixteenBitPattern) {
  OptimizerHyper hyper = kHyper;
  hyper.beta1 = 0;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    State state(65536, dtype, std::nullopt);
    for (int64_t i = 0; i < state.count(); ++i) {
      const auto pattern = static_cast<uint16_t>(i);
      std::memcpy(state.gradient.data() + 2 * i, &pattern, 2);
    }
    ExpectReferenceBitsOnEveryTarget(state, hyper);
  }
}

TEST(OptimizerTest, BadHyperparametersAreNamed) {
  EXPECT_TRUE(ValidateOptimizer(kHyper).ok());
  const auto expect_named = [](double OptimizerHyper::* field, double value,
                               std::string_view name) {
    OptimizerHyper hyper = kHyper;
    hyper.*field = value;
    const absl::Status status = ValidateOptimizer(hyper);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << " = " << value;
    EXPECT_NE(std::string(status.message()).find(name), std::string::npos) << status.ToString();
  };
  expect_named(&OptimizerHyper::learning_rate, -1e-9, "learning_rate");
  expect_named(&OptimizerHyper::learning_rate, std::numeric_limits<double>::infinity(),
               "learning_rate");
  expect_named(&OptimizerHyper::beta1, 1.0, "beta1");
  expect_named(&OptimizerHyper::beta1, -0.1, "beta1");
  expect_named(&OptimizerHyper::beta2, std::nan(""), "beta2");
  expect_named(&OptimizerHyper::epsilon, -1.0, "epsilon");
  expect_named(&OptimizerHyper::weight_decay, std::nan(""), "weight_decay");
  OptimizerHyper hyper = kHyper;
  hyper.step = 0;
  EXPECT_EQ(ValidateOptimizer(hyper).code(), absl::StatusCode::kInvalidArgument);
  hyper = kHyper;
  hyper.beta1 = hyper.beta2 = hyper.learning_rate = hyper.epsilon = hyper.weight_decay = 0;
  EXPECT_TRUE(ValidateOptimizer(hyper).ok());
}

TEST(OptimizerDeathTest, ArraysThatDoNotFitTheKindAbort) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto team = MakeTeam(1);
  State state(8, DType::kBF16, DType::kBF16);
  const auto update = [&](OptimizerSlice slice, OptimizerKind kind) {
    UpdateSlice(slice, HyperOf(kind), 1.0f, team.get());
  };
  OptimizerSlice slice = state.Slice(OptimizerKind::kAdamW, 0, 8);
  EXPECT_DEATH(update(slice, OptimizerKind::kSgd), "variance");
  EXPECT_DEATH(update(slice, OptimizerKind::kAdafactor), "not elementwise");
  slice.variance = nullptr;
  EXPECT_DEATH(update(slice, OptimizerKind::kAdamW), "variance");
  slice = state.Slice(OptimizerKind::kAdamW, 0, 8);
  slice.gradient.data = nullptr;
  EXPECT_DEATH(update(slice, OptimizerKind::kAdamW), "gradient");
  slice = state.Slice(OptimizerKind::kAdamW, 0, 8);
  slice.master = nullptr;
  EXPECT_DEATH(update(slice, OptimizerKind::kAdamW), "master");
  uint16_t low_half[8] = {};
  slice.low_half = low_half;
  slice.parameter = Elements{.data = state.parameter.data(), .dtype = DType::kF16};
  EXPECT_DEATH(update(slice, OptimizerKind::kAdamW), "kBF16");
}

}  // namespace
}  // namespace gantry
