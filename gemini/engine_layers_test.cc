// What layers save between their passes: kept, made again, or moved away; by layer, whatever the
// budgets, with the bits of the store that keeps everything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "gemini/testing/memory_store.h"
#include "gemini/testing/toy_model.h"

namespace gantry {
namespace {

constexpr int64_t kSlot = 2 * kChunkGranularityElements;
constexpr int64_t kSteps = 5;

struct Outcome {
  std::vector<double> losses;
  uint64_t parameters = 0;
  bool operator==(const Outcome&) const = default;
};

struct Machine {
  DeviceTopology topology = DeviceTopology::kDiscrete;
  int64_t device_slots = 400;
  int64_t host_slots = 400;
  bool files = false;
  std::string policy = "auto";
  int64_t look_ahead = 8;
};

OptimizerStep Hyper(int64_t step) {
  return {.learning_rate = 1e-2, .step = step, .max_gradient_norm = 1.0};
}

absl::Status Begin(ParameterStore& store, ToyModel& model) {
  GANTRY_RETURN_IF_ERROR(model.Register());
  for (int64_t i = 0; i < model.dry_steps(); ++i) {
    GANTRY_RETURN_IF_ERROR(model.TrainStep(Hyper(1)).status());
  }
  return store.Seal();
}

absl::StatusOr<Outcome> Train(ParameterStore& store, const ToyModel::Options& options) {
  ToyModel model(&store, options);
  GANTRY_RETURN_IF_ERROR(Begin(store, model));
  GANTRY_RETURN_IF_ERROR(model.Initialize());
  for (int64_t step = 1; step <= kSteps; ++step) {
    GANTRY_RETURN_IF_ERROR(model.TrainStep(Hyper(step)).status());
    if (step == 2) GANTRY_RETURN_IF_ERROR(model.Evaluate());
  }
  Outcome outcome{.losses = model.losses()};
  GANTRY_ASSIGN_OR_RETURN(outcome.parameters, model.Hash(StateKind::kParameter));
  return outcome;
}

class EngineLayersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto team = ThreadTeam::Create({.threads = 2});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
  }

  absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(const Machine& machine,
                                                     DType gradients = DType::kBF16) {
    GANTRY_ASSIGN_OR_RETURN(device_,
                            CreateHostDevice({.topology = machine.topology, .clock = &clock_}));
    return Engine::Create({.device = device_.get(),
                           .team = team_.get(),
                           .clock = &clock_,
                           .logger = &logger_,
                           .files = &files_,
                           .device_memory = Bytes(kSlot * machine.device_slots),
                           .host_memory = Bytes(kSlot * machine.host_slots),
                           .spill_directories = machine.files
                                                    ? std::vector<std::string>{::testing::TempDir()}
                                                    : std::vector<std::string>(),
                           .policy = machine.policy,
                           .look_ahead = machine.look_ahead,
                           .chunk_elements = kChunkGranularityElements,
                           .gradient_dtype = gradients});
  }

  absl::StatusOr<Outcome> Oracle(const ToyModel::Options& options, DType gradients = DType::kBF16) {
    GANTRY_ASSIGN_OR_RETURN(
        const auto store, MemoryStore::Create({.gradient_dtype = gradients, .team = team_.get()}));
    return Train(*store, options);
  }

