// The engine on emulated GPUs. Operators are kernels on the device's queue: leases end when they
// are submitted, long before they have run, and host code cannot touch what they compute with. The
// numbers are those of the plain in-memory store, to the bit, and no emulated GPU finds a misuse:
// no access without an order, none to what is not mapped.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/activation_arena.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/emulation/emulated_cuda_calls.h"
#include "device/cuda/emulation/stream_runner.h"
#include "device/cuda/stream.h"
#include "gemini/engine.h"
#include "gemini/testing/memory_store.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr int64_t kSlot = 2 * kChunk;
constexpr int64_t kWidth = 97;  // of the activations, in floats

// Runs one operator: at once, or as a kernel behind the ones before.
using RunOperator = std::function<absl::Status(const std::string&, std::function<void()>)>;

// Layers in a row, each of one vector of parameters. What it reads and writes in an operator is
// named by address only, as kernels do.
class VectorModel {
 public:
  VectorModel(ParameterStore* store, RunOperator run, int64_t layers)
      : store_(*store), run_(std::move(run)), layers_(layers) {}

  absl::Status Register() {
    for (int64_t i = 0; i < layers_; ++i) {
      TensorSpec spec{
          .name = StrCat("layer", i), .shape = {25'001 + 4'000 * (i % 5)}, .dtype = DType::kBF16};
      if (i % 4 == 3) spec.trainability = Trainability::kFrozen;
      GANTRY_ASSIGN_OR_RETURN(const TensorId id, store_.Register(spec, {}));
      tensors_.push_back(id);
      trained_.push_back(i % 4 != 3);
    }
    return absl::OkStatus();
  }

  absl::Status Initialize() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const Random random({.seed = 3, .stream = i});
      const int64_t count = store_.layout().StateElements(StateKind::kParameter, tensors_[i]);
      std::vector<std::byte> bytes(static_cast<size_t>(2 * count));
      for (int64_t e = 0; e < count; ++e) {
        StoreElement(DType::kBF16, bytes.data(), e,
                     static_cast<float>(random.Normal(static_cast<uint64_t>(e))));
      }
      GANTRY_RETURN_IF_ERROR(store_.WriteState(StateKind::kParameter, tensors_[i], 0, bytes));
    }
    return absl::OkStatus();
  }

  absl::Status TrainStep(int64_t step) {
    const OptimizerStep hyper{.learning_rate = 1e-2, .step = step, .max_gradient_norm = 1.0};
    GANTRY_RETURN_IF_ERROR(store_.BeginStep({.optimizer = hyper}));
    GANTRY_RETURN_IF_ERROR(store_.BeginMicroBatch());
    std::vector<ArenaBuffer> saved;
    GANTRY_ASSIGN_OR_RETURN(ArenaBuffer input, Allocate());
    GANTRY_RETURN_IF_ERROR(Run("input", [x = Floats(input)] {
      for (int64_t i = 0; i < kWidth; ++i) x[i] = static_cast<float>(i) / kWidth;
    }));
    saved.push_back(std::move(input));
    for (size_t i = 0; i < tensors_.size(); ++i) {
      GANTRY_ASSIGN_OR_RETURN(ArenaBuffer output, Forward(i, saved.back()));
      saved.push_back(std::move(output));
    }
    for (size_t i = tensors_.size(); i-- > 0;) {
      GANTRY_RETURN_IF_ERROR(Backward(i, saved[i], saved[i + 1]));
      saved.pop_back();
    }
    saved.clear();
    return store_.EndStep().status();
  }

  absl::StatusOr<uint64_t> Hash() {
    uint64_t hash = 0;
    for (const StateKind kind :
         {StateKind::kParameter, StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
      for (const TensorId tensor : tensors_) {
        if (!store_.layout().HasState(kind, tensor)) continue;
        const int64_t count = store_.layout().StateElements(kind, tensor);
        std::vector<std::byte> bytes(
            static_cast<size_t>(count * (kind == StateKind::kParameter ? 2 : 4)));
        GANTRY_RETURN_IF_ERROR(store_.ReadState(kind, tensor, 0, bytes));
        hash = hash * 31 + Hash64(bytes);
      }
    }
    return hash;
  }

 private:
  static float* Floats(const ArenaBuffer& buffer) {
    return reinterpret_cast<float*>(buffer.data());
  }
  absl::StatusOr<ArenaBuffer> Allocate() {
    return store_.arena().Allocate(kWidth * static_cast<int64_t>(sizeof(float)));
  }
  absl::Status Run(const std::string& name, std::function<void()> work) {
    return store_.dry_run() ? absl::OkStatus() : run_(name, std::move(work));
  }

  absl::StatusOr<ArenaBuffer> Forward(size_t i, const ArenaBuffer& input) {
    GANTRY_ASSIGN_OR_RETURN(ArenaBuffer output, Allocate());
    const ParameterUse use{tensors_[i], ParameterAccess::kRead};
    const std::string name = StrCat("forward ", i);
    GANTRY_ASSIGN_OR_RETURN(const Lease lease, store_.Acquire({&use, 1}, name, Phase::kForward));
    const std::byte* const weight = lease[0].parameter;
    GANTRY_RETURN_IF_ERROR(
        Run(name, [weight, count = lease[0].elements, x = Floats(input), y = Floats(output)] {
          for (int64_t j = 0; j < kWidth; ++j) y[j] = 0.5F * x[j];
          for (int64_t e = 0; e < count; e += 37) {
            y[e % kWidth] += 1e-3F * LoadElement(DType::kBF16, weight, e);
          }
        }));
    return output;
  }

  // Gradients flow through the saved outputs, which the kernels overwrite.
  absl::Status Backward(size_t i, const ArenaBuffer& input, const ArenaBuffer& output) {
    const ParameterUse use{
        tensors_[i], trained_[i] ? ParameterAccess::kReadAndGradient : ParameterAccess::kRead};
    const std::string name = StrCat("backward ", i);
    {
      GANTRY_ASSIGN_OR_RETURN(const Lease lease, store_.Acquire({&use, 1}, name, Phase::kBackward));
      const LeasedTensor& leased = lease[0];
      const bool adds = leased.gradient_content == GradientContent::kPartial;
      GANTRY_RETURN_IF_ERROR(Run(name, [weight = leased.parameter, gradient = leased.gradient,
                                        dtype = leased.gradient_dtype, count = leased.elements,
                                        adds, x = Floats(input), y = Floats(output)] {
        for (int64_t e = 0; e < count && gradient != nullptr; ++e) {
          const float before = adds ? LoadElement(dtype, gradient, e) : 0.0F;
          StoreElement(dtype, gradient, e, before + y[e % kWidth]);
        }
        for (int64_t j = 0; j < kWidth; ++j) {
          x[j] += 0.25F * y[j] + 1e-2F * LoadElement(DType::kBF16, weight, 11 * j);
        }
      }));
    }
    if (trained_[i]) store_.GradientReady(tensors_[i]);
    return absl::OkStatus();
  }

  ParameterStore& store_;
  const RunOperator run_;
  const int64_t layers_;
  std::vector<TensorId> tensors_;
  std::vector<bool> trained_;
};

