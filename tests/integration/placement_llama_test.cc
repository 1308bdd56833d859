// Design D4 with real models: losses and a hash of all parameters after 5 steps of a small Llama,
// and of one of each other family, are those of the all-resident run, for every budget, policy,
// tier mix, chunk size, look-ahead and with or without recomputation; and our own kernels give the
// same bits on one thread and on two.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
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
#include "gemini/layer_activations.h"
#include "kernels/matmul.h"
#include "trainer/models/decoder.h"
#include "trainer/models/families.h"
#include "trainer/models/lora_config.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr int64_t kSteps = 5;
constexpr int64_t kSequences = 3;
constexpr int64_t kLength = 37;
constexpr int64_t kHostForParameters = 4 << 20;

struct Case {
  std::string name;
  DeviceTopology topology = DeviceTopology::kDiscrete;
  int64_t device_bytes = 64 << 20;
  int64_t host_bytes = 64 << 20;
  bool files = false;
  std::string policy = "auto";
  int64_t look_ahead = 8;
  int64_t chunk_elements = kChunk;
  double clip = 0.5;
  int64_t accumulation = 1;
  Recompute recompute = Recompute::kNone;
  DType dtype = DType::kBF16;
  bool tied = false;
  OptimizerStep::NonFinite non_finite = OptimizerStep::NonFinite::kSkipStep;
  int threads = 2;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  DecoderFamily family = DecoderFamily::kLlama;
  bool lora = false;
};

std::optional<LoraConfig> LoraOf(const Case& c) {
  if (!c.lora) return std::nullopt;
  return LoraConfig{.rank = 4, .alpha = 8, .dropout = 0.1, .targets = {"all-linear"}, .seed = 3};
}

DecoderConfig ModelOf(const Case& c) {
  DecoderConfig config = FamilyDefaults(c.family);
  config.layers = 5;
  config.width = 96;
  config.heads = 6;
  config.kv_heads = c.family == DecoderFamily::kGpt2 ? 6 : 2;
  config.head_dim = 16;
  config.ffn_width = 224;
  config.vocabulary = 256;
  config.max_sequence = 64;
  config.positions = c.family == DecoderFamily::kGpt2 ? 64 : 0;
  if (c.family == DecoderFamily::kMistral) config.windows.assign(5, 20);
  config.tie_embeddings = c.tied;
  config.recompute = c.recompute;
  config.parameter_dtype = c.dtype;
  return config;
}

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  uint64_t parameters = 0;
  bool operator==(const Outcome&) const = default;
};

// Everything a run stands on; the engine goes first.
struct LlamaRun {
  MonotonicClock clock;
  MemoryLogger logger;
  PosixFileCalls files;
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<MatMul> matmul;
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<DecoderModel> model;
  LayerSaving dry_layers = LayerSaving::kKeep;

  absl::Status Make(const Case& c) {
    GANTRY_ASSIGN_OR_RETURN(team, ThreadTeam::Create({.threads = c.threads}));
    GANTRY_ASSIGN_OR_RETURN(matmul, MatMul::Create({}));
    GANTRY_ASSIGN_OR_RETURN(device, CreateHostDevice({.topology = c.topology, .clock = &clock}));
    GANTRY_ASSIGN_OR_RETURN(
        engine, Engine::Create(
                    {.device = device.get(),
                     .team = team.get(),
                     .clock = &clock,
                     .logger = &logger,
                     .files = &files,
                     .device_memory = Bytes(c.device_bytes),
                     .host_memory = Bytes(c.host_bytes),
                     .spill_directories = c.files ? std::vector<std::string>{::testing::TempDir()}
                                                  : std::vector<std::string>(),
                     .policy = c.policy,
                     .look_ahead = c.look_ahead,
                     .chunk_elements = c.chunk_elements,
                     .gradient_dtype = c.accumulation > 1 ? DType::kF32 : DType::kBF16,
                     .optimizer = c.optimizer}));
    const ExecutionContext context{.store = engine.get(),
                                   .kernels = {.team = team.get(), .matmul = matmul.get()},
                                   .compute_dtype = c.dtype};
    GANTRY_ASSIGN_OR_RETURN(model, DecoderModel::Create(context, ModelOf(c), {.lora = LoraOf(c)}));
    return absl::OkStatus();
  }

