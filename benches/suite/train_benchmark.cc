#include "benches/suite/train_benchmark.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/interleave.h"
#include "benches/suite/machine.h"
#include "benches/suite/report.h"
#include "device/device.h"
#include "gemini/engine.h"
#include "gemini/layer_activations.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/gemini_plugin.h"
#include "trainer/booster/run_config.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/families.h"

namespace gantry {
namespace {

// Two steps are timed, then there is a plan, whose first step fetches what it keeps.
constexpr int kWarmUps = 4;

struct Case {
  std::string_view model;  // "gpt2" or "smollm2"
  DType dtype;
  int64_t sequences;
  int64_t length;

  std::string name() const {
    return StrCat("train_", model, "_", Name(dtype), "_", sequences, "x", length);
  }
};

DecoderConfig Gpt2() {
  DecoderConfig config = FamilyDefaults(DecoderFamily::kGpt2);
  config.layers = 12;
  config.width = 768;
  config.heads = 12;
  config.kv_heads = 12;
  config.head_dim = 64;
  config.ffn_width = 3072;
  config.vocabulary = 50257;
  config.positions = 1024;
  config.tie_embeddings = true;
  return config;
}

DecoderConfig SmolLm2() {
  DecoderConfig config = FamilyDefaults(DecoderFamily::kLlama);
  config.layers = 30;
  config.width = 576;
  config.heads = 9;
  config.kv_heads = 3;
  config.head_dim = 64;
  config.ffn_width = 1536;
  config.vocabulary = 49152;
  config.rope_theta = 100000.0;
  config.tie_embeddings = true;
  return config;
}

DecoderConfig ModelOf(const Case& c, BenchEffort effort) {
  DecoderConfig config = c.model == "gpt2" ? Gpt2() : SmolLm2();
  if (effort == BenchEffort::kQuick) {
    config.layers = 6;
    config.vocabulary = 1024;
  }
  config.max_sequence = c.length;
  config.parameter_dtype = c.dtype;
  return config;
}

int64_t ParametersOf(const DecoderConfig& config) {
  int64_t elements = 0;
  for (const DecoderTensor& tensor : DecoderTensors(config)) elements += tensor.elements();
  return elements;
}

// Parameter, gradient and the optimizer's states.
Bytes StateOf(const DecoderConfig& config) { return Bytes(ParametersOf(config) * 16); }

enum class Placement { kResident, kTenth };

// One model on its engine, taking the same steps again and again.
class TrainRig {
 public:
  static absl::StatusOr<std::unique_ptr<TrainRig>> Create(const BenchOptions& options,
                                                          const Case& c, Placement placement) {
    auto rig = std::make_unique<TrainRig>(options, c, placement);
    GANTRY_RETURN_IF_ERROR(rig->Open());
    return rig;
  }
  TrainRig(const BenchOptions& options, const Case& c, Placement placement)
      : options_(options), case_(c), placement_(placement) {}

  // Tokens per second of one step, with its updates.
  absl::StatusOr<double> Step() {
    const Nanoseconds begin = options_.clock->Now();
    GANTRY_RETURN_IF_ERROR(Train(LayerSaving::kKeep));
    GANTRY_RETURN_IF_ERROR(plugin_->engine().Drain());
    const auto taken = static_cast<double>(options_.clock->Now() - begin);
    ++step_;
    return static_cast<double>(tokens_.size()) * 1e9 / taken;
  }

 private:
  absl::Status Open();
  MemoryConfig Memory(const DecoderConfig& config) const;
  absl::Status Train(LayerSaving layers);

