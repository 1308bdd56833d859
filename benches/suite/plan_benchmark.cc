#include "benches/suite/plan_benchmark.h"

#include <algorithm>
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
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/interleave.h"
#include "benches/suite/layered_model.h"
#include "benches/suite/machine.h"
#include "benches/suite/report.h"
#include "device/device.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "gemini/parameter_store.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

constexpr int64_t kLayers = 32;
constexpr int64_t kTensorsPerLayer = 2;
constexpr int64_t kChunks = kLayers * kTensorsPerLayer;
constexpr int64_t kStateBytes = 16;  // a parameter, all told

// Of each copy lane: slow enough that copying leaves most of the processor to the updates. The
// operators are as much slower than an RTX 4090's as the lanes are than its link: 8 FLOP a token
// and parameter with recomputation at 82 TFLOP/s, beside 2 bytes at 25 GB/s.
constexpr int64_t kLaneBytesPerSecond = 3'000'000'000;
constexpr double kLinkBytesPerSecond = 25e9;
constexpr double ComputeSeconds(double tokens, double parameters) {
  const double slower = kLinkBytesPerSecond / static_cast<double>(kLaneBytesPerSecond);
  return 8.0 * tokens * parameters / 82e12 * slower;
}

constexpr double kTokensWithFiles = 8192.0;  // at least
// Of the time that files take: a step of so many tokens that a plan can hide them.
constexpr double kComputeOverFiles = 1.25;
constexpr int64_t kStepsUntilPlanned = 4;  // recorded or not, two timed, one with the plan

struct RigSetup {
  std::string policy = "planned";
  double device_share = 1.0;  // of the state
  double host_share = 1.1;
  bool files = false;
};

// An engine and the model on it.
class PlanRig {
 public:
  static absl::StatusOr<std::unique_ptr<PlanRig>> Create(const RigSetup& setup, int64_t elements,
                                                         const BenchOptions& options);
  // Runs steps until the engine follows its plan for them.
  absl::Status Warm(Nanoseconds compute, const std::string& key);
  // Seconds of a step among `steps` that follow another.
  absl::StatusOr<double> Steps(int64_t steps);

  // Since Warm.
  int64_t steps_counted() const { return std::max<int64_t>(steps_counted_, 1); }
  EngineStatistics statistics() const { return engine_->statistics(); }
  MovementReport report() const { return engine_->movement_report(model_->trace_key()); }
  // The median of an update of a chunk, in seconds.
  double UpdateSeconds();

 private:
  const BenchOptions* options_ = nullptr;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LayeredModel> model_;
  int64_t steps_counted_ = 0;
};

absl::StatusOr<std::unique_ptr<PlanRig>> PlanRig::Create(const RigSetup& setup, int64_t elements,
                                                         const BenchOptions& options) {
  auto rig = std::make_unique<PlanRig>();
  rig->options_ = &options;
  const auto bytes = [&](double share) {
    return Bytes(
        static_cast<int64_t>(share * static_cast<double>(kStateBytes * kChunks * elements)));
  };
  GANTRY_ASSIGN_OR_RETURN(rig->team_, ThreadTeam::Create({.threads = options.compute_threads()}));
  GANTRY_ASSIGN_OR_RETURN(rig->device_,
                          CreateHostDevice({.topology = DeviceTopology::kDiscrete,
                                            .bandwidth_bytes_per_second = kLaneBytesPerSecond,
                                            .clock = options.clock}));
  EngineOptions engine{.device = rig->device_.get(),
                       .team = rig->team_.get(),
                       .clock = options.clock,
                       .logger = options.logger,
                       .files = options.files,
                       .device_memory = bytes(setup.device_share),
                       .host_memory = bytes(setup.host_share),
                       .io = options.io,
                       .policy = setup.policy,
                       .static_fractions = {},
                       .chunk_elements = elements};
  if (setup.files) engine.spill_directories = {options.directory};
  GANTRY_ASSIGN_OR_RETURN(rig->engine_, Engine::Create(engine));
  rig->model_ = std::make_unique<LayeredModel>(
      rig->engine_.get(), LayeredModel::Options{.layers = kLayers,
                                                .tensors_per_layer = kTensorsPerLayer,
                                                .elements = elements,
                                                .clock = options.clock});
  GANTRY_RETURN_IF_ERROR(rig->model_->Register());
  GANTRY_RETURN_IF_ERROR(rig->engine_->Seal());
  return rig;
}