  absl::StatusOr<double> Step(const Case& c, int64_t step, Outcome& outcome) {
    const OptimizerStep hyper{
        .kind = c.optimizer,
        // Adafactor's is a share of the weights' size.
        .learning_rate = c.optimizer == OptimizerKind::kAdafactor ? 0.05 : 3e-3,
        .weight_decay = 0.1,
        .step = step,
        .max_gradient_norm = c.clip,
        .non_finite = c.non_finite};
    GANTRY_RETURN_IF_ERROR(engine->BeginStep(
        {.micro_batches = c.accumulation, .optimizer = hyper, .dry_layers = dry_layers}));
    double loss = 0.0;
    for (int64_t m = 0; m < c.accumulation; ++m) {
      GANTRY_RETURN_IF_ERROR(engine->BeginMicroBatch());
      std::vector<int32_t> tokens;
      std::vector<int32_t> targets;
      const Random random({.seed = 5, .stream = static_cast<uint64_t>(step * 100 + m)});
      for (int64_t i = 0; i < kSequences * kLength; ++i) {
        tokens.push_back(static_cast<int32_t>(random.Below(256, static_cast<uint64_t>(i))));
        targets.push_back((tokens.back() * 7 + 3) % 256);
      }
      GANTRY_ASSIGN_OR_RETURN(
          const LossSum sum,
          model->ForwardBackward(
              {.sequences = kSequences, .length = kLength, .tokens = tokens, .targets = targets},
              1.0 / static_cast<double>(kSequences * kLength * c.accumulation)));
      loss += sum.loss_sum;
    }
    GANTRY_ASSIGN_OR_RETURN(const StepResult result, engine->EndStep());
    outcome.norms.push_back(result.gradient_norm);
    return loss;
  }

  absl::StatusOr<Outcome> Train(const Case& c) {
    Outcome outcome;
    GANTRY_RETURN_IF_ERROR(Make(c));
    GANTRY_RETURN_IF_ERROR(Step(c, 1, outcome).status());  // dry
    if (c.recompute == Recompute::kPlanned) {
      dry_layers = LayerSaving::kRecompute;
      GANTRY_RETURN_IF_ERROR(Step(c, 1, outcome).status());
    }
    outcome = Outcome{};
    GANTRY_RETURN_IF_ERROR(engine->Seal());
    GANTRY_RETURN_IF_ERROR(model->InitializeWeights(11));
    for (int64_t step = 1; step <= kSteps; ++step) {
      GANTRY_ASSIGN_OR_RETURN(const double loss, Step(c, step, outcome));
      outcome.losses.push_back(loss);
    }
    Hasher hasher;
    for (const auto* tensors : {&model->weights().tensors, &model->weights().adapters}) {
      for (const RegisteredTensor& tensor : *tensors) {
        std::vector<std::byte> bytes(static_cast<size_t>(tensor.elements * SizeOf(c.dtype)));
        GANTRY_RETURN_IF_ERROR(engine->ReadState(StateKind::kParameter, tensor.tensor, 0, bytes));
        hasher.Update(bytes);
      }
    }
    outcome.parameters = hasher.Digest64();
    return outcome;
  }
};

// The all-resident run with the same arithmetic, made once per arithmetic.
absl::StatusOr<Outcome> Reference(const Case& c) {
  const Case reference{.name = "reference",
                       .policy = "device",
                       .clip = c.clip,
                       .accumulation = c.accumulation,
                       .dtype = c.dtype,
                       .tied = c.tied,
                       .non_finite = c.non_finite,
                       .optimizer = c.optimizer,
                       .family = c.family,
                       .lora = c.lora};
  return LlamaRun().Train(reference);
}

class PlacementLlamaTest : public ::testing::TestWithParam<Case> {};

TEST_P(PlacementLlamaTest, GivesTheBitsOfTheResidentRun) {
  const Case& c = GetParam();
  const absl::StatusOr<Outcome> expected = Reference(c);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_LT(expected->losses.back(), expected->losses.front());
  LlamaRun run;
  const absl::StatusOr<Outcome> actual = run.Train(c);
  ASSERT_TRUE(actual.ok()) << actual.status();
  EXPECT_EQ(actual->losses, expected->losses);
  EXPECT_EQ(actual->norms, expected->norms);
  EXPECT_EQ(actual->parameters, expected->parameters);
  const EngineStatistics statistics = run.engine->statistics();
  EXPECT_LE(statistics.device.slots_peak * statistics.device.slot_bytes.count(), c.device_bytes);
  EXPECT_EQ(statistics.leases_off_plan, 0);
  if (c.policy == "planned" &&
      (c.topology == DeviceTopology::kUnified || c.host_bytes >= kHostForParameters)) {
    EXPECT_TRUE(run.engine->movement_report("train").planned)
        << ::testing::PrintToString(run.logger.messages());
  }
  std::printf("%s: device peak %s, host peak %s\n", c.name.c_str(),
              (statistics.device.slot_bytes * statistics.device.slots_peak).ToString().c_str(),
              (statistics.host.slot_bytes * statistics.host.slots_peak).ToString().c_str());
}

