#include "benches/suite/accumulation_benchmark.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
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
#include "gemini/parameter_store.h"
#include "offload/transfer_engine.h"
#include "trainer/booster/gemini_plugin.h"
#include "trainer/booster/run_config.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_config.h"

namespace gantry {
namespace {

constexpr Bytes kLaneBandwidth = Bytes(2'000'000'000);
// Two steps are timed, then there is a plan, whose first step fetches what it keeps.
constexpr int kWarmUps = 4;
constexpr int64_t kSequenceLength = 64;

DecoderConfig ModelOf(const BenchOptions& options) {
  const bool quick = options.effort == BenchEffort::kQuick;
  return {.layers = quick ? 6 : 12,
          .width = quick ? 256 : 512,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = quick ? 32 : 64,
          .ffn_width = quick ? 704 : 1408,
          .vocabulary = 256,
          .max_sequence = kSequenceLength,
          .recompute = Recompute::kLayer,
          .parameter_dtype = DType::kBF16};
}

int64_t ParametersOf(const DecoderConfig& model) {
  const int64_t attention = 2 * model.width * model.head_dim * (model.heads + model.kv_heads);
  return model.layers * (attention + 3 * model.width * model.ffn_width);
}

// One model on its engine, which takes steps in one order.
class OrderRig {
 public:
  struct Setup {
    int64_t micro_batches;
    AccumulationOrder order;
  };
  static absl::StatusOr<std::unique_ptr<OrderRig>> Create(const BenchOptions& options,
                                                          const Setup& setup) {
    auto rig = std::make_unique<OrderRig>(options, setup);
    GANTRY_RETURN_IF_ERROR(rig->Open());
    return rig;
  }
  OrderRig(const BenchOptions& options, const Setup& setup) : options_(options), setup_(setup) {}

  // Tokens per second of one step, with its updates.
  absl::StatusOr<double> Step();
  double fetched_megabytes() const { return fetched_ / 1e6; }
  const std::vector<double>& losses() const { return losses_; }

 private:
  absl::Status Open();
  absl::StatusOr<double> Train();

  const BenchOptions& options_;
  Setup setup_;
  std::unique_ptr<GeminiPlugin> plugin_;
  std::unique_ptr<DecoderModel> model_;
  std::vector<int32_t> tokens_;  // of all micro-batches
  int64_t step_ = 0;
  double fetched_ = 0.0;  // bytes, in the last step
  std::vector<double> losses_;
};

absl::Status OrderRig::Open() {
  const DecoderConfig model = ModelOf(options_);
  const int64_t parameters = ParametersOf(model);
  MemoryConfig memory;
  memory.device = DeviceTopology::kDiscrete;
  // Of 2 bytes of parameters and 4 of gradients each; beside it what one operator needs.
  memory.device_memory = Bytes(parameters * 6 / 8 + 6 * 2 * model.width * model.ffn_width) + 8_MiB;
  memory.host_memory = Bytes(parameters * 24) + 64_MiB;
  memory.lane_bandwidth = kLaneBandwidth;
  GANTRY_ASSIGN_OR_RETURN(plugin_, GeminiPlugin::Create({.memory = &memory,
                                                         .threads = options_.compute_threads(),
                                                         .compute_dtype = DType::kBF16,
                                                         .gradient_dtype = DType::kF32,
                                                         .clock = options_.clock,
                                                         .logger = options_.logger,
                                                         .files = options_.files}));
  GANTRY_ASSIGN_OR_RETURN(model_, DecoderModel::Create(plugin_->context(), model, {}));
  const Random random({.seed = 1, .stream = 0});
  for (int64_t i = 0; i < setup_.micro_batches * kSequenceLength; ++i) {
    tokens_.push_back(static_cast<int32_t>(random.Below(256, static_cast<uint64_t>(i))));
  }
  GANTRY_RETURN_IF_ERROR(Train().status());
  GANTRY_RETURN_IF_ERROR(plugin_->engine().Seal());
  return model_->InitializeWeights(1);
}

absl::StatusOr<double> OrderRig::Train() {
  Engine& engine = plugin_->engine();
  const bool by_layer = setup_.order == AccumulationOrder::kLayer;
  const int64_t passes = by_layer ? 1 : setup_.micro_batches;
  const int64_t together = setup_.micro_batches / passes;
  GANTRY_RETURN_IF_ERROR(
      engine.BeginStep({.micro_batches = passes,
                        .optimizer = OptimizerStep{
                            .learning_rate = 1e-4, .step = step_ + 1, .max_gradient_norm = 1.0}}));
  double loss = 0.0;
  for (int64_t pass = 0; pass < passes; ++pass) {
    GANTRY_RETURN_IF_ERROR(engine.BeginMicroBatch());
    std::vector<TokenBatch> batches;
    for (int64_t i = 0; i < together; ++i) {
      const auto tokens = std::span(tokens_).subspan(
          static_cast<size_t>((pass * together + i) * kSequenceLength), kSequenceLength);
      batches.push_back(
          {.sequences = 1, .length = kSequenceLength, .tokens = tokens, .targets = tokens});
    }
    GANTRY_ASSIGN_OR_RETURN(
        const std::vector<LossSum> losses,
        model_->ForwardBackward(batches, 1.0 / static_cast<double>(tokens_.size())));
    for (const LossSum& sum : losses) loss += sum.loss_sum;
  }
  GANTRY_RETURN_IF_ERROR(engine.EndStep().status());
  return loss;
}

absl::StatusOr<double> OrderRig::Step() {
  Engine& engine = plugin_->engine();
  engine.ResetStatistics();
  const Nanoseconds begin = options_.clock->Now();
  GANTRY_ASSIGN_OR_RETURN(const double loss, Train());
  GANTRY_RETURN_IF_ERROR(engine.Drain());
  const auto taken = static_cast<double>(options_.clock->Now() - begin);
  ++step_;
  losses_.push_back(loss);
  fetched_ = static_cast<double>(
      engine.statistics().lanes[static_cast<size_t>(TransferLane::kHostToDevice)].bytes);
  return static_cast<double>(tokens_.size()) * 1e9 / taken;
}

absl::StatusOr<BenchRow> CompareOrders(const BenchOptions& options, int64_t micro_batches) {
  options.Tell(StrCat("accumulation: ", micro_batches, " micro-batches, in both orders"));
  GANTRY_ASSIGN_OR_RETURN(
      const auto one_by_one,
      OrderRig::Create(options, {micro_batches, AccumulationOrder::kMicroBatch}));
  GANTRY_ASSIGN_OR_RETURN(const auto by_layer,
                          OrderRig::Create(options, {micro_batches, AccumulationOrder::kLayer}));
  const std::vector<Measurement> sides = {[&] { return by_layer->Step(); },
                                          [&] { return one_by_one->Step(); }};
  GANTRY_ASSIGN_OR_RETURN(
      const Samples samples,
      Interleave(sides, {.rounds = options.rounds(), .warm_ups = kWarmUps, .stop = options.stop}));
  if (by_layer->losses() != one_by_one->losses()) {
    return Internal("the order of ", micro_batches, " micro-batches changed the losses");
  }
  BenchRow row = ComparisonRow({.name = StrCat("accumulation_", micro_batches),
                                .unit = "tokens/s",
                                .better = Better::kHigher,
                                .values = samples[0],
                                .bounds = samples[1]});
  row.figures = {{"one_by_one_MB", one_by_one->fetched_megabytes()},
                 {"by_layer_MB", by_layer->fetched_megabytes()}};
  row.note = "layer by layer, beside one by one";
  return row;
}

}  // namespace

absl::StatusOr<BenchReport> RunAccumulationBenchmark(const BenchOptions& options) {
  GANTRY_RETURN_IF_ERROR(ValidateBenchOptions(options));
  BenchReport report{.bench = "accumulation", .machine = DescribeMachine(), .rows = {}};
  for (const int64_t micro_batches : {4, 8}) {
    GANTRY_ASSIGN_OR_RETURN(BenchRow row, CompareOrders(options, micro_batches));
    report.rows.push_back(std::move(row));
  }
  report.machine.Add("accumulation_parameters", ParametersOf(ModelOf(options)));
  return report;
}

}  // namespace gantry
