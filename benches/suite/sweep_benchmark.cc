#include "benches/suite/sweep_benchmark.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/fio.h"
#include "benches/suite/interleave.h"
#include "benches/suite/io_benchmark.h"
#include "benches/suite/machine.h"
#include "benches/suite/process_usage.h"
#include "benches/suite/report.h"
#include "benches/suite/store_load.h"
#include "benches/suite/sweep_model.h"
#include "device/device.h"
#include "device/host/host_device.h"
#include "device/slot_pool.h"
#include "gemini/engine.h"
#include "gemini/parameter_store.h"
#include "nvme/block_store.h"
#include "nvme/create_io_backend.h"
#include "nvme/io_backend.h"
#include "offload/transfer_engine.h"

namespace gantry {
namespace {

constexpr int64_t kTensors = 64;
constexpr int64_t kTensorGranule = 4096;
constexpr int64_t kStateBytes = 12;    // a parameter: master, momentum, variance
constexpr int64_t kResidentBytes = 4;  // a parameter and its gradient
constexpr double kParameterBytes = 2.0;
constexpr double kSweepBytes = 24.0;    // its states read and written
constexpr double kOverheadLimit = 3.0;  // percent
// Memory that the sweep passes through, beside what is resident: bytes per parameter.
constexpr int64_t kWindowBytes = 2;

using NonFinite = OptimizerStep::NonFinite;

// An engine with a model of N parameters.
struct SweepSetup {
  int64_t parameters;
  DeviceTopology topology = DeviceTopology::kUnified;
  std::string policy = "static";
  double resident_states = 0.0;  // fraction; what the static policy keeps in memory
  NonFinite non_finite = NonFinite::kUpdateAnyway;
  UpdateOrder update_order = UpdateOrder::kExact;
  double backward_seconds = 0.0;  // of a step, beside the sweep
};

class SweepRig {
 public:
  static absl::StatusOr<std::unique_ptr<SweepRig>> Create(const SweepSetup& setup,
                                                          const BenchOptions& options);
  // Seconds of a step, until all its updates are done and written back.
  absl::StatusOr<double> Step();
  EngineStatistics statistics() const { return engine_->statistics(); }
  void ResetStatistics() { engine_->ResetStatistics(); }
  Bytes slot_bytes() const { return engine_->layout().slot_bytes(); }
  int64_t parameters() const { return model_->parameters(); }
  Bytes budget() const { return device_memory_ + host_memory_; }

 private:
  SweepRig(const SweepSetup& setup, const BenchOptions& options)
      : setup_(setup), options_(options) {}
  absl::Status Open();

