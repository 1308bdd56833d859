// Device updates on the emulator: bit for bit what the host's make, for every kind, element type
// and state format, odd sizes, and values that are not finite.
#include "offload/cuda/optimizer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "base/testing/status_matchers.h"
#include "chunk/optimizer_states.h"
#include "device/cuda/emulation/emulator.h"
#include "device/cuda/emulation/stream_runner.h"
#include "offload/elements.h"
#include "offload/gradient_norm.h"
#include "offload/optimizer.h"
#include "offload/split_master.h"

namespace gantry {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// The state of some elements; the same seed gives the same bits.
struct State {
  State(int64_t count, uint64_t seed, DType gradient_dtype, std::optional<DType> parameter_dtype)
      : gradient_type(gradient_dtype), parameter_type(parameter_dtype) {
    const auto size = static_cast<size_t>(count);
    const Random random({.seed = seed, .stream = 1});
    gradient.resize(size * static_cast<size_t>(SizeOf(gradient_type)));
    parameter.resize(size * 4);
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<uint64_t>(4 * i);
      const float value = 0.1F * static_cast<float>(random.Normal(at));
      const float squared = 1e-4F * static_cast<float>(random.Uniform(at + 1));
      const SplitState split = SplitMaster(value, squared);
      master.push_back(value);
      low_half.push_back(split.low_half);
      variance.push_back(squared);
      split_variance.push_back(split.variance);
      momentum.push_back(1e-2F * static_cast<float>(random.Normal(at + 2)));
      StoreElement(gradient_type, gradient.data(), i, Special(random, at + 3));
      StoreElement(DType::kBF16, parameter.data(), i, static_cast<float>(split.parameter));
    }
  }
  // One in fifty is a value that arithmetic treats apart.
  static float Special(const Random& random, uint64_t at) {
    constexpr float kSpecial[] = {0.0F,
                                  -0.0F,
                                  1e-45F,
                                  3e38F,
                                  -3e38F,
                                  std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()};
    const int64_t drawn = random.Below(350, at);
    return drawn < 7 ? kSpecial[drawn] : 0.1F * static_cast<float>(random.Normal(at));
  }
  OptimizerSlice Slice(int64_t count, OptimizerKind kind, bool split) {
    const bool has_variance = StatesOf(kind).variance;
    OptimizerSlice slice{.count = count,
                         .master = split ? nullptr : master.data(),
                         .low_half = split ? low_half.data() : nullptr,
                         .momentum = momentum.data(),
                         .variance = nullptr,
                         .gradient = {.data = gradient.data(), .dtype = gradient_type},
                         .parameter = std::nullopt};
    if (has_variance) slice.variance = split ? split_variance.data() : variance.data();
    if (parameter_type.has_value()) {
      slice.parameter = Elements{.data = parameter.data(), .dtype = *parameter_type};
    }
    return slice;
  }
  template <typename T>
  static std::vector<std::byte> BytesOf(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }
  void ExpectSame(const State& other) const {
    EXPECT_EQ(BytesOf(master), BytesOf(other.master));
    EXPECT_EQ(BytesOf(momentum), BytesOf(other.momentum));
    EXPECT_EQ(BytesOf(variance), BytesOf(other.variance));
    EXPECT_EQ(BytesOf(split_variance), BytesOf(other.split_variance));
    EXPECT_EQ(BytesOf(low_half), BytesOf(other.low_half));
    EXPECT_EQ(parameter, other.parameter);
  }

  DType gradient_type;
  std::optional<DType> parameter_type;
  std::vector<float> master, momentum, variance, split_variance;
  std::vector<uint16_t> low_half;
  std::vector<std::byte> gradient, parameter;
};

struct UpdateCase {
  OptimizerKind kind;
  DType gradient;
  std::optional<DType> parameter;
  bool split;
};

std::vector<UpdateCase> AllCases() {
  std::vector<UpdateCase> cases;
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd, OptimizerKind::kLion}) {
    for (const DType gradient : kDTypes) {
      for (const DType parameter : kDTypes) {
        cases.push_back({kind, gradient, parameter, /*split=*/false});
      }
      cases.push_back({kind, gradient, std::nullopt, /*split=*/false});
      if (StatesOf(kind).variance) cases.push_back({kind, gradient, DType::kBF16, /*split=*/true});
    }
  }
  return cases;
}

TEST(CudaOptimizer, BitsAreThoseOfTheHost) {
  uint64_t seed = 0;
  for (const UpdateCase& c : AllCases()) {
    for (const int64_t count : {0, 1, 255, 256, 257, 5000}) {
      SCOPED_TRACE(testing::Message() << c.kind << " " << c.gradient << " split " << c.split << ", "
                                      << count << " elements, seed " << ++seed);
      OptimizerHyper hyper{.kind = c.kind, .learning_rate = 1e-3, .weight_decay = 0.1, .step = 3};
      const OptimizerScalars scalars = ComputeScalars(hyper);
      State host(count, seed, c.gradient, c.parameter);
      State device(count, seed, c.gradient, c.parameter);
      ImmediateStream stream({.order = TurnOrder::kSeeded, .seed = seed});
      for (int step = 0; step < 2; ++step) {
        UpdateElements(host.Slice(count, c.kind, c.split), scalars, 0.7F);
        EXPECT_EQ(
            cuda::UpdateElements(&stream, device.Slice(count, c.kind, c.split), scalars, 0.7F), 0);
      }
      ASSERT_THAT(stream.TakeStatus(), IsOk());
      host.ExpectSame(device);
      if (HasFailure()) return;
    }
  }
}

TEST(CudaOptimizer, SumsOfSquaresAreThoseOfTheHost) {
  const auto team = ThreadTeam::Create({.threads = 1}).value();
  for (const DType dtype : kDTypes) {
    for (const int64_t count : {0, 1, 15, 16, 17, 16383, 16384, 16385, 300000}) {
      for (const bool finite : {true, false}) {
        SCOPED_TRACE(testing::Message() << dtype << " " << count << " " << finite);
        const Random random({.seed = static_cast<uint64_t>(count), .stream = 2});
        std::vector<std::byte> gradient(static_cast<size_t>(count * SizeOf(dtype)));
        for (int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<uint64_t>(i);
          StoreElement(dtype, gradient.data(), i,
                       finite ? static_cast<float>(random.Normal(at)) : State::Special(random, at));
        }
        const auto segments = static_cast<size_t>(SegmentCount(count));
        std::vector<double> host(segments, -1.0);
        std::vector<double> device(segments, -1.0);
        const bool all =
            SegmentSumSquares({.data = gradient.data(), .dtype = dtype}, count, host, team.get());
        EXPECT_TRUE(all || !finite);
        ImmediateStream stream({.order = TurnOrder::kDescending});
        EXPECT_EQ(cuda::SegmentSumSquares(&stream, {.data = gradient.data(), .dtype = dtype}, count,
                                          device.data()),
                  0);
        ASSERT_THAT(stream.TakeStatus(), IsOk());
        ASSERT_EQ(State::BytesOf(host), State::BytesOf(device));
      }
    }
  }
}

}  // namespace
}  // namespace gantry
