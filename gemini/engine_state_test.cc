// Goal: for each optimizer and format, the state that an engine shows is all there is: written to
// another engine, in any order, it continues with the same bits; and split masters are f32 masters.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "chunk/optimizer_states.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"

namespace gantry {
namespace {

using Code = absl::StatusCode;

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr StateKind kSaved[] = {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance};

struct Make {
  OptimizerKind optimizer;
  StateFormat format;
};
std::ostream& operator<<(std::ostream& out, const Make& make) {
  return out << make.optimizer << "_" << make.format;
}

struct Place {
  DeviceTopology topology = DeviceTopology::kDiscrete;
  int64_t chunk_elements = kChunk;
  int64_t device_slots = 60;
  int64_t host_slots = 60;
  const char* policy = "auto";
};

class Machinery {
 public:
  Machinery(const Make& make, const Place& place) : make_(make) {
    auto team = ThreadTeam::Create({.threads = 2});
    GANTRY_CHECK_OK(team.status());
    team_ = *std::move(team);
    auto device = CreateHostDevice({.topology = place.topology, .clock = &clock_});
    GANTRY_CHECK_OK(device.status());
    device_ = *std::move(device);
    const Bytes slot(2 * place.chunk_elements);
    auto engine = Engine::Create({.device = device_.get(),
                                  .team = team_.get(),
                                  .clock = &clock_,
                                  .logger = &logger_,
                                  .files = &files_,
                                  .device_memory = slot * place.device_slots,
                                  .host_memory = slot * place.host_slots,
                                  .spill_directories = {::testing::TempDir()},
                                  .policy = place.policy,
                                  .chunk_elements = place.chunk_elements,
                                  .gradient_dtype = DType::kF32,
                                  .optimizer = make.optimizer,
                                  .state_format = make.format});
    GANTRY_CHECK_OK(engine.status());
    engine_ = *std::move(engine);
    const std::pair<DType, std::vector<int64_t>> tensors[] = {
        {DType::kBF16, {50'001}},    {DType::kBF16, {70}},       {DType::kBF16, {2, 3, 500}},
        {DType::kF32, {9, 11, 101}}, {DType::kBF16, {160, 250}}, {DType::kF16, {5'000}}};
    for (const auto& [dtype, shape] : tensors) {
      const auto id =
          engine_->Register({.name = StrCat("t", tensors_.size()), .shape = shape, .dtype = dtype},
                            {.weight_decay_factor = shape.front() == 70 ? 0.0 : 1.0});
      GANTRY_CHECK_OK(id.status());
      tensors_.push_back(*id);
    }
    GANTRY_CHECK_OK(engine_->Seal());
  }

  Engine& engine() { return *engine_; }
  const std::vector<TensorId>& tensors() const { return tensors_; }
  bool Has(StateKind kind, TensorId tensor) const {
    return engine_->layout().HasState(kind, tensor);
  }

  std::vector<float> Read(StateKind kind, TensorId tensor) {
    std::vector<float> values(static_cast<size_t>(engine_->layout().StateElements(kind, tensor)));
    GANTRY_CHECK_OK(engine_->ReadState(kind, tensor, 0, std::as_writable_bytes(std::span(values))));
    return values;
  }
  // All f32 state, and the parameters' bits.
  std::vector<std::vector<float>> Everything() {
    std::vector<std::vector<float>> all;
    for (const TensorId tensor : tensors_) {
      for (const StateKind kind : kSaved) {
        if (Has(kind, tensor)) all.push_back(Read(kind, tensor));
      }
      const DType dtype = engine_->layout().tensor(tensor).dtype;
      std::vector<std::byte> bytes(
          static_cast<size_t>(engine_->layout().placement(tensor).elements * SizeOf(dtype)));
      GANTRY_CHECK_OK(engine_->ReadState(StateKind::kParameter, tensor, 0, bytes));
      std::vector<float>& parameter = all.emplace_back();
      for (int64_t i = 0; i < engine_->layout().placement(tensor).elements; ++i) {
        parameter.push_back(LoadElement(dtype, bytes.data(), i));
      }
    }
    return all;
  }

  absl::Status Initialize() {
    for (const TensorId tensor : tensors_) {
      const Random random({.seed = 5, .stream = static_cast<uint64_t>(tensor.value())});
      std::vector<float> values(static_cast<size_t>(engine_->layout().placement(tensor).elements));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(0.1 * random.Normal(i));
      }
      GANTRY_RETURN_IF_ERROR(
          engine_->WriteState(StateKind::kMaster, tensor, 0, std::as_bytes(std::span(values))));
    }
    return absl::OkStatus();
  }

  // The gradients are functions of parameter, step and place.
  absl::Status Train(int64_t step) {
    GANTRY_RETURN_IF_ERROR(
        engine_->BeginStep({.optimizer = OptimizerStep{.kind = make_.optimizer,
                                                       .learning_rate = 1e-2,
                                                       .weight_decay = 0.1,
                                                       .step = step,
                                                       .max_gradient_norm = 1.0}}));
    GANTRY_RETURN_IF_ERROR(engine_->BeginMicroBatch());
    for (const TensorId tensor : tensors_) {
      const ParameterUse use{tensor, ParameterAccess::kReadAndGradient};
      GANTRY_ASSIGN_OR_RETURN(Lease lease,
                              engine_->Acquire({&use, 1}, "backward", Phase::kBackward));
      for (int64_t i = 0; i < lease[0].elements; ++i) {
        const float value = LoadElement(lease[0].dtype, lease[0].parameter, i);
        const double place = static_cast<double>(i % 701) + static_cast<double>(step);
        StoreElement(lease[0].gradient_dtype, lease[0].gradient, i,
                     value + 0.1f * static_cast<float>(std::cos(place)));
      }
      lease.Release();
      engine_->GradientReady(tensor);
    }
    return engine_->EndStep().status();
  }

 private:
  Make make_;
  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::vector<TensorId> tensors_;
};

class EngineStateTest : public ::testing::TestWithParam<Make> {};

// Writes all state of `from` to `to`, in pieces and in random order.
absl::Status Copy(Machinery& from, Machinery& to, uint64_t seed) {
  struct Piece {
    StateKind kind;
    TensorId tensor;
    int64_t first;
    int64_t count;
  };
  std::vector<Piece> pieces;
  const Random random({.seed = seed, .stream = 1});
  uint64_t draw = 0;
  for (const TensorId tensor : from.tensors()) {
    for (const StateKind kind : kSaved) {
      if (!from.Has(kind, tensor)) continue;
      const int64_t elements = from.engine().layout().StateElements(kind, tensor);
      for (int64_t first = 0; first < elements;) {
        const int64_t count = std::min(elements - first, 1 + random.Below(20'000, draw++));
        pieces.push_back({kind, tensor, first, count});
        first += count;
      }
    }
  }
  for (size_t i = pieces.size(); i > 1; --i) {
    std::swap(pieces[i - 1],
              pieces[static_cast<size_t>(random.Below(static_cast<int64_t>(i), draw++))]);
  }
  for (const Piece& piece : pieces) {
    std::vector<float> values(static_cast<size_t>(piece.count));
    GANTRY_RETURN_IF_ERROR(from.engine().ReadState(piece.kind, piece.tensor, piece.first,
                                                   std::as_writable_bytes(std::span(values))));
    GANTRY_RETURN_IF_ERROR(to.engine().WriteState(piece.kind, piece.tensor, piece.first,
                                                  std::as_bytes(std::span(values))));
  }
  return absl::OkStatus();
}

TEST_P(EngineStateTest, AnotherEngineContinuesWithTheSameBits) {
  Machinery first(GetParam(), {});
  ASSERT_THAT(first.Initialize(), IsOk());
  for (int64_t step = 1; step <= 3; ++step) ASSERT_THAT(first.Train(step), IsOk());
  uint64_t seed = 1;
  std::vector<std::vector<float>> continued;
  for (const Place& place :
       {Place{}, Place{.topology = DeviceTopology::kUnified, .chunk_elements = 3 * kChunk},
        Place{.device_slots = 24, .host_slots = 14}, Place{.policy = "device"}}) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Machinery second(GetParam(), place);
    ASSERT_THAT(Copy(first, second, seed++), IsOk());
    EXPECT_EQ(second.Everything(), first.Everything());
    Machinery third(GetParam(), {});
    ASSERT_THAT(Copy(second, third, seed++), IsOk());
    for (int64_t step = 4; step <= 5; ++step) {
      ASSERT_THAT(second.Train(step), IsOk());
      ASSERT_THAT(third.Train(step), IsOk());
    }
    continued = third.Everything();
    EXPECT_EQ(continued, second.Everything());
  }
  for (int64_t step = 4; step <= 5; ++step) ASSERT_THAT(first.Train(step), IsOk());
  EXPECT_EQ(first.Everything(), continued);
}

TEST_P(EngineStateTest, AnotherKindOfStepIsAnError) {
  Machinery machinery(GetParam(), {});
  const OptimizerKind other =
      GetParam().optimizer == OptimizerKind::kAdamW ? OptimizerKind::kLion : OptimizerKind::kAdamW;
  const OptimizerStep step{.kind = other, .learning_rate = 1e-3};
  EXPECT_THAT(machinery.engine().BeginStep({.optimizer = step}),
              StatusIs(Code::kInvalidArgument, StrCat("the step is one of ", other)));
  ASSERT_THAT(machinery.Train(1), IsOk());
  std::byte bytes[4];
  if (!machinery.Has(StateKind::kVariance, TensorId(0))) {
    EXPECT_THAT(machinery.engine().ReadState(StateKind::kVariance, TensorId(0), 0, bytes),
                StatusIs(Code::kInvalidArgument, "'t0' has no variance"));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EngineStateTest,
                         ::testing::Values(Make{OptimizerKind::kAdamW, StateFormat::kF32},
                                           Make{OptimizerKind::kAdamW, StateFormat::kSplitMaster},
                                           Make{OptimizerKind::kAdam, StateFormat::kSplitMaster},
                                           Make{OptimizerKind::kAdamW, StateFormat::kEightBit},
                                           Make{OptimizerKind::kSgd, StateFormat::kF32},
                                           Make{OptimizerKind::kLion, StateFormat::kEightBit},
                                           Make{OptimizerKind::kAdafactor, StateFormat::kF32}),
                         [](const auto& info) {
                           return StrCat(info.param.optimizer, "_", info.param.format);
                         });

// The same bits, and state written by one is what the other continues with.
TEST(EngineSplitMasterTest, IsTheF32Master) {
  Machinery f32({OptimizerKind::kAdamW, StateFormat::kF32}, {});
  Machinery split({OptimizerKind::kAdamW, StateFormat::kSplitMaster}, {.host_slots = 20});
  ASSERT_THAT(f32.Initialize(), IsOk());
  ASSERT_THAT(split.Initialize(), IsOk());
  for (int64_t step = 1; step <= 4; ++step) {
    ASSERT_THAT(f32.Train(step), IsOk());
    ASSERT_THAT(split.Train(step), IsOk());
    EXPECT_EQ(split.Everything(), f32.Everything()) << step;
  }
  Machinery f32_again({OptimizerKind::kAdamW, StateFormat::kF32}, {});
  Machinery split_again({OptimizerKind::kAdamW, StateFormat::kSplitMaster}, {});
  ASSERT_THAT(Copy(split, f32_again, 3), IsOk());
  ASSERT_THAT(Copy(f32, split_again, 4), IsOk());
  ASSERT_THAT(f32_again.Train(5), IsOk());
  ASSERT_THAT(split_again.Train(5), IsOk());
  EXPECT_EQ(split_again.Everything(), f32_again.Everything());
}

// Ties of rounding, either way and either sign, beside a variance that is written before and after.
TEST(EngineSplitMasterTest, TiesAndVariancesDoNotTouchEachOther) {
  Machinery split({OptimizerKind::kAdamW, StateFormat::kSplitMaster}, {});
  std::vector<float> masters;
  std::vector<float> variances;
  for (const uint32_t bits : {0x3f808000u, 0x3f818000u, 0xbf808000u, 0xbf818000u, 0x3f807fffu,
                              0x3f808001u, 0x7f7f8000u, 0x00018000u, 0x80008000u, 0x7f7fffffu}) {
    masters.push_back(std::bit_cast<float>(bits));
    variances.push_back(static_cast<float>(masters.size()));
  }
  const TensorId t = split.tensors()[0];
  const auto write = [&](StateKind kind, const std::vector<float>& values) {
    return split.engine().WriteState(kind, t, 7, std::as_bytes(std::span(values)));
  };
  const auto read = [&](StateKind kind) {
    const std::vector<float> all = split.Read(kind, t);
    return std::vector<float>(all.begin() + 7, all.begin() + 7 + std::ssize(masters));
  };
  ASSERT_THAT(write(StateKind::kMaster, masters), IsOk());
  EXPECT_EQ(read(StateKind::kMaster), masters);
  EXPECT_EQ(read(StateKind::kVariance), std::vector<float>(masters.size(), 0.0f));
  ASSERT_THAT(write(StateKind::kVariance, variances), IsOk());
  EXPECT_EQ(read(StateKind::kMaster), masters);
  EXPECT_EQ(read(StateKind::kVariance), variances);
  std::swap(masters.front(), masters[1]);
  ASSERT_THAT(write(StateKind::kMaster, masters), IsOk());
  EXPECT_EQ(read(StateKind::kMaster), masters);
  EXPECT_EQ(read(StateKind::kVariance), variances);
  // A parameter that is written is its own master: no tie is left.
  const std::vector<BFloat16> parameters(masters.size(), BFloat16(1.5f));
  ASSERT_THAT(
      split.engine().WriteState(StateKind::kParameter, t, 7, std::as_bytes(std::span(parameters))),
      IsOk());
  EXPECT_EQ(read(StateKind::kMaster), std::vector<float>(masters.size(), 1.5f));
  EXPECT_EQ(read(StateKind::kVariance), variances);
}

}  // namespace
}  // namespace gantry