  const SweepSetup setup_;
  const BenchOptions& options_;
  Bytes device_memory_ = Bytes(0);
  Bytes host_memory_ = Bytes(0);
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SweepModel> model_;
};

absl::StatusOr<std::unique_ptr<SweepRig>> SweepRig::Create(const SweepSetup& setup,
                                                           const BenchOptions& options) {
  std::unique_ptr<SweepRig> rig(new SweepRig(setup, options));
  GANTRY_RETURN_IF_ERROR(rig->Open());
  // The first step writes what the others read.
  GANTRY_RETURN_IF_ERROR(rig->Step().status());
  return rig;
}

absl::Status SweepRig::Open() {
  const int64_t n = setup_.parameters;
  const auto states =
      static_cast<int64_t>(setup_.resident_states * static_cast<double>(n * kStateBytes));
  const Bytes updated_in = Bytes(n * (kResidentBytes + kWindowBytes) + states);
  const bool unified = setup_.topology == DeviceTopology::kUnified;
  device_memory_ = unified ? updated_in : Bytes(n);
  host_memory_ = unified ? Bytes(0) : updated_in;
  GANTRY_ASSIGN_OR_RETURN(team_, ThreadTeam::Create({.threads = options_.compute_threads()}));
  GANTRY_ASSIGN_OR_RETURN(device_,
                          CreateHostDevice({.topology = setup_.topology, .clock = options_.clock}));
  GANTRY_ASSIGN_OR_RETURN(
      engine_,
      Engine::Create({.device = device_.get(),
                      .team = team_.get(),
                      .clock = options_.clock,
                      .logger = options_.logger,
                      .files = options_.files,
                      .device_memory = device_memory_,
                      .host_memory = host_memory_,
                      .spill_directories = {options_.directory},
                      .io = options_.io,
                      .policy = setup_.policy,
                      .static_fractions = {.offload_parameters = 1.0,
                                           .offload_optimizer = 1.0,
                                           .spill_optimizer = 1.0 - setup_.resident_states},
                      .update_order = setup_.update_order}));
  model_ = std::make_unique<SweepModel>(
      engine_.get(), SweepModel::Options{.tensors = kTensors,
                                         .elements = n / kTensors,
                                         .compute = static_cast<Nanoseconds>(
                                             setup_.backward_seconds * 1e9 / kTensors),
                                         .clock = options_.clock});
  GANTRY_RETURN_IF_ERROR(model_->Register());
  return engine_->Seal();
}

absl::StatusOr<double> SweepRig::Step() {
  const Nanoseconds begin = options_.clock->Now();
  GANTRY_RETURN_IF_ERROR(model_->Step(setup_.non_finite));
  GANTRY_RETURN_IF_ERROR(engine_->Drain());
  return static_cast<double>(options_.clock->Now() - begin) * 1e-9;
}

// File bytes of a parameter in one step of a rig that has settled.
struct Traffic {
  double read;
  double written;
  double both() const { return read + written; }
};
absl::StatusOr<Traffic> CountTraffic(SweepRig& rig, int steps) {
  rig.ResetStatistics();
  for (int i = 0; i < steps; ++i) GANTRY_RETURN_IF_ERROR(rig.Step().status());
  const EngineStatistics statistics = rig.statistics();
  const auto per_parameter = [&](TransferLane lane) {
    return static_cast<double>(statistics.lanes[static_cast<size_t>(lane)].bytes) /
           static_cast<double>(rig.parameters() * steps);
  };
  return Traffic{.read = per_parameter(TransferLane::kFileRead),
                 .written = per_parameter(TransferLane::kFileWrite)};
}

class SweepBenchmark {
 public:
  explicit SweepBenchmark(const BenchOptions& options) : options_(options) {
    const Bytes states = options.SizeOr(1_GiB, 96_MiB);
    parameters_ =
        kTensors * RoundUp(CeilDiv(states.count(), kStateBytes * kTensors), kTensorGranule);
  }
  absl::StatusOr<BenchReport> Run();

 private:
  static constexpr int kTrafficSteps = 2;

  absl::StatusOr<std::unique_ptr<SweepRig>> MeasureOverhead();
  absl::StatusOr<std::unique_ptr<StoreLoad>> CreateBound(Bytes slot_bytes) const;
  absl::StatusOr<double> BoundSeconds(StoreLoad& store, Bytes slot_bytes) const;
  absl::Status AddTimes(SweepRig& unified);
  absl::Status AddSpeculation(SweepRig& unified);
  absl::Status AddTraffic(SweepRig& unified);