  const BenchOptions& options_;
  Case case_;
  Placement placement_;
  std::unique_ptr<GeminiPlugin> plugin_;
  std::unique_ptr<DecoderModel> model_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> targets_;
  int64_t step_ = 0;
};

MemoryConfig TrainRig::Memory(const DecoderConfig& config) const {
  const Bytes state = StateOf(config);
  MemoryConfig memory;
  if (placement_ == Placement::kResident) {
    memory.device = DeviceTopology::kUnified;
    memory.device_memory = state + 4_GiB;  // activations take what they need
    memory.policy = "device";
    return memory;
  }
  memory.device = DeviceTopology::kDiscrete;
  memory.device_memory = Bytes(state.count() / 10);
  memory.host_memory = Bytes(state.count() / 4);
  memory.spill_dirs = {options_.directory};
  return memory;
}

absl::Status TrainRig::Open() {
  DecoderConfig config = ModelOf(case_, options_.effort);
  if (placement_ == Placement::kTenth) config.recompute = Recompute::kPlanned;
  const MemoryConfig memory = Memory(config);
  GANTRY_ASSIGN_OR_RETURN(plugin_, GeminiPlugin::Create({.memory = &memory,
                                                         .threads = options_.compute_threads(),
                                                         .compute_dtype = case_.dtype,
                                                         .gradient_dtype = case_.dtype,
                                                         .clock = options_.clock,
                                                         .logger = options_.logger,
                                                         .files = options_.files}));
  GANTRY_ASSIGN_OR_RETURN(model_, DecoderModel::Create(plugin_->context(), config, {}));
  const Random random({.seed = 1, .stream = 0});
  for (int64_t i = 0; i < case_.sequences * case_.length; ++i) {
    const auto index = static_cast<uint64_t>(2 * i);
    tokens_.push_back(static_cast<int32_t>(random.Below(config.vocabulary, index)));
    targets_.push_back(static_cast<int32_t>(random.Below(config.vocabulary, index + 1)));
  }
  GANTRY_RETURN_IF_ERROR(Train(LayerSaving::kKeep));
  if (config.recompute == Recompute::kPlanned) {
    GANTRY_RETURN_IF_ERROR(Train(LayerSaving::kRecompute));
  }
  GANTRY_RETURN_IF_ERROR(plugin_->engine().Seal());
  return model_->InitializeWeights(1);
}

absl::Status TrainRig::Train(LayerSaving layers) {
  Engine& engine = plugin_->engine();
  GANTRY_RETURN_IF_ERROR(engine.BeginStep({.optimizer = OptimizerStep{.learning_rate = 1e-4,
                                                                      .weight_decay = 0.1,
                                                                      .step = step_ + 1,
                                                                      .max_gradient_norm = 1.0},
                                           .dry_layers = layers}));
  GANTRY_RETURN_IF_ERROR(engine.BeginMicroBatch());
  const TokenBatch batch{
      .sequences = case_.sequences, .length = case_.length, .tokens = tokens_, .targets = targets_};
  const absl::StatusOr<LossSum> loss =
      model_->ForwardBackward(batch, 1.0 / static_cast<double>(tokens_.size()));
  const absl::Status end = engine.EndStep().status();
  GANTRY_RETURN_IF_ERROR(loss.status());
  return end;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string_view model : {"gpt2", "smollm2"}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      cases.push_back({.model = model, .dtype = dtype, .sequences = 4, .length = 256});
      cases.push_back({.model = model, .dtype = dtype, .sequences = 1, .length = 512});
    }
  }
  return cases;
}

absl::StatusOr<std::vector<BenchRow>> Measure(const BenchOptions& options, const Case& c) {
  const std::string name = c.name();
  options.Tell(StrCat(name, ": resident, and a tenth on the device, in turns"));
  GANTRY_ASSIGN_OR_RETURN(const auto resident, TrainRig::Create(options, c, Placement::kResident));
  const auto tenth = TrainRig::Create(options, c, Placement::kTenth);
  const bool fits = !absl::IsResourceExhausted(tenth.status());
  if (fits) GANTRY_RETURN_IF_ERROR(tenth.status());
  std::vector<Measurement> sides = {[&] { return resident->Step(); }};
  if (fits) sides.emplace_back([&] { return (*tenth)->Step(); });
  GANTRY_ASSIGN_OR_RETURN(
      const Samples samples,
      Interleave(sides, {.rounds = options.rounds(), .warm_ups = kWarmUps, .stop = options.stop}));
  BenchRow whole = FigureRow(name, Median(samples[0]), "tokens/s");
  whole.note = "everything resident";
  if (!fits) {
    return std::vector<BenchRow>{std::move(whole), SkippedRow(StrCat(name, "_tenth"), "tokens/s",
                                                              FromAbsl(tenth.status().message()))};
  }
  BenchRow part = ComparisonRow({.name = StrCat(name, "_tenth"),
                                 .unit = "tokens/s",
                                 .better = Better::kHigher,
                                 .values = samples[1],
                                 .bounds = samples[0]});
  part.note = "a tenth of the state on the device, a quarter on the host, the rest in files";
  return std::vector<BenchRow>{std::move(whole), std::move(part)};
}

}  // namespace

absl::StatusOr<BenchReport> RunTrainBenchmark(const BenchOptions& options) {
  GANTRY_RETURN_IF_ERROR(ValidateBenchOptions(options));
  BenchReport report{.bench = "train", .machine = DescribeMachine(), .rows = {}};
  for (const Case& c : Cases()) {
    if (c.name().find(options.only) == std::string::npos) continue;
    GANTRY_ASSIGN_OR_RETURN(std::vector<BenchRow> rows, Measure(options, c));
    for (BenchRow& row : rows) report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace gantry
