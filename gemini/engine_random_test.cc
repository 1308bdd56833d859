// Random sequences of store calls (leases in any order, partial backward passes, micro-batches,
// evaluations, state access, non-finite gradients, clipping on and off) with random optimizers and
// formats of their states run on the engine under random budgets and on the plain in-memory store.
// Everything observed must be the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "gemini/testing/memory_store.h"

namespace gantry {
namespace {

// Draws numbers in order from a counter-based stream.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_({.seed = seed, .stream = 0}) {}
  int64_t Below(int64_t bound) { return random_.Below(bound, next_++); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  double Normal() { return random_.Normal(next_++); }

 private:
  Random random_;
  uint64_t next_ = 0;
};

// What the store was made for.
struct Make {
  int64_t micro_batches;
  OptimizerKind optimizer;
  StateFormat format;
};

Make RandomMake(Dice& dice) {
  const OptimizerKind kinds[] = {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd,
                                 OptimizerKind::kLion, OptimizerKind::kAdafactor};
  const StateFormat formats[] = {StateFormat::kF32, StateFormat::kSplitMaster,
                                 StateFormat::kEightBit};
  Make make{.micro_batches = dice.OneIn(3) ? 2 : 1,
            .optimizer = kinds[dice.Below(5)],
            .format = formats[dice.Below(3)]};
  if (make.optimizer == OptimizerKind::kAdafactor) make.format = StateFormat::kF32;
  if (!CheckSupported(make.optimizer, make.format).ok()) make.optimizer = OptimizerKind::kAdam;
  return make;
}

// Runs one script on a store. The script depends on the seed only.
class Script {
 public:
  Script(ParameterStore* store, uint64_t seed, const Make& make)
      : store_(store), dice_(seed), make_(make) {}

  absl::StatusOr<std::vector<uint64_t>> Run() {
    GANTRY_RETURN_IF_ERROR(Register());
    GANTRY_RETURN_IF_ERROR(store_->Seal());
    for (const TensorId tensor : tensors_) GANTRY_RETURN_IF_ERROR(Write(tensor));
    for (int64_t action = 0; action < 12; ++action) {
      switch (dice_.Below(6)) {
        case 0:
          GANTRY_RETURN_IF_ERROR(Evaluate());
          break;
        case 1:
          GANTRY_RETURN_IF_ERROR(Write(tensors_[Pick()]));
          break;
        case 2:
          GANTRY_RETURN_IF_ERROR(ObserveState(tensors_[Pick()]));
          break;
        default:
          GANTRY_RETURN_IF_ERROR(Train());
      }
    }
    for (const TensorId tensor : tensors_) GANTRY_RETURN_IF_ERROR(ObserveState(tensor));
    return observed_;
  }

 private:
  size_t Pick() { return static_cast<size_t>(dice_.Below(static_cast<int64_t>(tensors_.size()))); }
  const TensorSpec& spec(TensorId tensor) const { return store_->layout().tensor(tensor); }

  absl::Status Register() {
    const int64_t count = 3 + dice_.Below(10);
    for (int64_t i = 0; i < count; ++i) {
      TensorSpec spec{.name = StrCat("t", i),
                      .shape = {1 + dice_.Below(dice_.OneIn(3) ? 90'000 : 9'000)},
                      .dtype = dice_.OneIn(4) ? DType::kF32 : DType::kBF16};
      if (make_.optimizer == OptimizerKind::kAdafactor) MakeMatrices(spec.shape);
      if (dice_.OneIn(5)) spec.trainability = Trainability::kFrozen;
      GANTRY_ASSIGN_OR_RETURN(const TensorId id, store_->Register(spec, {}));
      tensors_.push_back(id);
    }
    return absl::OkStatus();
  }

  // Of rank 1 to 3, with about as many elements; rows may be longer than a chunk.
  void MakeMatrices(std::vector<int64_t>& shape) {
    for (int64_t n = dice_.Below(3); n > 0; --n) {
      const int64_t rows = 1 + dice_.Below(dice_.OneIn(2) ? 4 : 300);
      const int64_t rest = std::max<int64_t>(1, shape.back() / rows);
      shape.back() = rows;
      shape.push_back(rest);
    }
  }