  const BenchOptions& options_;
  int64_t parameters_;
  BenchReport report_;
};

// Creates the first engine, whose memory shows best: nothing else was allocated before.
absl::StatusOr<std::unique_ptr<SweepRig>> SweepBenchmark::MeasureOverhead() {
  GANTRY_ASSIGN_OR_RETURN(const Bytes before, ProcessPrivateBytes());
  GANTRY_ASSIGN_OR_RETURN(auto rig, SweepRig::Create({.parameters = parameters_}, options_));
  GANTRY_RETURN_IF_ERROR(rig->Step().status());
  GANTRY_ASSIGN_OR_RETURN(const Bytes after, ProcessPrivateBytes());
  const EngineStatistics statistics = rig->statistics();
  const auto slots = [](const PoolUsage& usage) { return usage.slot_bytes * usage.slots_total; };
  const Bytes beside = after - before - slots(statistics.device) - slots(statistics.host);
  const double percent =
      100.0 * static_cast<double>(beside.count()) / static_cast<double>(rig->budget().count());
  BenchRow row = LimitRow({.name = "host_overhead",
                           .value = percent,
                           .bound = kOverheadLimit,
                           .unit = "%",
                           .better = Better::kLower});
  row.note = StrCat(static_cast<double>(beside.count()) / (1 << 20), " MiB beside slots of ",
                    slots(statistics.device) + slots(statistics.host), ", budget ", rig->budget());
  report_.rows.push_back(std::move(row));
  report_.machine.Add("io_backend", statistics.io_backend());
  report_.machine.Add("ring_flags", statistics.stripes.front().ring_flags);
  report_.machine.Add("fixed_memory", statistics.stripes.front().fixed_memory);
  report_.machine.Add("direct_io", statistics.direct_io());
  report_.machine.Add("sweep_parameters", parameters_);
  report_.machine.Add("sweep_chunk_elements", statistics.chunk_elements);
  report_.machine.Add("sweep_slot_bytes", rig->slot_bytes().count());
  report_.machine.Add("sweep_budget_bytes", rig->budget().count());
  return rig;
}

// The file tier alone, with blocks of the engine's size and as many pieces under way.
absl::StatusOr<std::unique_ptr<StoreLoad>> SweepBenchmark::CreateBound(Bytes slot_bytes) const {
  const int queue_depth = IoBackendOptions{}.queue_depth;
  const int64_t blocks =
      std::max<int64_t>(CeilDiv(parameters_ * kStateBytes, slot_bytes.count()), 4);
  const int64_t piece = std::min(kPieceBytes, slot_bytes.count());
  // Twice what the kernel holds, so that it never waits for the next one.
  const int64_t requests = std::max<int64_t>(2 * queue_depth * piece / slot_bytes.count(), 2);
  return StoreLoad::Create({.directory = options_.directory,
                            .block_bytes = slot_bytes,
                            .blocks = blocks,
                            .queue_depth = queue_depth,
                            .requests = static_cast<int>(std::min(requests, blocks / 4)),
                            .verification = Verification::kOff,
                            .io = options_.io,
                            .files = options_.files,
                            .clock = options_.clock,
                            .logger = options_.logger});
}

// Reads and writes as many bytes as the sweep has to, and does not even look at them.
absl::StatusOr<double> SweepBenchmark::BoundSeconds(StoreLoad& store, Bytes slot_bytes) const {
  const double bytes = kSweepBytes * static_cast<double>(parameters_);
  const int64_t blocks = CeilDiv(static_cast<int64_t>(bytes), slot_bytes.count());
  GANTRY_ASSIGN_OR_RETURN(const LoadResult result,
                          store.Run({.mix = LoadMix::kMixed, .blocks = blocks}));
  return result.seconds * bytes / static_cast<double>(result.bytes());
}

absl::Status SweepBenchmark::AddTimes(SweepRig& unified) {
  options_.Tell("sweep: seconds per step, beside the file tier alone");
  const std::vector<std::pair<std::string_view, SweepSetup>> setups = {
      {"sweep_after_norm", {.parameters = parameters_, .non_finite = NonFinite::kSkipStep}},
      {"sweep_speculative",
       {.parameters = parameters_,
        .non_finite = NonFinite::kSkipStep,
        .update_order = UpdateOrder::kSpeculative}},
      {"sweep_emulated", {.parameters = parameters_, .topology = DeviceTopology::kDiscrete}}};
  const Bytes slot_bytes = unified.slot_bytes();
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<StoreLoad> store, CreateBound(slot_bytes));
  std::vector<std::string_view> names = {"sweep"};
  std::vector<std::unique_ptr<SweepRig>> rigs;
  std::vector<Measurement> sides = {[&] { return BoundSeconds(*store, slot_bytes); },
                                    [&] { return unified.Step(); }};
  for (const auto& [name, setup] : setups) {
    GANTRY_ASSIGN_OR_RETURN(std::unique_ptr<SweepRig> rig, SweepRig::Create(setup, options_));
    names.push_back(name);
    sides.emplace_back([rig = rig.get()] { return rig->Step(); });
    rigs.push_back(std::move(rig));
  }
  GANTRY_ASSIGN_OR_RETURN(const Samples samples,
                          Interleave(sides, {.rounds = options_.rounds(), .stop = options_.stop}));
  for (size_t i = 0; i < names.size(); ++i) {
    report_.rows.push_back(ComparisonRow({.name = names[i],
                                          .unit = "s",
                                          .better = Better::kLower,
                                          .values = samples[i + 1],
                                          .bounds = samples[0]}));
    if (store->facts().access == FileAccess::kBuffered) {
      report_.rows.back().note = "buffered: not the drive's speed";
    }
  }
  return absl::OkStatus();
}

// What updating before the norm is known saves when the backward pass takes as long as the sweep.
absl::Status SweepBenchmark::AddSpeculation(SweepRig& unified) {
  options_.Tell("sweep: speculative updates beside a backward pass");
  GANTRY_ASSIGN_OR_RETURN(const double backward, unified.Step());
  SweepSetup setup{
      .parameters = parameters_, .non_finite = NonFinite::kSkipStep, .backward_seconds = backward};
  GANTRY_ASSIGN_OR_RETURN(const auto exact, SweepRig::Create(setup, options_));
  setup.update_order = UpdateOrder::kSpeculative;
  GANTRY_ASSIGN_OR_RETURN(const auto speculative, SweepRig::Create(setup, options_));
  const std::vector<Measurement> sides = {[&] { return exact->Step(); },
                                          [&] { return speculative->Step(); }};
  GANTRY_ASSIGN_OR_RETURN(const Samples samples,
                          Interleave(sides, {.rounds = options_.rounds(), .stop = options_.stop}));
  report_.rows.push_back(ComparisonRow({.name = "speculation",
                                        .unit = "s",
                                        .better = Better::kLower,
                                        .values = samples[1],
                                        .bounds = samples[0]}));
  report_.rows.back().note =
      StrCat("of a step whose backward pass takes ", backward, " s; bound: updates after the norm");
  return absl::OkStatus();
}

absl::Status SweepBenchmark::AddTraffic(SweepRig& unified) {
  options_.Tell("sweep: bytes per parameter");
  const auto add = [this](std::string_view name, double value, double bound) {
    report_.rows.push_back(LimitRow(
        {.name = name, .value = value, .bound = bound, .unit = "bytes", .better = Better::kLower}));
  };
  GANTRY_ASSIGN_OR_RETURN(const Traffic all, CountTraffic(unified, kTrafficSteps));
  add("sweep_bytes_per_parameter", all.both(), kSweepBytes);
  add("sweep_read_per_parameter", all.read, kSweepBytes / 2);
  add("sweep_written_per_parameter", all.written, kSweepBytes / 2);

  constexpr double kHalf = 0.5;
  GANTRY_ASSIGN_OR_RETURN(
      std::unique_ptr<SweepRig> rig,
      SweepRig::Create({.parameters = parameters_, .resident_states = kHalf}, options_));
  GANTRY_ASSIGN_OR_RETURN(const Traffic half, CountTraffic(*rig, kTrafficSteps));
  add("sweep_bytes_per_parameter_half_resident", half.both(), (1.0 - kHalf) * kSweepBytes);
  rig.reset();
  // The automatic policy may keep states in all memory that parameters and gradients leave.
  GANTRY_ASSIGN_OR_RETURN(
      rig, SweepRig::Create({.parameters = parameters_, .policy = "auto", .resident_states = kHalf},
                            options_));
  GANTRY_RETURN_IF_ERROR(rig->Step().status());
  GANTRY_ASSIGN_OR_RETURN(const Traffic automatic, CountTraffic(*rig, kTrafficSteps));
  // At best: memory holds the parameters and else only states, gradients being there in passing.
  const double budget = static_cast<double>(rig->budget().count());
  const double n = static_cast<double>(parameters_);
  const double resident = (budget - kParameterBytes * n) / (kStateBytes * n);
  add("sweep_bytes_per_parameter_auto", automatic.both(), (1.0 - resident) * kSweepBytes);
  report_.rows.back().note = StrCat("policy auto, budget ", rig->budget());
  for (BenchRow& row :
       WearRows({.prefix = "sweep_", .bytes_written_per_parameter = all.written}, options_)) {
    report_.rows.push_back(std::move(row));
  }
  return absl::OkStatus();
}

absl::StatusOr<BenchReport> SweepBenchmark::Run() {
  report_.bench = "sweep";
  report_.machine = DescribeMachine();
  DescribeDirectory(options_.directory, report_.machine);
  options_.Tell(StrCat("sweep: ", parameters_, " parameters, ", Bytes(parameters_ * kStateBytes),
                       " of optimizer states in files"));
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<SweepRig> unified, MeasureOverhead());
  GANTRY_RETURN_IF_ERROR(AddTimes(*unified));
  GANTRY_RETURN_IF_ERROR(AddSpeculation(*unified));
  GANTRY_RETURN_IF_ERROR(AddTraffic(*unified));
  return std::move(report_);
}

}  // namespace

absl::StatusOr<BenchReport> RunSweepBenchmark(const BenchOptions& options) {
  GANTRY_RETURN_IF_ERROR(ValidateBenchOptions(options));
  return SweepBenchmark(options).Run();
}

}  // namespace gantry