std::vector<Case> Cases() {
  using enum DeviceTopology;
  constexpr int64_t k = 1 << 10;
  return {
      {.name = "ample"},
      {.name = "unified_ample", .topology = kUnified},
      {.name = "small_device", .device_bytes = 2400 * k, .files = true},
      {.name = "small_device_small_host",
       .device_bytes = 2400 * k,
       .host_bytes = 900 * k,
       .files = true},
      {.name = "recompute",
       .device_bytes = 1600 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .recompute = Recompute::kLayer},
      {.name = "unified_files", .topology = kUnified, .device_bytes = 2600 * k, .files = true},
      {.name = "lru",
       .device_bytes = 2400 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .policy = "lru"},
      {.name = "cpu_on_demand",
       .device_bytes = 2400 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .policy = "cpu",
       .look_ahead = 0},
      {.name = "look_ahead_32",
       .device_bytes = 2800 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .look_ahead = 32},
      {.name = "large_chunks",
       .device_bytes = 3800 * k,
       .host_bytes = 4000 * k,
       .files = true,
       .chunk_elements = 3 * kChunk},
      {.name = "no_clipping",
       .device_bytes = 2400 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .clip = 0.0},
      {.name = "updates_in_backward",
       .device_bytes = 2400 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .clip = 0.0,
       .non_finite = OptimizerStep::NonFinite::kUpdateAnyway},
      {.name = "accumulation",
       .device_bytes = 2800 * k,
       .host_bytes = 1400 * k,
       .files = true,
       .accumulation = 3},
      {.name = "adafactor",
       .device_bytes = 2400 * k,
       .host_bytes = 700 * k,
       .files = true,
       .optimizer = OptimizerKind::kAdafactor},
      {.name = "adafactor_unified_large_chunks",
       .topology = kUnified,
       .device_bytes = 3800 * k,
       .files = true,
       .chunk_elements = 3 * kChunk,
       .accumulation = 2,
       .tied = true,
       .optimizer = OptimizerKind::kAdafactor},
      {.name = "accumulation_recompute",
       .device_bytes = 1800 * k,
       .host_bytes = 1400 * k,
       .files = true,
       .accumulation = 3,
       .recompute = Recompute::kLayer},
      {.name = "offload",
       .device_bytes = 1800 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .recompute = Recompute::kOffload},
      {.name = "offload_to_host", .device_bytes = 1800 * k, .recompute = Recompute::kOffload},
      {.name = "offload_unified",
       .topology = kUnified,
       .device_bytes = 2000 * k,
       .files = true,
       .recompute = Recompute::kOffload},
      {.name = "offload_accumulation",
       .device_bytes = 2000 * k,
       .host_bytes = 1400 * k,
       .files = true,
       .accumulation = 3,
       .recompute = Recompute::kOffload},
      {.name = "offload_ample", .recompute = Recompute::kOffload},
      {.name = "layers_planned_ample", .recompute = Recompute::kPlanned},
      {.name = "layers_planned",
       .device_bytes = 2000 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .recompute = Recompute::kPlanned},
      {.name = "layers_planned_unified",
       .topology = kUnified,
       .device_bytes = 2000 * k,
       .files = true,
       .accumulation = 2,
       .recompute = Recompute::kPlanned},
      {.name = "tied",
       .device_bytes = 2400 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .tied = true},
      {.name = "f32",
       .device_bytes = 4000 * k,
       .host_bytes = 1400 * k,
       .files = true,
       .dtype = DType::kF32},
      {.name = "gpt2",
       .device_bytes = 2400 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .recompute = Recompute::kLayer,
       .tied = true,
       .family = DecoderFamily::kGpt2},
      {.name = "mistral",
       .device_bytes = 2400 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .recompute = Recompute::kOffload,
       .family = DecoderFamily::kMistral},
      {.name = "qwen2",
       .device_bytes = 2800 * k,
       .host_bytes = 1400 * k,
       .files = true,
       .accumulation = 2,
       .tied = true,
       .family = DecoderFamily::kQwen2},
      {.name = "qwen3",
       .device_bytes = 2400 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .recompute = Recompute::kLayer,
       .family = DecoderFamily::kQwen3},
      {.name = "lora",
       .device_bytes = 2000 * k,
       .host_bytes = 1000 * k,
       .files = true,
       .recompute = Recompute::kLayer,
       .lora = true},
      {.name = "one_thread",
       .device_bytes = 2400 * k,
       .host_bytes = 1200 * k,
       .files = true,
       .threads = 1},
  };
}

// The same budgets under the policy that plans, after two steps that are timed.
std::vector<Case> PlannedCases() {
  std::vector<Case> cases;
  for (Case c : Cases()) {
    if (c.policy != "auto") continue;
    c.name = "planned_" + c.name;
    c.policy = "planned";
    cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Planned, PlacementLlamaTest, ::testing::ValuesIn(PlannedCases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Cases, PlacementLlamaTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gantry