absl::Status PlanRig::Warm(Nanoseconds compute, const std::string& key) {
  model_->SetCompute(compute, key);
  for (int64_t i = 0; i < kStepsUntilPlanned; ++i) GANTRY_RETURN_IF_ERROR(model_->Step());
  GANTRY_RETURN_IF_ERROR(engine_->Drain());
  engine_->ResetStatistics();
  steps_counted_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<double> PlanRig::Steps(int64_t steps) {
  // The first one finds all updates done.
  GANTRY_RETURN_IF_ERROR(model_->Step());
  const Nanoseconds begin = options_->clock->Now();
  for (int64_t i = 0; i < steps; ++i) GANTRY_RETURN_IF_ERROR(model_->Step());
  const Nanoseconds end = options_->clock->Now();
  steps_counted_ += 1 + steps;
  GANTRY_RETURN_IF_ERROR(engine_->Drain());
  return static_cast<double>(end - begin) * 1e-9 / static_cast<double>(steps);
}

double PlanRig::UpdateSeconds() {
  std::vector<double> times;
  for (const Moment& moment : engine_->trace(model_->trace_key())->moments) {
    if (moment.phase != Phase::kOptimizer) continue;
    times.push_back(static_cast<double>(moment.compute) * 1e-9);
  }
  return Median(times);
}

class PlanBenchmark {
 public:
  explicit PlanBenchmark(const BenchOptions& options) : options_(options) {
    const Bytes state = options.SizeOr(1_GiB, 256_MiB);
    elements_ = std::max<int64_t>(
        RoundUp(CeilDiv(state.count(), kStateBytes * kChunks), kChunkGranularityElements),
        kChunkGranularityElements);
  }
  absl::StatusOr<BenchReport> Run();

 private:
  // One kind of step under a budget, compared with the same on the resident engine.
  struct Series {
    std::string name;
    PlanRig* rig;
    std::string note;
  };

  absl::Status MeasureBudgets();
  absl::Status MeasureFiles();
  // `compute`: of a step, as asked for.
  absl::Status Measure(const std::string& key, Nanoseconds compute,
                       const std::vector<Series>& series);
  void AddRows(const Series& series, std::span<const double> steps,
               std::span<const double> resident);

  Nanoseconds ComputeOf(double tokens) const {
    const double parameters = static_cast<double>(kChunks * elements_);
    return static_cast<Nanoseconds>(1e9 * ComputeSeconds(tokens, parameters));
  }
  int64_t steps() const { return options_.effort == BenchEffort::kQuick ? 1 : 3; }

  const BenchOptions& options_;
  int64_t elements_;
  std::unique_ptr<PlanRig> resident_;
  BenchReport report_;
};

absl::Status PlanBenchmark::Measure(const std::string& key, Nanoseconds compute,
                                    const std::vector<Series>& series) {
  GANTRY_RETURN_IF_ERROR(resident_->Warm(compute, key));
  std::vector<Measurement> sides = {[this] { return resident_->Steps(steps()); }};
  for (const Series& one : series) {
    sides.emplace_back([this, rig = one.rig] { return rig->Steps(steps()); });
  }
  GANTRY_ASSIGN_OR_RETURN(const Samples samples,
                          Interleave(sides, {.rounds = options_.rounds(), .stop = options_.stop}));
  report_.rows.push_back(LimitRow({.name = StrCat("step_resident_", key),
                                   .value = Median(samples[0]),
                                   .bound = static_cast<double>(compute) * 1e-9,
                                   .unit = "s",
                                   .better = Better::kLower}));
  report_.rows.back().note = "everything on the device; bound: its operators alone";
  for (size_t i = 0; i < series.size(); ++i) AddRows(series[i], samples[i + 1], samples[0]);
  return absl::OkStatus();
}

void PlanBenchmark::AddRows(const Series& series, std::span<const double> steps,
                            std::span<const double> resident) {
  const MovementReport plan = series.rig->report();
  const double predicted = static_cast<double>(plan.predicted) * 1e-9;
  const double bound = static_cast<double>(plan.bound) * 1e-9;
  report_.rows.push_back(LimitRow({.name = StrCat("step_", series.name),
                                   .value = Median(steps),
                                   .bound = predicted,
                                   .unit = "s",
                                   .better = Better::kLower}));
  report_.rows.back().figures = {{"compute", static_cast<double>(plan.compute) * 1e-9}};
  const EngineStatistics statistics = series.rig->statistics();
  for (int cause = 0; cause < kStallCauseCount; ++cause) {
    report_.rows.back().figures.emplace_back(
        StrCat("stall_", Name(static_cast<StallCause>(cause))),
        static_cast<double>(statistics.stalls[static_cast<size_t>(cause)]) * 1e-9 /
            static_cast<double>(series.rig->steps_counted()));
  }
  report_.rows.back().note =
      StrCat(series.note, plan.planned ? "; bound: as the plan predicts" : "; not planned");
  std::vector<double> shares;
  std::vector<double> possible;
  for (size_t i = 0; i < steps.size(); ++i) {
    shares.push_back(resident[i] / steps[i]);
    possible.push_back(std::min(1.0, resident[i] / bound));
  }
  report_.rows.push_back(ComparisonRow({.name = StrCat("practicality_", series.name),
                                        .unit = "",
                                        .better = Better::kHigher,
                                        .values = shares,
                                        .bounds = possible}));
  report_.rows.back().note =
      "of the speed of the resident step; bound: any plan with these updates";
}

absl::Status PlanBenchmark::MeasureBudgets() {
  const std::vector<std::pair<std::string, double>> budgets = {
      {"5", 0.05}, {"10", 0.10}, {"25", 0.25}};
  std::vector<std::unique_ptr<PlanRig>> rigs;
  for (const auto& [name, share] : budgets) {
    GANTRY_ASSIGN_OR_RETURN(auto rig,
                            PlanRig::Create({.device_share = share}, elements_, options_));
    rigs.push_back(std::move(rig));
  }
  // The same engines: another key, another plan.
  const std::vector<std::pair<std::string, double>> lengths = {{"8k", 8192.0}, {"2k", 2048.0}};
  for (const auto& [key, tokens] : lengths) {
    options_.Tell(StrCat("plan: budgets of 5, 10 and 25 % of the state, ", key, " tokens a step"));
    std::vector<Series> series;
    for (size_t i = 0; i < rigs.size(); ++i) {
      GANTRY_RETURN_IF_ERROR(rigs[i]->Warm(ComputeOf(tokens), key));
      const std::string& name = budgets[i].first;
      series.push_back({StrCat(name, "_", key), rigs[i].get(), StrCat(name, " % of the state")});
    }
    GANTRY_RETURN_IF_ERROR(Measure(key, ComputeOf(tokens), series));
  }
  return absl::OkStatus();
}

absl::Status PlanBenchmark::MeasureFiles() {
  options_.Tell("plan: a tenth on the device, a quarter on the host, the rest in files");
  GANTRY_ASSIGN_OR_RETURN(auto rig,
                          PlanRig::Create({.device_share = 0.10, .host_share = 0.25, .files = true},
                                          elements_, options_));
  // How fast the files are shows in steps that wait for them.
  GANTRY_RETURN_IF_ERROR(rig->Warm(ComputeOf(kTokensWithFiles), "8k"));
  const MachineRates rates = rig->report().rates;
  const double bytes = 12.0 * 0.8 * static_cast<double>(kChunks * elements_);
  const double seconds = bytes / static_cast<double>(rates.file_read.bytes_per_second) +
                         bytes / static_cast<double>(rates.file_write.bytes_per_second);
  const auto compute = std::max(ComputeOf(kTokensWithFiles),
                                static_cast<Nanoseconds>(kComputeOverFiles * seconds * 1e9));
  GANTRY_RETURN_IF_ERROR(rig->Warm(compute, "files"));
  return Measure("files", compute,
                 {Series{"files", rig.get(), "10 % on the device, 25 % on the host"}});
}

absl::StatusOr<BenchReport> PlanBenchmark::Run() {
  report_.bench = "plan";
  report_.machine = DescribeMachine();
  options_.Tell("plan: everything on the device");
  GANTRY_ASSIGN_OR_RETURN(
      resident_, PlanRig::Create({.policy = "device", .device_share = 1.1, .host_share = 0.05},
                                 elements_, options_));
  GANTRY_RETURN_IF_ERROR(MeasureBudgets());
  GANTRY_RETURN_IF_ERROR(MeasureFiles());
  report_.machine.Add("plan_chunk_elements", elements_);
  report_.machine.Add("plan_chunks", kChunks);
  report_.machine.Add("plan_update_microseconds",
                      static_cast<int64_t>(resident_->UpdateSeconds() * 1e6));
  return std::move(report_);
}

}  // namespace

absl::StatusOr<BenchReport> RunPlanBenchmark(const BenchOptions& options) {
  GANTRY_RETURN_IF_ERROR(ValidateBenchOptions(options));
  return PlanBenchmark(options).Run();
}

}  // namespace gantry
