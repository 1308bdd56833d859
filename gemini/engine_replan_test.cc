// Steps that are not what their plan expects, with the policy `planned`: a layer that is left out,
// one without a gradient, more activations, more micro-batches, evaluations in between. They are
// served on demand, with the bits of the store that holds everything in plain memory; a key whose
// steps have changed for good is traced and planned again; one that strayed once keeps its plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/fault_plan.h"
#include "base/testing/status_matchers.h"
#include "device/fake/fake_device.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "gemini/testing/memory_store.h"
#include "gemini/testing/toy_model.h"
#include "nvme/simulated_io.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr int64_t kLane = 1'000'000'000;  // bytes per second, in virtual time

struct MachineCase {
  const char* name;
  bool threads;  // or an event loop
  DeviceTopology topology;
  int64_t device_slots;
  bool files;
  int64_t host_slots = 400;
};

std::ostream& operator<<(std::ostream& out, const MachineCase& c) { return out << c.name; }

class Machinery {
 public:
  explicit Machinery(const MachineCase& c)
      : case_(c), loop_({.clock = &virtual_clock_, .seed = 7}) {}

  absl::StatusOr<std::unique_ptr<Engine>> MakeEngine() {
    GANTRY_ASSIGN_OR_RETURN(team_, ThreadTeam::Create({.threads = 1}));
    EngineOptions options{.device = nullptr,
                          .team = team_.get(),
                          .clock = &clock_,
                          .logger = &logger_,
                          .files = healthy_.files(),
                          .device_memory = Bytes(2 * kChunk * case_.device_slots),
                          .host_memory = Bytes(2 * kChunk * case_.host_slots),
                          .static_fractions = {},
                          .chunk_elements = kChunk,
                          .gradient_dtype = DType::kF32};
    if (case_.files) options.spill_directories = {::testing::TempDir()};
    if (case_.threads) {
      GANTRY_ASSIGN_OR_RETURN(device_,
                              CreateHostDevice({.topology = case_.topology, .clock = &clock_}));
    } else {
      GANTRY_ASSIGN_OR_RETURN(device_, CreateFakeDevice({.topology = case_.topology,
                                                         .bandwidth_bytes_per_second = kLane,
                                                         .clock = &virtual_clock_,
                                                         .loop = &loop_,
                                                         .faults = &healthy_}));
      options.clock = &virtual_clock_;
      options.event_loop = &loop_;
      options.simulated_update_bytes_per_second = 4 * kLane;
      if (case_.files) options.spill_shares = {1.0};
      options.make_io = [this](const IoBackendOptions& io) { return MakeDrive(io); };
    }
    options.device = device_.get();
    return Engine::Create(options);
  }

  const std::vector<std::string>& messages() { return messages_ = logger_.messages(); }

 private:
  absl::StatusOr<std::unique_ptr<IoBackend>> MakeDrive(const IoBackendOptions& io) {
    return SimulatedIo::Create({.clock = &virtual_clock_,
                                .loop = &loop_,
                                .faults = &healthy_,
                                .sink = io.sink,
                                .bandwidth_bytes_per_second = kLane,
                                .queue_depth = 4});
  }

  const MachineCase case_;
  MonotonicClock clock_;
  VirtualClock virtual_clock_;
  EventLoop loop_;
  FaultPlan healthy_{{}};
  MemoryLogger logger_;
  std::vector<std::string> messages_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
};

// Runs training steps of a toy model on a store.
class ToyRun {
 public:
  explicit ToyRun(ParameterStore* store, int64_t layers = 12)
      : store_(store),
        model_(store, {.layers = layers, .layer_elements = 40'001, .activation_bytes = 20'000}) {}

  absl::Status Start() {
    GANTRY_RETURN_IF_ERROR(model_.Register());
    GANTRY_RETURN_IF_ERROR(Train(1));
    steps_ = 0;
    GANTRY_RETURN_IF_ERROR(store_->Seal());
    return model_.Initialize();
  }
  absl::Status Train(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      GANTRY_RETURN_IF_ERROR(model_
                                 .TrainStep({.learning_rate = 1e-2,
                                             .weight_decay = 0.1,
                                             .step = ++steps_,
                                             .max_gradient_norm = 1.0})
                                 .status());
    }
    return absl::OkStatus();
  }
  ToyModel& model() { return model_; }

  // Losses, norms, and hashes of all states.
  absl::StatusOr<std::vector<double>> Bits() {
    std::vector<double> bits = model_.losses();
    for (const StateKind kind :
         {StateKind::kParameter, StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
      GANTRY_ASSIGN_OR_RETURN(const uint64_t hash, model_.Hash(kind));
      bits.push_back(static_cast<double>(hash >> 12));
    }
    return bits;
  }

 private:
  ParameterStore* store_;
  ToyModel model_;
  int64_t steps_ = 0;
};