  // Any range of any state, with magnitudes far apart and, for masters, ties of rounding.
  absl::Status Write(TensorId tensor) {
    StateKind kind = StateKind::kParameter;
    const StateKind others[] = {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance};
    if (!dice_.OneIn(3)) kind = others[dice_.Below(3)];
    if (!store_->layout().HasState(kind, tensor)) kind = StateKind::kParameter;
    const DType dtype = kind == StateKind::kParameter ? spec(tensor).dtype : DType::kF32;
    const int64_t elements = store_->layout().StateElements(kind, tensor);
    const int64_t first = dice_.OneIn(4) ? 0 : dice_.Below(elements);
    const int64_t count = dice_.OneIn(4) ? elements - first : 1 + dice_.Below(elements - first);
    std::vector<std::byte> bytes(static_cast<size_t>(count * SizeOf(dtype)));
    const double scale = dice_.Normal();
    const bool ties = kind == StateKind::kMaster && dice_.OneIn(2);
    for (int64_t i = 0; i < count; ++i) {
      auto value = static_cast<float>(scale * std::cos(static_cast<double>(i)));
      if (kind == StateKind::kVariance) value = value * value;
      if (ties) {
        const uint32_t bits = (std::bit_cast<uint32_t>(value) & 0xffff0000u) | 0x8000u;
        value = std::bit_cast<float>(bits);
      }
      StoreElement(dtype, bytes.data(), i, value);
    }
    return store_->WriteState(kind, tensor, first, bytes);
  }

  absl::Status ObserveState(TensorId tensor) {
    for (const StateKind kind :
         {StateKind::kParameter, StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
      if (!store_->layout().HasState(kind, tensor)) continue;
      const int64_t size = kind == StateKind::kParameter ? SizeOf(spec(tensor).dtype) : 4;
      std::vector<std::byte> bytes(
          static_cast<size_t>(store_->layout().StateElements(kind, tensor) * size));
      GANTRY_RETURN_IF_ERROR(store_->ReadState(kind, tensor, 0, bytes));
      Observe(bytes);
    }
    return absl::OkStatus();
  }

  void Observe(std::span<const std::byte> bytes) {
    Hasher hasher;
    hasher.Update(bytes);
    observed_.push_back(hasher.Digest64());
  }

  // A lease of one to four different tensors, read and hashed.
  absl::Status ReadSome() {
    std::vector<ParameterUse> uses;
    for (int64_t n = 1 + dice_.Below(4); n > 0; --n) {
      const TensorId tensor = tensors_[Pick()];
      bool again = ready_[static_cast<size_t>(tensor.value())];
      for (const ParameterUse& use : uses) again = again || use.tensor == tensor;
      if (!again) uses.push_back({tensor, ParameterAccess::kRead});
    }
    if (uses.empty()) return absl::OkStatus();
    GANTRY_ASSIGN_OR_RETURN(const Lease lease, store_->Acquire(uses, "read", Phase::kForward));
    GANTRY_ASSIGN_OR_RETURN(const ArenaBuffer buffer,
                            store_->arena().Allocate(dice_.Below(100'000)));
    for (int i = 0; i < lease.size(); ++i) {
      Observe(
          {lease[i].parameter, static_cast<size_t>(lease[i].elements * SizeOf(lease[i].dtype))});
    }
    return absl::OkStatus();
  }

  absl::Status Evaluate() {
    GANTRY_RETURN_IF_ERROR(store_->BeginStep({.trace_key = "evaluate", .optimizer = {}}));
    GANTRY_RETURN_IF_ERROR(store_->BeginMicroBatch());
    ready_.assign(tensors_.size(), false);
    for (int64_t n = dice_.Below(8); n > 0; --n) GANTRY_RETURN_IF_ERROR(ReadSome());
    return store_->EndStep().status();
  }

  absl::Status Contribute(TensorId tensor, double scale) {
    const ParameterUse use{
        tensor, dice_.OneIn(3) ? ParameterAccess::kGradient : ParameterAccess::kReadAndGradient};
    GANTRY_ASSIGN_OR_RETURN(const Lease lease,
                            store_->Acquire({&use, 1}, "gradient", Phase::kBackward));
    const LeasedTensor& leased = lease[0];
    for (int64_t i = 0; i < leased.elements; ++i) {
      auto value = static_cast<float>(scale * std::cos(static_cast<double>(i % 1000)));
      if (leased.gradient_content == GradientContent::kPartial) {
        value += LoadElement(leased.gradient_dtype, leased.gradient, i);
      }
      StoreElement(leased.gradient_dtype, leased.gradient, i, value);
    }
    return absl::OkStatus();
  }

  absl::Status Train() {
    OptimizerStep hyper{
        .kind = make_.optimizer, .learning_rate = 1e-2, .weight_decay = 0.01, .step = ++step_};
    if (dice_.OneIn(2)) hyper.max_gradient_norm = 0.5;
    if (dice_.OneIn(3)) hyper.loss_scale = 8.0;
    if (dice_.OneIn(3)) hyper.non_finite = OptimizerStep::NonFinite::kUpdateAnyway;
    const bool poison = dice_.OneIn(5) && hyper.non_finite == OptimizerStep::NonFinite::kSkipStep;
    GANTRY_RETURN_IF_ERROR(
        store_->BeginStep({.micro_batches = make_.micro_batches, .optimizer = hyper}));
    for (int64_t m = 0; m < make_.micro_batches; ++m) {
      GANTRY_RETURN_IF_ERROR(store_->BeginMicroBatch());
      ready_.assign(tensors_.size(), false);
      for (int64_t n = dice_.Below(6); n > 0; --n) GANTRY_RETURN_IF_ERROR(ReadSome());
      GANTRY_RETURN_IF_ERROR(Backward(poison));
    }
    GANTRY_ASSIGN_OR_RETURN(const StepResult result, store_->EndStep());
    observed_.push_back(static_cast<uint64_t>(result.outcome));
    if (std::isfinite(result.gradient_norm)) {
      observed_.push_back(std::bit_cast<uint64_t>(result.gradient_norm));
      observed_.push_back(std::bit_cast<uint64_t>(result.clip_factor));
    }
    return absl::OkStatus();
  }

  absl::Status Backward(bool poison) {
    std::vector<TensorId> order = tensors_;
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(dice_.Below(static_cast<int64_t>(i)))]);
    }
    for (const TensorId tensor : order) {
      if (spec(tensor).trainability == Trainability::kFrozen || dice_.OneIn(6)) continue;
      for (int64_t n = 1 + dice_.Below(2); n > 0; --n) {
        const double scale =
            poison && dice_.OneIn(3) ? std::numeric_limits<double>::infinity() : dice_.Normal();
        GANTRY_RETURN_IF_ERROR(Contribute(tensor, scale));
      }
      store_->GradientReady(tensor);
      ready_[static_cast<size_t>(tensor.value())] = true;
      if (dice_.OneIn(3)) GANTRY_RETURN_IF_ERROR(ReadSome());
    }
    return absl::OkStatus();
  }

  ParameterStore* store_;
  Dice dice_;
  Make make_;
  int64_t step_ = 0;
  std::vector<TensorId> tensors_;
  std::vector<bool> ready_;
  std::vector<uint64_t> observed_;
};

class EngineRandomTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(EngineRandomTest, ObservesWhatTheMemoryStoreObserves) {
  const uint64_t seed = GetParam();
  Dice dice(seed + 1'000'000);
  const Make make = RandomMake(dice);
  SCOPED_TRACE(StrCat("seed ", seed, ", ", make.optimizer, " in ", make.format));
  const DType gradient = dice.OneIn(2) || make.micro_batches > 1 ? DType::kF32 : DType::kBF16;
  const bool unified = dice.OneIn(3);
  const int64_t chunk = kChunkGranularityElements * (1 + dice.Below(3));
  const int64_t slot = chunk * 2;
  // Four 90,000-element f32 tensors with gradients, and one update beside them, always fit.
  const int64_t device_slots = 60 / (chunk / kChunkGranularityElements) + 12 + dice.Below(8);
  const int64_t host_slots = 13 + dice.Below(20);
  const char* policies[] = {"auto", "lru", "cpu", "planned"};