absl::StatusOr<uint64_t> Train(ParameterStore* store, RunOperator run) {
  VectorModel model(store, std::move(run), 14);
  GANTRY_RETURN_IF_ERROR(model.Register());
  GANTRY_RETURN_IF_ERROR(model.TrainStep(1));
  GANTRY_RETURN_IF_ERROR(store->Seal());
  GANTRY_RETURN_IF_ERROR(model.Initialize());
  for (int64_t step = 1; step <= 4; ++step) GANTRY_RETURN_IF_ERROR(model.TrainStep(step));
  return model.Hash();
}

struct Scenario {
  const char* name;
  int64_t device_slots;
  int64_t host_slots;
  bool files;
  const char* policy;
};

class EngineCudaTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(EngineCudaTest, KernelsBehindTheHostComputeTheSameBits) {
  MonotonicClock clock;
  PosixFileCalls files;
  const auto team = ThreadTeam::Create({.threads = 2});
  ASSERT_THAT(team, IsOk());
  const Scenario& scenario = GetParam();
  const auto expected = [&]() -> absl::StatusOr<uint64_t> {
    GANTRY_ASSIGN_OR_RETURN(
        auto store, MemoryStore::Create({.gradient_dtype = DType::kBF16, .team = team->get()}));
    return Train(store.get(), [](const std::string&, const std::function<void()>& work) {
      work();
      return absl::OkStatus();
    });
  }();
  ASSERT_THAT(expected, IsOk());
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    MemoryLogger logger;
    EmulatedCudaCalls calls({.seed = seed, .yields_max = seed == 3 ? 200 : 20});
    {
      auto device = CreateCudaDevice({.calls = &calls, .clock = &clock, .logger = &logger});
      ASSERT_THAT(device, IsOk());
      auto engine = Engine::Create({.device = device->get(),
                                    .team = team->get(),
                                    .clock = &clock,
                                    .logger = &logger,
                                    .files = &files,
                                    .device_memory = Bytes(kSlot * scenario.device_slots),
                                    .host_memory = Bytes(kSlot * scenario.host_slots),
                                    .spill_directories = std::vector<std::string>(
                                        scenario.files ? 1 : 0, ::testing::TempDir()),
                                    .policy = scenario.policy,
                                    .static_fractions = {},
                                    .chunk_elements = kChunk});
      ASSERT_THAT(engine, IsOk());
      const auto run = [&](const std::string& name, const std::function<void()>& work) {
        return (*device)->Run(name, [&](CudaStream stream) {
          return static_cast<StreamRunner*>(stream)->Launch(name, {.grid = {1}, .block = {1}},
                                                            work);
        });
      };
      EXPECT_THAT(Train(engine->get(), run), IsOkAndHolds(*expected));
      EXPECT_THAT(calls.misuse(), IsOk());
    }
    EXPECT_THAT(calls.misuse(), IsOk());
    EXPECT_EQ(calls.live(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, EngineCudaTest,
                         ::testing::Values(Scenario{"everything_fits", 200, 300, false, "cpu"},
                                           Scenario{"parameters_stream", 9, 300, false, "cpu"},
                                           Scenario{"states_in_files", 9, 30, true, "cpu"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gantry