  static ToyModel::Options Deep(LayerSaving saving) {
    return {
        .layers = 12, .layer_elements = 20'001, .activation_bytes = 5 * kSlot, .savings = {saving}};
  }

  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
};

// 12 layers that save 6 slots each, on a device of 28.
TEST_F(EngineLayersTest, TrainsOnADeviceThatCannotHoldWhatLayersSave) {
  const auto expected = Oracle(Deep(LayerSaving::kKeep));
  ASSERT_THAT(expected, IsOk());
  const Machine machine{.device_slots = 28, .files = true};
  {
    const auto engine = MakeEngine(machine);
    ASSERT_THAT(engine, IsOk());
    EXPECT_EQ(Train(**engine, Deep(LayerSaving::kKeep)).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  for (const DeviceTopology topology : {DeviceTopology::kDiscrete, DeviceTopology::kUnified}) {
    for (const char* policy : {"auto", "planned"}) {
      for (const LayerSaving saving :
           {LayerSaving::kRecompute, LayerSaving::kMove, LayerSaving::kPlanned}) {
        SCOPED_TRACE(StrCat(policy, " ", static_cast<int>(saving)));
        Machine small = machine;
        small.topology = topology;
        small.policy = policy;
        const auto engine = MakeEngine(small);
        ASSERT_THAT(engine, IsOk());
        const auto outcome = Train(**engine, Deep(saving));
        ASSERT_THAT(outcome, IsOk());
        EXPECT_EQ(*outcome, *expected);
        const EngineStatistics statistics = (*engine)->statistics();
        EXPECT_LE(statistics.device.slots_peak, small.device_slots);
        const LayerCounts& layers = statistics.layers;
        EXPECT_EQ(layers.kept + layers.recomputed + layers.moved, 12);
        EXPECT_EQ(layers.recomputed == 12,
                  saving == LayerSaving::kRecompute ||
                      (saving == LayerSaving::kPlanned && layers.moved == 0 && layers.kept == 0));
        EXPECT_TRUE(saving != LayerSaving::kMove || layers.moved == 12);
        EXPECT_LT(layers.kept, 12);
        const auto tag = static_cast<size_t>(MemoryTag::kActivation);
        const bool discrete = topology == DeviceTopology::kDiscrete;
        if (saving == LayerSaving::kMove && discrete) {
          EXPECT_GT(statistics.host.peak_by_tag[tag], 30);
        }
        std::cout << (discrete ? "discrete " : "unified ") << policy << ": kept " << layers.kept
                  << ", again " << layers.recomputed << ", moved " << layers.moved
                  << "; device peak " << statistics.device.slots_peak << " slots, "
                  << statistics.device.peak_by_tag[tag] << " of activations; host "
                  << statistics.host.peak_by_tag[tag] << " of activations\n";
      }
    }
  }
}

// Host memory of a few slots: what leaves the device goes on to files.
TEST_F(EngineLayersTest, ActivationsGoOnToFilesWhereTheHostIsFull) {
  const auto expected = Oracle(Deep(LayerSaving::kMove));
  ASSERT_THAT(expected, IsOk());
  const auto engine = MakeEngine({.device_slots = 24, .host_slots = 14, .files = true});
  ASSERT_THAT(engine, IsOk());
  const auto outcome = Train(**engine, Deep(LayerSaving::kMove));
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(*outcome, *expected);
  EXPECT_LE((*engine)->statistics().host.slots_peak, 14);
  EXPECT_GT((*engine)->statistics().store.pieces_verified, 100);
}

TEST_F(EngineLayersTest, RunsWithTheLeastBudgetsAndNotWithLess) {
  for (const LayerSaving saving :
       {LayerSaving::kRecompute, LayerSaving::kMove, LayerSaving::kPlanned}) {
    for (const bool files : {false, true}) {
      SCOPED_TRACE(StrCat(static_cast<int>(saving), files ? " files" : " no files"));
      const auto expected = Oracle(Deep(saving));
      ASSERT_THAT(expected, IsOk());
      // By trial, since with fewer slots other layers may be saved otherwise.
      Machine least{.host_slots = 600, .files = files};
      const auto seals = [&](const Machine& machine) {
        const auto engine = MakeEngine(machine);
        ToyModel model(engine->get(), Deep(saving));
        return Begin(**engine, model).ok();
      };
      for (least.device_slots = 1; !seals(least); ++least.device_slots) {
        ASSERT_LT(least.device_slots, 400);
      }
      for (least.host_slots = 1; !seals(least); ++least.host_slots) {
        ASSERT_LT(least.host_slots, 600);
      }
      const auto engine = MakeEngine(least);
      ASSERT_THAT(engine, IsOk());
      const auto outcome = Train(**engine, Deep(saving));
      ASSERT_THAT(outcome, IsOk());
      EXPECT_EQ(*outcome, *expected);
      EXPECT_LE((*engine)->statistics().device.slots_peak, least.device_slots);
      std::cout << static_cast<int>(saving) << ": least " << least.device_slots << " device, "
                << least.host_slots << " host slots\n";
    }
  }
}

// Without files a unified device has nowhere to move anything: what should move stays.
TEST_F(EngineLayersTest, NothingMovesWhereThereIsNoOtherTier) {
  const auto expected = Oracle(Deep(LayerSaving::kMove));
  ASSERT_THAT(expected, IsOk());
  const auto engine = MakeEngine({.topology = DeviceTopology::kUnified, .device_slots = 300});
  ASSERT_THAT(engine, IsOk());
  const auto outcome = Train(**engine, Deep(LayerSaving::kMove));
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(*outcome, *expected);
  EXPECT_EQ((*engine)->statistics().layers.kept, 12);
}

class EngineLayersRandomTest : public EngineLayersTest,
                               public ::testing::WithParamInterface<uint64_t> {};

TEST_P(EngineLayersRandomTest, GivesTheBitsOfTheStoreThatKeepsAll) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE(StrCat("seed ", seed));
  const Random random({.seed = seed, .stream = 77});
  uint64_t drawn = 0;
  const auto below = [&](int64_t bound) { return random.Below(bound, drawn++); };
  constexpr LayerSaving kSavings[] = {LayerSaving::kKeep, LayerSaving::kRecompute,
                                      LayerSaving::kMove, LayerSaving::kPlanned};
  ToyModel::Options model{.layers = 1 + below(8),
                          .layer_elements = 1'000 + below(60'000),
                          .activation_bytes = 1 + below(6 * kSlot),
                          .micro_batches = 1 + below(3)};
  for (int64_t i = 1 + below(5); i > 0; --i) model.savings.push_back(kSavings[below(4)]);
  const char* policies[] = {"auto", "lru", "cpu", "planned", "planned"};
  Machine machine{.topology = below(3) == 0 ? DeviceTopology::kUnified : DeviceTopology::kDiscrete,
                  .files = below(4) > 0,
                  .policy = policies[below(5)],
                  .look_ahead = below(10)};
  const DType gradients = model.micro_batches > 1 ? DType::kF32 : DType::kBF16;
  const auto expected = Oracle(model, gradients);
  ASSERT_THAT(expected, IsOk());
  // The smallest of some budgets that can work, and a few slots more.
  const auto seals = [&] {
    const auto engine = MakeEngine(machine, gradients);
    ToyModel tried(engine->get(), model);
    return Begin(**engine, tried).ok();
  };
  for (machine.device_slots = 8; !seals(); machine.device_slots += 8) {
    ASSERT_LT(machine.device_slots, 800);
  }
  machine.device_slots += below(12);
  machine.host_slots = 16;
  while (machine.topology == DeviceTopology::kDiscrete && !seals()) {
    machine.host_slots += 8;
    ASSERT_LT(machine.host_slots, 800);
  }
  const auto engine = MakeEngine(machine, gradients);
  ASSERT_THAT(engine, IsOk());
  const auto outcome = Train(**engine, model);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(*outcome, *expected);
  EXPECT_LE((*engine)->statistics().device.slots_peak, machine.device_slots);
  EXPECT_EQ((*engine)->statistics().leases_off_plan, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineLayersRandomTest,
                         ::testing::Range(uint64_t{0}, uint64_t{60}));

// One layer by hand.
class EngineLayerCallsTest : public EngineLayersTest {
 protected:
  void SetUp() override {
    EngineLayersTest::SetUp();
    auto engine = MakeEngine({.device_slots = 40, .files = true});
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
    const auto tensor = engine_->Register(
        {.name = "w", .shape = {kChunkGranularityElements}, .dtype = DType::kBF16}, {});
    ASSERT_THAT(tensor, IsOk());
    tensor_ = *tensor;
    ASSERT_THAT(Step({.bytes = 3 * kSlot}), IsOk());
    ASSERT_THAT(engine_->Seal(), IsOk());
  }

  struct Shape {
    int64_t bytes;
    int32_t layers = 2;
    bool gives_up = false;  // after the forward passes
  };

  absl::Status Step(const Shape& shape) {
    GANTRY_RETURN_IF_ERROR(engine_->BeginStep({.optimizer = Hyper(++steps_)}));
    absl::Status passes = Passes(shape);
    const absl::Status end = engine_->EndStep().status();
    return passes.ok() ? end : passes;
  }

  absl::Status Passes(const Shape& shape) {
    GANTRY_RETURN_IF_ERROR(engine_->BeginMicroBatch());
    LayerActivations& layers = engine_->layer_activations();
    std::vector<std::pair<LayerPass, ArenaBuffer>> made;
    for (int32_t l = 0; l < shape.layers; ++l) {
      GANTRY_ASSIGN_OR_RETURN(const LayerPass pass, layers.BeginLayer(l, LayerSaving::kMove));
      GANTRY_RETURN_IF_ERROR(Lease(ParameterAccess::kRead, Phase::kForward));
      GANTRY_ASSIGN_OR_RETURN(ArenaBuffer buffer, engine_->arena().Allocate(shape.bytes));
      if (!engine_->dry_run()) std::memset(buffer.data(), l + 5, static_cast<size_t>(shape.bytes));
      made.emplace_back(pass, std::move(buffer));
      GANTRY_RETURN_IF_ERROR(layers.EndLayer(pass, nullptr));
      savings_.push_back(pass.saving);
    }
    if (shape.gives_up) return absl::CancelledError("given up");
    for (; !made.empty(); made.pop_back()) {
      const LayerPass pass = made.back().first;
      GANTRY_RETURN_IF_ERROR(layers.BeginLayerBackward(pass));
      for (int64_t i = 0; i < shape.bytes && !engine_->dry_run(); i += 511) {
        const auto expected = static_cast<std::byte>(made.size() + 4);
        if (made.back().second.data()[i] != expected) return DataLoss("byte ", i);
      }
      GANTRY_RETURN_IF_ERROR(Lease(ParameterAccess::kGradient, Phase::kBackward));
      made.back().second = ArenaBuffer();
      GANTRY_RETURN_IF_ERROR(layers.EndLayerBackward(pass));
    }
    engine_->GradientReady(tensor_);
    return absl::OkStatus();
  }

  absl::Status Lease(ParameterAccess access, Phase phase) {
    const ParameterUse use{tensor_, access};
    GANTRY_ASSIGN_OR_RETURN(const gantry::Lease lease, engine_->Acquire({&use, 1}, "op", phase));
    if (!engine_->dry_run() && access == ParameterAccess::kGradient) {
      std::memset(lease[0].gradient, 0, static_cast<size_t>(kSlot));
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Engine> engine_;
  TensorId tensor_{0};
  int64_t steps_ = 0;
  std::vector<LayerSaving> savings_;
};

TEST_F(EngineLayerCallsTest, MovesWhatTheDryRunShowed) {
  savings_.clear();
  ASSERT_THAT(Step({.bytes = 3 * kSlot}), IsOk());
  EXPECT_THAT(savings_, ::testing::ElementsAre(LayerSaving::kMove, LayerSaving::kMove));
  EXPECT_EQ((*engine_).statistics().layers.moved, 2);
}

TEST_F(EngineLayerCallsTest, ALongerBatchThanTheDryRunsIsKeptInTheArena) {
  ASSERT_THAT(Step({.bytes = 4 * kSlot + 100}), IsOk());
  ASSERT_THAT(Step({.bytes = 100}), IsOk());
  ASSERT_THAT(Step({.bytes = 3 * kSlot}), IsOk());
}

TEST_F(EngineLayerCallsTest, LayersThatTheDryRunDidNotHaveAreKept) {
  savings_.clear();
  ASSERT_THAT(Step({.bytes = 3 * kSlot, .layers = 4}), IsOk());
  EXPECT_THAT(savings_, ::testing::ElementsAre(LayerSaving::kMove, LayerSaving::kMove,
                                               LayerSaving::kKeep, LayerSaving::kKeep));
}

TEST_F(EngineLayerCallsTest, AStepThatIsGivenUpLeavesNothingBehind) {
  const int64_t before = engine_->statistics().device.used_by_tag[3];
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Step({.bytes = 3 * kSlot, .gives_up = true}).code(), absl::StatusCode::kCancelled);
  }
  ASSERT_THAT(engine_->Drain(), IsOk());
  ASSERT_THAT(Step({.bytes = 3 * kSlot}), IsOk());
  ASSERT_THAT(engine_->Drain(), IsOk());
  EXPECT_LE(engine_->statistics().device.used_by_tag[3], before + 1);
}

TEST_F(EngineLayerCallsTest, TheTraceSaysWhatLayersSave) {
  const Trace* trace = engine_->trace("train");
  ASSERT_NE(trace, nullptr);
  EXPECT_THAT(trace->Validate(), IsOk());
  ASSERT_EQ(trace->activations.size(), 2u);
  for (const SavedActivation& saved : trace->activations) {
    EXPECT_EQ(saved.slots, 3);
    const Moment& created = trace->moments[static_cast<size_t>(saved.created)];
    const Moment& used = trace->moments[static_cast<size_t>(saved.used)];
    EXPECT_EQ(created.phase, Phase::kForward);
    EXPECT_EQ(used.phase, Phase::kBackward);
    EXPECT_EQ(created.layer, used.layer);
    EXPECT_EQ(saved.recompute, 0);  // nothing was timed yet
  }
  ASSERT_THAT(Step({.bytes = 3 * kSlot}), IsOk());
  trace = engine_->trace("train");
  for (const SavedActivation& saved : trace->activations) {
    EXPECT_EQ(saved.recompute, trace->moments[static_cast<size_t>(saved.created)].compute);
  }
}

using EngineLayersDeathTest = EngineLayerCallsTest;

TEST_F(EngineLayersDeathTest, PassesDoNotOverlap) {
  ASSERT_THAT(engine_->BeginStep({.optimizer = Hyper(9)}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
  LayerActivations& layers = engine_->layer_activations();
  const auto pass = layers.BeginLayer(0, LayerSaving::kKeep);
  ASSERT_THAT(pass, IsOk());
  EXPECT_DEATH(static_cast<void>(layers.BeginLayer(1, LayerSaving::kKeep)), "within another");
  EXPECT_DEATH(static_cast<void>(layers.EndLayer({.number = 7}, nullptr)), "not the open one");
}

}  // namespace
}  // namespace gantry
