#include "benches/suite/lease_benchmark.h"

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
#include "base/clock.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/interleave.h"
#include "benches/suite/machine.h"
#include "benches/suite/report.h"
#include "device/device.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "gemini/parameter_store.h"

namespace gantry {
namespace {

constexpr int64_t kTensors = 64;
constexpr int64_t kElements = 100'000;
constexpr double kLimitNanoseconds = 100.0;

// Evaluation steps of one kind: so many leases, of so many neighbouring tensors each.
struct StepShape {
  std::string key;
  int64_t leases;
  int64_t tensors;
};

// An engine that holds everything on the device.
class Resident {
 public:
  static absl::StatusOr<std::unique_ptr<Resident>> Create(const BenchOptions& options,
                                                          const std::vector<StepShape>& shapes);
  // Runs a step and returns the time of one lease, without the step's begin and end.
  absl::StatusOr<double> Step(const StepShape& shape);
  EngineStatistics statistics() const { return engine_->statistics(); }

 private:
  absl::Status Open(const BenchOptions& options, const std::vector<StepShape>& shapes);

  Clock* clock_ = nullptr;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::vector<TensorId> tensors_;
};

absl::StatusOr<std::unique_ptr<Resident>> Resident::Create(const BenchOptions& options,
                                                           const std::vector<StepShape>& shapes) {
  auto resident = std::make_unique<Resident>();
  GANTRY_RETURN_IF_ERROR(resident->Open(options, shapes));
  return resident;
}

absl::Status Resident::Open(const BenchOptions& options, const std::vector<StepShape>& shapes) {
  clock_ = options.clock;
  GANTRY_ASSIGN_OR_RETURN(team_, ThreadTeam::Create({.threads = 1}));
  GANTRY_ASSIGN_OR_RETURN(
      device_, CreateHostDevice({.topology = DeviceTopology::kUnified, .clock = options.clock}));
  GANTRY_ASSIGN_OR_RETURN(engine_, Engine::Create({.device = device_.get(),
                                                   .team = team_.get(),
                                                   .clock = options.clock,
                                                   .logger = options.logger,
                                                   .files = options.files,
                                                   .device_memory = 256_MiB,
                                                   .policy = "planned",
                                                   .static_fractions = {},
                                                   .chunk_elements = 1 << 20}));
  for (int64_t i = 0; i < kTensors; ++i) {
    GANTRY_ASSIGN_OR_RETURN(
        const TensorId tensor,
        engine_->Register({.name = StrCat("t", i), .shape = {kElements}, .dtype = DType::kBF16},
                          {}));
    tensors_.push_back(tensor);
  }
  for (const StepShape& shape : shapes) GANTRY_RETURN_IF_ERROR(Step(shape).status());
  return engine_->Seal();
}

absl::StatusOr<double> Resident::Step(const StepShape& shape) {
  GANTRY_RETURN_IF_ERROR(engine_->BeginStep({.trace_key = shape.key}));
  GANTRY_RETURN_IF_ERROR(engine_->BeginMicroBatch());
  const auto tensors = static_cast<size_t>(shape.tensors);
  std::vector<ParameterUse> uses(tensors, {tensors_[0], ParameterAccess::kRead});
  const Nanoseconds begin = clock_->Now();
  for (int64_t i = 0; i < shape.leases; ++i) {
    for (size_t t = 0; t < tensors; ++t) {
      const size_t index = static_cast<size_t>(i) + t;
      uses[t] = {tensors_[index % kTensors], ParameterAccess::kRead};
    }
    const auto lease = engine_->Acquire(uses, "bench", Phase::kForward);
    if (!lease.ok()) return lease.status();
  }
  const Nanoseconds taken = clock_->Now() - begin;
  GANTRY_RETURN_IF_ERROR(engine_->EndStep().status());
  return static_cast<double>(taken) / static_cast<double>(shape.leases);
}

}  // namespace

absl::StatusOr<BenchReport> RunLeaseBenchmark(const BenchOptions& options) {
  GANTRY_RETURN_IF_ERROR(ValidateBenchOptions(options));
  BenchReport report{.bench = "lease", .machine = DescribeMachine(), .rows = {}};
  // Steps of a fraction of a millisecond: most run without being interrupted.
  const int64_t leases = options.effort == BenchEffort::kQuick ? 500 : 2'000;
  const std::vector<StepShape> shapes = {{.key = "one", .leases = leases, .tensors = 1},
                                         {.key = "three", .leases = leases, .tensors = 3}};
  // The plan of "one" knows no lease of two tensors.
  const StepShape off_plan = {.key = "one", .leases = leases, .tensors = 2};
  options.Tell("lease: one tensor, three tensors, off the plan");
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<Resident> resident,
                          Resident::Create(options, shapes));
  // The median of many steps: what else the machine does takes some of them.
  const auto median_of_steps = [&](const StepShape& shape) -> Measurement {
    return [&resident, &options, shape]() -> absl::StatusOr<double> {
      const Nanoseconds end = options.clock->Now() + options.turn_time() / 4;
      std::vector<double> times;
      do {
        GANTRY_ASSIGN_OR_RETURN(const double time, resident->Step(shape));
        times.push_back(time);
      } while (options.clock->Now() < end);
      return Median(times);
    };
  };
  const std::vector<Measurement> planned = {median_of_steps(shapes[0]), median_of_steps(shapes[1])};
  const InterleaveOptions interleave = {.rounds = options.rounds(), .stop = options.stop};
  GANTRY_ASSIGN_OR_RETURN(const Samples samples, Interleave(planned, interleave));
  const int64_t strays = resident->statistics().leases_off_plan;
  if (strays != 0) return Internal("the lease benchmark left its plan ", strays, " times");
  GANTRY_ASSIGN_OR_RETURN(
      const Samples strayed,
      Interleave(std::vector<Measurement>{median_of_steps(off_plan)}, interleave));

  const auto add = [&](std::string_view name, double value, std::string_view note) {
    report.rows.push_back(LimitRow({.name = name,
                                    .value = value,
                                    .bound = kLimitNanoseconds,
                                    .unit = "ns",
                                    .better = Better::kLower}));
    report.rows.back().note = note;
  };
  add("lease_ns", Median(samples[0]), "one tensor, acquire and release");
  add("lease_3_tensors_ns", Median(samples[1]), "three tensors in one lease");
  add("lease_off_plan_ns", Median(strayed[0]),
      "two tensors, a lease that the trace does not expect");
  return report;
}

}  // namespace gantry
