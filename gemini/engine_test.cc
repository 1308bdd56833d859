// Design D4: whatever the budgets, the policy, the chunk size and the tiers, the engine's numbers
// are those of the plain in-memory store, to the bit.
#include "gemini/engine.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/host/host_device.h"
#include "gemini/testing/memory_store.h"
#include "gemini/testing/toy_model.h"
#include "offload/adafactor.h"

namespace gantry {
namespace {

constexpr int64_t kSmallChunk = kChunkGranularityElements;  // 64 KiB slots

struct Outcome {
  std::vector<double> losses;
  uint64_t parameters = 0;
  uint64_t master = 0;
  uint64_t momentum = 0;
  uint64_t variance = 0;
  bool operator==(const Outcome&) const = default;
};

struct Scenario {
  std::string name;
  DeviceTopology topology = DeviceTopology::kDiscrete;
  int64_t device_slots = 1000;
  int64_t host_slots = 1000;
  bool files = false;
  int64_t directories = 1;  // of the file tier
  std::string policy = "auto";
  StaticFractions fractions{};
  int64_t look_ahead = 8;
  int64_t chunk_elements = kSmallChunk;
  bool dry = true;
  ToyModel::Options model{};
  double clip = 1.0;
  OptimizerStep::NonFinite non_finite = OptimizerStep::NonFinite::kSkipStep;
  int threads = 2;
  IoPreference io = IoPreference::kAuto;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  StateFormat format = StateFormat::kF32;
  UpdateOrder order = UpdateOrder::kExact;
};

std::ostream& operator<<(std::ostream& out, const Scenario& s) { return out << s.name; }

constexpr int64_t kSteps = 4;

OptimizerStep HyperOf(const Scenario& s, int64_t step) {
  return {.kind = s.optimizer,
          .learning_rate = 1e-2,
          .weight_decay = 0.1,
          .step = step,
          .max_gradient_norm = s.clip,
          .non_finite = s.non_finite};
}

absl::StatusOr<Outcome> Train(ParameterStore* store, const Scenario& s) {
  ToyModel model(store, s.model);
  GANTRY_RETURN_IF_ERROR(model.Register());
  if (s.dry) GANTRY_RETURN_IF_ERROR(model.TrainStep(HyperOf(s, 1)).status());
  GANTRY_RETURN_IF_ERROR(store->Seal());
  GANTRY_RETURN_IF_ERROR(model.Initialize());
  for (int64_t step = 1; step <= kSteps; ++step) {
    GANTRY_RETURN_IF_ERROR(model.TrainStep(HyperOf(s, step)).status());
    if (step == 2) GANTRY_RETURN_IF_ERROR(model.Evaluate());
  }
  Outcome outcome{.losses = model.losses()};
  GANTRY_ASSIGN_OR_RETURN(outcome.parameters, model.Hash(StateKind::kParameter));
  GANTRY_ASSIGN_OR_RETURN(outcome.master, model.Hash(StateKind::kMaster));
  GANTRY_ASSIGN_OR_RETURN(outcome.momentum, model.Hash(StateKind::kMomentum));
  GANTRY_ASSIGN_OR_RETURN(outcome.variance, model.Hash(StateKind::kVariance));
  return outcome;
}

struct Machinery {
  MonotonicClock clock;
  MemoryLogger logger;
  PosixFileCalls files;
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
};

absl::StatusOr<std::unique_ptr<Machinery>> MakeEngine(const Scenario& s) {
  auto m = std::make_unique<Machinery>();
  GANTRY_ASSIGN_OR_RETURN(m->team, ThreadTeam::Create({.threads = s.threads}));
  GANTRY_ASSIGN_OR_RETURN(m->device,
                          CreateHostDevice({.topology = s.topology, .clock = &m->clock}));
  const int64_t slot = s.chunk_elements * 2;
  GANTRY_ASSIGN_OR_RETURN(
      m->engine,
      Engine::Create({.device = m->device.get(),
                      .team = m->team.get(),
                      .clock = &m->clock,
                      .logger = &m->logger,
                      .files = &m->files,
                      .device_memory = Bytes(slot * s.device_slots),
                      .host_memory = Bytes(slot * s.host_slots),
                      .spill_directories = std::vector<std::string>(
                          s.files ? static_cast<size_t>(s.directories) : 0, ::testing::TempDir()),
                      .spill_shares =
                          s.directories > 1 ? std::vector<double>{2.0, 1.0} : std::vector<double>{},
                      .io = s.io,
                      .policy = s.policy,
                      .static_fractions = s.fractions,
                      .look_ahead = s.look_ahead,
                      .chunk_elements = s.chunk_elements,
                      .gradient_dtype = s.model.micro_batches > 1 ? DType::kF32 : DType::kBF16,
                      .optimizer = s.optimizer,
                      .state_format = s.format,
                      .update_order = s.order}));
  return m;
}

absl::StatusOr<Outcome> Oracle(const Scenario& s) {
  GANTRY_ASSIGN_OR_RETURN(auto team, ThreadTeam::Create({.threads = 1}));
  GANTRY_ASSIGN_OR_RETURN(
      auto store,
      MemoryStore::Create({.gradient_dtype = s.model.micro_batches > 1 ? DType::kF32 : DType::kBF16,
                           .team = team.get(),
                           .optimizer = s.optimizer,
                           .state_format = s.format}));
  return Train(store.get(), s);
}

class EngineIsBitIdentical : public ::testing::TestWithParam<Scenario> {};

TEST_P(EngineIsBitIdentical, ToTheMemoryStore) {
  const Scenario& s = GetParam();
  absl::StatusOr<Outcome> expected = Oracle(s);
  ASSERT_TRUE(expected.ok()) << expected.status();
  auto m = MakeEngine(s);
  ASSERT_TRUE(m.ok()) << m.status();
  absl::StatusOr<Outcome> actual = Train((*m)->engine.get(), s);
  ASSERT_TRUE(actual.ok()) << actual.status();
  EXPECT_EQ(actual->losses, expected->losses);
  EXPECT_EQ(actual->parameters, expected->parameters);
  EXPECT_EQ(actual->master, expected->master);
  EXPECT_EQ(actual->momentum, expected->momentum);
  EXPECT_EQ(actual->variance, expected->variance);
  const EngineStatistics statistics = (*m)->engine->statistics();
  EXPECT_LE(statistics.device.slots_peak, s.device_slots);
  EXPECT_LE(statistics.host.slots_peak, s.host_slots);
  if (s.order == UpdateOrder::kSpeculative) {
    // How many there are depends on timing here; the simulation test counts them.
    EXPECT_EQ(statistics.updates_taken_back, s.clip < 1.0 ? statistics.updates_speculated : 0);
  } else {
    EXPECT_EQ(statistics.updates_speculated, 0);
  }
  if (s.files && s.host_slots < 50) {
    EXPECT_GT(statistics.lanes[static_cast<size_t>(TransferLane::kFileWrite)].bytes, 0);
  }
}

// Norms of the toy model's gradients are far from both clips.
constexpr double kNeverClips = 1e9;
constexpr double kAlwaysClips = 1e-3;

std::vector<Scenario> SpeculativeScenarios() {
  using enum DeviceTopology;
  return {
      {.name = "speculation_holds",
       .topology = kUnified,
       .device_slots = 30,
       .host_slots = 0,
       .clip = kNeverClips},
      {.name = "speculation_fails",
       .topology = kUnified,
       .device_slots = 30,
       .host_slots = 0,
       .clip = kAlwaysClips},
      {.name = "speculation_holds_discrete",
       .device_slots = 18,
       .host_slots = 11,
       .clip = kNeverClips},
      {.name = "speculation_fails_discrete",
       .device_slots = 18,
       .host_slots = 11,
       .clip = kAlwaysClips},
      {.name = "speculation_f32",
       .topology = kUnified,
       .device_slots = 40,
       .host_slots = 0,
       .model = {.dtype = DType::kF32},
       .clip = kAlwaysClips},
      {.name = "speculation_static",
       .device_slots = 200,
       .host_slots = 200,
       .policy = "static",
       .fractions = {.offload_parameters = 0.5, .offload_optimizer = 1.0, .spill_optimizer = 0.5},
       .clip = kAlwaysClips},
  };
}

std::vector<Scenario> Scenarios() {
  using enum DeviceTopology;
  std::vector<Scenario> all = {
      {.name = "resident"},
      {.name = "resident_device_policy", .policy = "device"},
      {.name = "unified_resident", .topology = kUnified, .host_slots = 0},
      {.name = "unified_files",
       .topology = kUnified,
       .device_slots = 30,
       .host_slots = 0,
       .files = true},
      {.name = "unified_files_lru",
       .topology = kUnified,
       .device_slots = 24,
       .host_slots = 0,
       .files = true,
       .policy = "lru"},
      {.name = "small_device", .device_slots = 18},
      {.name = "small_device_files", .device_slots = 18, .host_slots = 24, .files = true},
      {.name = "tiny_host", .device_slots = 18, .host_slots = 11, .files = true},
      {.name = "cpu_policy", .device_slots = 20, .policy = "cpu"},
      {.name = "cpu_policy_files",
       .device_slots = 20,
       .host_slots = 30,
       .files = true,
       .policy = "cpu"},
      {.name = "static_half",
       .device_slots = 200,
       .host_slots = 200,
       .files = true,
       .policy = "static",
       .fractions = {.offload_parameters = 0.5, .offload_optimizer = 0.5, .spill_optimizer = 0.5}},
      {.name = "lru_no_look_ahead",
       .device_slots = 18,
       .host_slots = 24,
       .files = true,
       .policy = "lru",
       .look_ahead = 0},
      {.name = "no_dry_run", .device_slots = 20, .host_slots = 24, .files = true, .dry = false},
      {.name = "larger_chunks",
       .device_slots = 12,
       .host_slots = 20,
       .files = true,
       .chunk_elements = 3 * kSmallChunk},
      {.name = "no_clip", .device_slots = 18, .host_slots = 24, .files = true, .clip = 0.0},
      {.name = "updates_in_backward",
       .device_slots = 18,
       .host_slots = 24,
       .files = true,
       .clip = 0.0,
       .non_finite = OptimizerStep::NonFinite::kUpdateAnyway},
      {.name = "updates_in_backward_unified",
       .topology = kUnified,
       .device_slots = 24,
       .host_slots = 0,
       .files = true,
       .clip = 0.0,
       .non_finite = OptimizerStep::NonFinite::kUpdateAnyway},
      {.name = "accumulation",
       .device_slots = 22,
       .host_slots = 26,
       .files = true,
       .model = {.micro_batches = 3}},
      {.name = "accumulation_resident", .model = {.micro_batches = 3}},
      {.name = "f32",
       .device_slots = 30,
       .host_slots = 26,
       .files = true,
       .model = {.dtype = DType::kF32}},
      {.name = "f32_unified",
       .topology = kUnified,
       .device_slots = 40,
       .host_slots = 0,
       .files = true,
       .model = {.dtype = DType::kF32}},
      {.name = "one_thread", .device_slots = 18, .host_slots = 24, .files = true, .threads = 1},
      {.name = "two_directories",
       .device_slots = 18,
       .host_slots = 11,
       .files = true,
       .directories = 2},
      {.name = "threads_backend",
       .device_slots = 18,
       .host_slots = 24,
       .files = true,
       .io = IoPreference::kThreads},
  };
  for (Scenario s : SpeculativeScenarios()) {
    s.files = true;
    s.order = UpdateOrder::kSpeculative;
    all.push_back(s);
  }
  return all;
}

// Each kind in each format it has, where everything is resident, where chunks are updated on the
// host and in files, and where they are updated on the device and in files.
std::vector<Scenario> Optimizers() {
  using enum OptimizerKind;
  std::vector<Scenario> all;
  for (const OptimizerKind kind : {kAdamW, kAdam, kSgd, kLion}) {
    for (const StateFormat format :
         {StateFormat::kF32, StateFormat::kSplitMaster, StateFormat::kEightBit}) {
      if (!CheckSupported(kind, format).ok()) continue;
      const std::string name = StrCat(Name(kind), "_", Name(format));
      all.push_back({.name = name + "_resident", .optimizer = kind, .format = format});
      all.push_back({.name = name + "_host_files",
                     .device_slots = 18,
                     .host_slots = 22,
                     .files = true,
                     .optimizer = kind,
                     .format = format});
      all.push_back({.name = name + "_unified_files",
                     .topology = DeviceTopology::kUnified,
                     .device_slots = 20,
                     .host_slots = 0,
                     .files = true,
                     .optimizer = kind,
                     .format = format});
      for (const double clip : {kNeverClips, kAlwaysClips}) {
        all.push_back({.name = name + (clip == kNeverClips ? "_speculated" : "_taken_back"),
                       .topology = DeviceTopology::kUnified,
                       .device_slots = 20,
                       .host_slots = 0,
                       .files = true,
                       .clip = clip,
                       .optimizer = kind,
                       .format = format,
                       .order = UpdateOrder::kSpeculative});
      }
      if (format == StateFormat::kF32) continue;
      all.push_back({.name = name + "_device_updates",
                     .device_slots = 60,
                     .host_slots = 24,
                     .files = true,
                     .policy = "static",
                     .fractions = {.offload_parameters = 0.5,
                                   .offload_optimizer = 0.5,
                                   .spill_optimizer = 0.6},
                     .optimizer = kind,
                     .format = format});
      all.push_back({.name = name + "_larger_chunks",
                     .device_slots = 12,
                     .host_slots = 10,
                     .files = true,
                     .chunk_elements = 3 * kSmallChunk,
                     .model = {.micro_batches = 2},
                     .optimizer = kind,
                     .format = format});
      all.push_back({.name = name + "_of_f32",
                     .device_slots = 30,
                     .host_slots = 26,
                     .files = true,
                     .model = {.dtype = DType::kF32},
                     .optimizer = kind,
                     .format = format});
      all.push_back({.name = name + "_of_f16",
                     .device_slots = 18,
                     .host_slots = 24,
                     .files = true,
                     .model = {.dtype = DType::kF16},
                     .clip = 0.0,
                     .non_finite = OptimizerStep::NonFinite::kUpdateAnyway,
                     .optimizer = kind,
                     .format = format});
    }
  }
  return all;
}

// Adafactor needs whole tensors before it updates any chunk: in budgets that hold a part of one, of
// matrices and of vectors, whose rows are shorter and longer than a chunk.
std::vector<Scenario> FactoredScenarios() {
  using enum DeviceTopology;
  const ToyModel::Options matrices{.rows = 37};
  const ToyModel::Options long_rows{.layers = 3, .layer_elements = 150'001, .rows = 3};
  std::vector<Scenario> all = {
      {.name = "adafactor_resident", .model = matrices},
      {.name = "adafactor_vectors", .device_slots = 18, .host_slots = 12, .files = true},
      {.name = "adafactor_host_files",
       .device_slots = 18,
       .host_slots = 10,
       .files = true,
       .model = matrices},
      {.name = "adafactor_long_rows",
       .device_slots = 34,
       .host_slots = 10,
       .files = true,
       .model = long_rows},
      {.name = "adafactor_unified_files",
       .topology = kUnified,
       .device_slots = 30,
       .host_slots = 0,
       .files = true,
       .model = long_rows},
      {.name = "adafactor_on_both_tiers",
       .device_slots = 60,
       .host_slots = 20,
       .files = true,
       .policy = "static",
       .fractions = {.offload_parameters = 0.5, .offload_optimizer = 0.5, .spill_optimizer = 0.6},
       .model = long_rows},
      {.name = "adafactor_larger_chunks",
       .device_slots = 12,
       .host_slots = 10,
       .files = true,
       .chunk_elements = 3 * kSmallChunk,
       .model = {.micro_batches = 2, .rows = 37}},
      {.name = "adafactor_of_f32",
       .device_slots = 30,
       .host_slots = 12,
       .files = true,
       .model = {.dtype = DType::kF32, .rows = 37}},
      {.name = "adafactor_always_clips",
       .device_slots = 18,
       .host_slots = 10,
       .files = true,
       .model = matrices,
       .clip = kAlwaysClips},
      {.name = "adafactor_skips_a_step",
       .device_slots = 18,
       .host_slots = 10,
       .files = true,
       .model = {.infinite_step = 2, .rows = 37}},
      {.name = "adafactor_in_backward",
       .device_slots = 18,
       .host_slots = 10,
       .files = true,
       .model = {.dtype = DType::kF16, .rows = 37},
       .clip = 0.0,
       .non_finite = OptimizerStep::NonFinite::kUpdateAnyway}};
  for (Scenario& s : all) s.optimizer = OptimizerKind::kAdafactor;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Factored, EngineIsBitIdentical, ::testing::ValuesIn(FactoredScenarios()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Optimizers, EngineIsBitIdentical, ::testing::ValuesIn(Optimizers()),
                         [](const auto& info) { return info.param.name; });

// Of what Adafactor keeps of the toy model beside the chunks.
Bytes FactorBytes(const ChunkLayout& layout) {
  Bytes bytes(0);
  for (int64_t t = 0; t < layout.tensor_count(); ++t) {
    const TensorSpec& spec = layout.tensor(TensorId(t));
    if (spec.trainability == Trainability::kFrozen) continue;
    const int64_t offset = layout.placement(TensorId(t)).offset;
    bytes += AdafactorFactors(spec.shape, offset).bytes();
  }
  return bytes;
}

// The files hold every slot of state once: a format that takes fewer slots takes fewer bytes.
TEST(EngineStateFormatTest, FilesAndBudgetsShrinkWithTheStates) {
  const auto report = [](OptimizerKind kind, StateFormat format) {
    const Scenario s{.name = "sizes",
                     .device_slots = 60,
                     .host_slots = 60,
                     .files = true,
                     .model = {.rows = 37},
                     .optimizer = kind,
                     .format = format};
    auto m = MakeEngine(s);
    EXPECT_TRUE(m.ok()) << m.status();
    EXPECT_TRUE(Train((*m)->engine.get(), s).ok());
    const ChunkLayout& layout = (*m)->engine->layout();
    int64_t slots = 0;
    for (int kind_index = 0; kind_index < kStateKindCount; ++kind_index) {
      slots += layout.total_slots(static_cast<StateKind>(kind_index));
    }
    const EngineStatistics statistics = (*m)->engine->statistics();
    EXPECT_EQ(statistics.file_bytes(), layout.slot_bytes() * slots);
    EXPECT_EQ((*m)->engine->budget_report().model_state, layout.slot_bytes() * slots);
    const int64_t chunks = layout.total_slots(StateKind::kGradient);
    const int64_t blocks = kSmallChunk / 2048 * chunks;
    if (kind == OptimizerKind::kAdafactor) {
      EXPECT_EQ(statistics.state_outside_slots, FactorBytes(layout));
    } else {
      EXPECT_EQ(statistics.state_outside_slots.count(),
                format == StateFormat::kEightBit ? blocks * 8 : 0);
    }
    return std::pair(slots, (*m)->engine->budget_report().least_host.count() / (2 * kSmallChunk));
  };
  const auto [adam, adam_host] = report(OptimizerKind::kAdamW, StateFormat::kF32);
  const auto [split, split_host] = report(OptimizerKind::kAdamW, StateFormat::kSplitMaster);
  const auto [eight, eight_host] = report(OptimizerKind::kAdamW, StateFormat::kEightBit);
  const auto [lion, lion_host] = report(OptimizerKind::kLion, StateFormat::kF32);
  const auto [factored, factored_host] = report(OptimizerKind::kAdafactor, StateFormat::kF32);
  // In f32 a trainable chunk has 8 slots, and there is one frozen chunk of 1.
  const int64_t chunks = (adam - 1) / 8;
  EXPECT_EQ(adam, 8 * chunks + 1);
  EXPECT_EQ(split, 7 * chunks + 1);
  EXPECT_EQ(eight, 5 * chunks + 1);
  EXPECT_EQ(lion, 6 * chunks + 1);
  EXPECT_EQ(factored, 4 * chunks + 1);
  EXPECT_EQ(adam_host, 8 + 2);
  EXPECT_EQ(split_host, 7 + 2);
  EXPECT_EQ(eight_host, 5 + 2);
  EXPECT_EQ(lion_host, 6 + 2);
  EXPECT_EQ(factored_host, 4 + 2);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, EngineIsBitIdentical, ::testing::ValuesIn(Scenarios()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gantry