class EngineReplanTest : public ::testing::TestWithParam<MachineCase> {
 protected:
  static constexpr int64_t kUntilPlanned = 3;  // steps: two are timed

  void SetUp() override {
    auto team = ThreadTeam::Create({.threads = 1});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
    auto oracle = MemoryStore::Create({.gradient_dtype = DType::kF32, .team = team_.get()});
    ASSERT_THAT(oracle, IsOk());
    oracle_ = *std::move(oracle);
    auto engine = machinery_.MakeEngine();
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
    expected_ = std::make_unique<ToyRun>(oracle_.get());
    actual_ = std::make_unique<ToyRun>(engine_.get());
    ASSERT_THAT(expected_->Start(), IsOk());
    ASSERT_THAT(actual_->Start(), IsOk());
  }

  void TearDown() override {
    if (HasFatalFailure()) return;
    const auto expected = expected_->Bits();
    const auto actual = actual_->Bits();
    ASSERT_THAT(expected, IsOk());
    ASSERT_THAT(actual, IsOk());
    EXPECT_EQ(*actual, *expected);
    EXPECT_THAT(machinery_.messages(),
                ::testing::Not(::testing::Contains(::testing::HasSubstr("no movement plan"))));
  }

  void Train(int64_t steps, const ToyModel::Variation& variation = {}) {
    for (ToyRun* run : {expected_.get(), actual_.get()}) {
      run->model().Vary(variation);
      ASSERT_THAT(run->Train(steps), IsOk());
    }
  }
  void Evaluate() {
    for (ToyRun* run : {expected_.get(), actual_.get()}) {
      ASSERT_THAT(run->model().Evaluate(), IsOk());
    }
  }
  bool planned() { return engine_->movement_report("train").planned; }
  uint64_t hash() { return engine_->movement_report("train").hash; }
  int64_t moments() { return std::ssize(engine_->trace("train")->moments); }
  int64_t off_plan() { return engine_->statistics().leases_off_plan; }

  // Steps of another kind, from now on: traced after two, planned three later, then as expected.
  void ExpectPlannedAnew(const ToyModel::Variation& variation) {
    Train(kUntilPlanned);
    ASSERT_TRUE(planned());
    Train(1, variation);
    EXPECT_TRUE(planned()) << "once is not for good";
    Train(1, variation);
    EXPECT_FALSE(planned());
    engine_->ResetStatistics();
    Train(kUntilPlanned, variation);
    EXPECT_TRUE(planned());
    Train(2, variation);
    EXPECT_EQ(off_plan(), 0);
  }

  Machinery machinery_{GetParam()};
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<MemoryStore> oracle_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ToyRun> expected_;
  std::unique_ptr<ToyRun> actual_;
};

TEST_P(EngineReplanTest, ALayerThatIsLeftOutForGood) {
  const int64_t before = moments();
  ExpectPlannedAnew({.skipped_layer = 4});
  EXPECT_EQ(moments(), before - 2);
  // And back.
  Train(2);
  EXPECT_EQ(moments(), before);
  Train(kUntilPlanned);
  EXPECT_TRUE(planned());
}

TEST_P(EngineReplanTest, ALayerThatGetsNoGradientAnyMore) {
  const int64_t before = moments();
  ExpectPlannedAnew({.constant_layer = 7});
  EXPECT_EQ(moments(), before - 1);
}