  auto team = ThreadTeam::Create({.threads = 2});
  ASSERT_TRUE(team.ok());
  auto oracle = MemoryStore::Create({.gradient_dtype = gradient,
                                     .team = team->get(),
                                     .optimizer = make.optimizer,
                                     .state_format = make.format});
  ASSERT_TRUE(oracle.ok()) << oracle.status();
  auto expected = Script(oracle->get(), seed, make).Run();
  ASSERT_TRUE(expected.ok()) << expected.status();

  MonotonicClock clock;
  MemoryLogger logger;
  PosixFileCalls files;
  auto device =
      CreateHostDevice({.topology = unified ? DeviceTopology::kUnified : DeviceTopology::kDiscrete,
                        .clock = &clock});
  ASSERT_TRUE(device.ok());
  auto engine =
      Engine::Create({.device = device->get(),
                      .team = team->get(),
                      .clock = &clock,
                      .logger = &logger,
                      .files = &files,
                      .device_memory = Bytes(slot * device_slots),
                      .host_memory = Bytes(slot * host_slots),
                      .spill_directories = {::testing::TempDir()},
                      .policy = policies[dice.Below(4)],
                      .static_fractions = {},
                      .look_ahead = dice.Below(10),
                      .chunk_elements = chunk,
                      .gradient_dtype = gradient,
                      .optimizer = make.optimizer,
                      .state_format = make.format,
                      .update_order = seed % 2 == 0 || make.optimizer == OptimizerKind::kAdafactor
                                          ? UpdateOrder::kExact
                                          : UpdateOrder::kSpeculative});
  ASSERT_TRUE(engine.ok()) << engine.status();
  auto actual = Script(engine->get(), seed, make).Run();
  ASSERT_TRUE(actual.ok()) << actual.status();
  EXPECT_EQ(*actual, *expected);
  EXPECT_LE((*engine)->statistics().device.slots_peak, device_slots);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineRandomTest, ::testing::Range(uint64_t{0}, uint64_t{90}));

}  // namespace
}  // namespace gantry