TEST_P(EngineReplanTest, ALongerBatch) {
  const auto activations = [this] {
    int64_t most = 0;
    for (const Moment& moment : engine_->trace("train")->moments) {
      most = std::max(most, moment.activation_slots);
    }
    return most;
  };
  const int64_t before = activations();
  ExpectPlannedAnew({.activation_bytes = 40'000});
  EXPECT_GT(activations(), before);
}

TEST_P(EngineReplanTest, MoreMicroBatches) {
  const int64_t before = moments();
  ExpectPlannedAnew({.micro_batches = 2});
  EXPECT_GT(moments(), before + 12);
}

TEST_P(EngineReplanTest, StepsThatStrayNowAndThenKeepTheirPlan) {
  const int64_t before = moments();
  Train(kUntilPlanned);
  ASSERT_TRUE(planned());
  const uint64_t plan = hash();
  for (int64_t layer = 0; layer < 12; layer += 5) {
    Train(1, {.skipped_layer = layer});
    Train(1, {.constant_layer = layer});
    Train(1);
    Train(1, {.micro_batches = 2});
    Train(1, {.activation_bytes = 40'000});
  }
  Train(1);
  EXPECT_TRUE(planned());
  EXPECT_EQ(hash(), plan);
  EXPECT_EQ(moments(), before);
  engine_->ResetStatistics();
  Train(2);
  EXPECT_EQ(off_plan(), 0);
}

TEST_P(EngineReplanTest, EvaluationsInBetweenLeaveThePlanAlone) {
  Train(kUntilPlanned);
  const uint64_t plan = hash();
  for (int i = 0; i < 3; ++i) {
    Evaluate();
    Train(1);
    Evaluate();
    Evaluate();
    Train(2);
  }
  EXPECT_TRUE(planned());
  EXPECT_EQ(hash(), plan);
}

INSTANTIATE_TEST_SUITE_P(
    Machines, EngineReplanTest,
    ::testing::Values(MachineCase{"threads", true, DeviceTopology::kDiscrete, 20, false},
                      MachineCase{"threads_files", true, DeviceTopology::kDiscrete, 20, true},
                      MachineCase{"threads_unified", true, DeviceTopology::kUnified, 60, true},
                      MachineCase{"events", false, DeviceTopology::kDiscrete, 20, false},
                      MachineCase{"events_files", false, DeviceTopology::kDiscrete, 20, true},
                      MachineCase{"events_unified", false, DeviceTopology::kUnified, 60, true}),
    [](const auto& info) { return std::string(info.param.name); });

// Frozen tensors of a chunk each, read forward and backward, and one that trains: what a plan keeps
// of them over the border of steps shows in what moves.
class FrozenModel {
 public:
  static constexpr int kTensors = 16;

  explicit FrozenModel(Engine* engine) : engine_(engine) {}

  absl::Status Start() {
    for (int i = 0; i <= kTensors; ++i) {
      GANTRY_ASSIGN_OR_RETURN(
          const TensorId tensor,
          engine_->Register(
              {.name = StrCat("t", i),
               .shape = {kChunk},
               .dtype = DType::kBF16,
               .trainability = i < kTensors ? Trainability::kFrozen : Trainability::kTrainable},
              {}));
      tensors_.push_back(tensor);
    }
    GANTRY_RETURN_IF_ERROR(Step());
    GANTRY_RETURN_IF_ERROR(Evaluate());
    return engine_->Seal();
  }

  absl::Status Step() {
    GANTRY_RETURN_IF_ERROR(
        engine_->BeginStep({.optimizer = OptimizerStep{.learning_rate = 0.01, .step = ++steps_}}));
    GANTRY_RETURN_IF_ERROR(engine_->BeginMicroBatch());
    for (int i = 0; i < kTensors; ++i) GANTRY_RETURN_IF_ERROR(Read(i, Phase::kForward));
    {
      const ParameterUse use{tensors_[kTensors], ParameterAccess::kReadAndGradient};
      GANTRY_ASSIGN_OR_RETURN(const Lease lease,
                              engine_->Acquire({&use, 1}, "trained", Phase::kBackward));
      if (!engine_->dry_run()) std::memset(lease[0].gradient, 0, 4 * kChunk);
    }
    engine_->GradientReady(tensors_[kTensors]);
    for (int i = kTensors; i-- > 0;) GANTRY_RETURN_IF_ERROR(Read(i, Phase::kBackward));
    return engine_->EndStep().status();
  }

  absl::Status Evaluate() {
    GANTRY_RETURN_IF_ERROR(engine_->BeginStep({.trace_key = "evaluate"}));
    GANTRY_RETURN_IF_ERROR(engine_->BeginMicroBatch());
    for (int i = 0; i < kTensors; ++i) GANTRY_RETURN_IF_ERROR(Read(i, Phase::kForward));
    return engine_->EndStep().status();
  }

  // Copies to the device in what `step` does, until all is quiet.
  template <typename Step>
  int64_t CopiesIn(Step step) {
    EXPECT_THAT(engine_->Drain(), IsOk());
    engine_->ResetStatistics();
    EXPECT_THAT(step(), IsOk());
    EXPECT_THAT(engine_->Drain(), IsOk());
    const auto lane = static_cast<size_t>(TransferLane::kHostToDevice);
    return engine_->statistics().lanes[lane].transfers;
  }

 private:
  absl::Status Read(int tensor, Phase phase) {
    const ParameterUse use{tensors_[static_cast<size_t>(tensor)], ParameterAccess::kRead};
    return engine_->Acquire({&use, 1}, "frozen", phase).status();
  }

  Engine* engine_;
  std::vector<TensorId> tensors_;
  int64_t steps_ = 0;
};

// Host memory holds less than the parameters: the plan leaves some of them in files. Reads for the
// device go through host slots, and what an update made goes back to its file.
TEST(EngineParametersInFilesTest, GiveTheSameBits) {
  constexpr int64_t kLayers = 48;
  for (const bool threads : {false, true}) {
    SCOPED_TRACE(threads ? "threads" : "events");
    Machinery machinery({"files", threads, DeviceTopology::kDiscrete, 40, true, 48});
    auto engine = machinery.MakeEngine();
    ASSERT_THAT(engine, IsOk());
    ToyRun actual(engine->get(), kLayers);
    ASSERT_THAT(actual.Start(), IsOk());
    ASSERT_THAT(actual.Train(7), IsOk());
    const MovementReport report = (*engine)->movement_report("train");
    ASSERT_TRUE(report.planned) << ::testing::PrintToString(machinery.messages());
    EXPECT_GT(report.shape.parameters_in_files, 0);
    auto team = ThreadTeam::Create({.threads = 1});
    ASSERT_THAT(team, IsOk());
    auto oracle = MemoryStore::Create({.gradient_dtype = DType::kF32, .team = team->get()});
    ASSERT_THAT(oracle, IsOk());
    ToyRun expected(oracle->get(), kLayers);
    ASSERT_THAT(expected.Start(), IsOk());
    ASSERT_THAT(expected.Train(7), IsOk());
    const auto bits = expected.Bits();
    ASSERT_THAT(bits, IsOk());
    EXPECT_THAT(actual.Bits(), IsOkAndHolds(*bits));
  }
}

// The same steps on the same machine give the same plan; on another machine they give another.
TEST(EnginePlanTest, HasAHashOfWhatItDoes) {
  const auto hash = [](int64_t slots) -> absl::StatusOr<uint64_t> {
    Machinery machinery({"events", false, DeviceTopology::kDiscrete, slots, false});
    GANTRY_ASSIGN_OR_RETURN(const auto engine, machinery.MakeEngine());
    FrozenModel model(engine.get());
    GANTRY_RETURN_IF_ERROR(model.Start());
    for (int i = 0; i < 4; ++i) GANTRY_RETURN_IF_ERROR(model.Step());
    EXPECT_TRUE(engine->movement_report("train").planned);
    return engine->movement_report("train").hash;
  };
  const auto first = hash(10);
  ASSERT_THAT(first, IsOk());
  EXPECT_NE(*first, 0u);
  EXPECT_THAT(hash(10), IsOkAndHolds(*first));
  EXPECT_THAT(hash(14), IsOkAndHolds(::testing::Ne(*first)));
}

// An evaluation costs the copies that it makes itself, and no step after it more than it pushed
// out.
TEST(EngineKeepSetTest, SurvivesEvaluations) {
  for (const int64_t slots : {8, 10, 14}) {
    SCOPED_TRACE(StrCat(slots, " slots"));
    Machinery machinery({"events", false, DeviceTopology::kDiscrete, slots, false});
    auto engine = machinery.MakeEngine();
    ASSERT_THAT(engine, IsOk());
    FrozenModel model(engine->get());
    ASSERT_THAT(model.Start(), IsOk());
    const auto step = [&model] { return model.Step(); };
    const auto evaluate = [&model] { return model.Evaluate(); };
    for (int i = 0; i < 5; ++i) ASSERT_THAT(step(), IsOk());
    ASSERT_TRUE((*engine)->movement_report("train").planned);
    const int64_t steady = model.CopiesIn(step);
    EXPECT_EQ(model.CopiesIn(step), steady);
    ASSERT_LT(steady, 2 * FrozenModel::kTensors);
    for (int i = 0; i < 3; ++i) {
      const int64_t evaluation = model.CopiesIn(evaluate);
      EXPECT_LE(evaluation, FrozenModel::kTensors);
      // A forward pass that meets the kept ones has as many misses as half of the step.
      EXPECT_LE(evaluation, steady / 2 + 2);
      EXPECT_LE(model.CopiesIn(step), steady + 2);
      EXPECT_EQ(model.CopiesIn(step), steady);
    }
  }
}

}  // namespace
}  // namespace gantry
