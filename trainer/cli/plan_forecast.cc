#include "trainer/cli/plan_forecast.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/check_fits.h"
#include "placement_policy/free_placement_bound.h"
#include "placement_policy/hardware.h"
#include "placement_policy/least_budgets.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/machine.h"
#include "placement_policy/machine_catalog.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/model_structure.h"
#include "placement_policy/planner.h"
#include "placement_policy/published_sizes.h"
#include "placement_policy/simulator.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/tier_bytes.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

constexpr double kSecondsPerDay = 86'400.0;

std::string Message(const absl::Status& status) { return std::string(FromAbsl(status.message())); }

absl::StatusOr<Trace> TraceOf(const PlanSettings& settings, Recomputation recomputation,
                              const MachineRates& rates) {
  SyntheticOptions options = settings.step;
  options.recomputation = recomputation;
  options.flops_per_second = static_cast<double>(rates.flops_per_second);
  return SyntheticTrace(settings.shape, options);
}

int64_t ParameterSlots(const Trace& trace) {
  int64_t slots = 0;
  for (const TraceChunk& chunk : trace.chunks) {
    slots += trace.block_slots[static_cast<size_t>(chunk.parameter)];
  }
  return slots;
}

// Several ranks seen as one: what they divide, together they have that many times the room and the
// speed for. A rank gathers from the others what it does not hold, at the rate of the copy lanes.
void Combine(const PlanSettings& settings, const Trace& trace, Machine& machine) {
  if (settings.ranks <= 1 || settings.zero_stage == 0) return;
  const int64_t ranks = settings.ranks;
  machine.rates.host_update_bytes_per_second *= ranks;
  machine.rates.file_read.bytes_per_second *= ranks;
  machine.rates.file_write.bytes_per_second *= ranks;
  machine.rates.file_mixed_bytes_per_second *= ranks;
  const int64_t whole =
      settings.zero_stage < 3 ? std::min(ParameterSlots(trace), machine.host_slots) : 0;
  machine.host_slots = whole + (machine.host_slots - whole) * ranks;
}

int64_t FileShare(const PlanSettings& settings) {
  return settings.zero_stage > 0 ? settings.ranks : 1;
}

// Of what the ranks have together, one rank's part.
void DivideAmongRanks(const PlanSettings& settings, TierBytes& tiers) {
  const int64_t ranks = FileShare(settings);
  const auto divide = [ranks](Bytes& bytes) { bytes = Bytes(CeilDiv(bytes.count(), ranks)); };
  for (KindBytes* const tier : {&tiers.host, &tiers.files}) {
    divide(tier->states);
    divide(tier->buffers);
    if (settings.zero_stage == 3) divide(tier->parameters);
  }
}

absl::Status CheckFiles(const PlanSettings& settings, const Hardware& hardware,
                        const StepForecast& step) {
  const Bytes files = TierBytesOf(step.trace, step.machine, step.decision).files.total();
  const Bytes there = hardware.file_bytes * FileShare(settings);
  if (files <= there) return absl::OkStatus();
  return ResourceExhausted("files: ", files, " are needed, there are ", there);
}

absl::StatusOr<Machine> BudgetedMachine(const PlanSettings& settings, const Hardware& hardware,
                                        const Trace& trace) {
  const Bytes device = settings.device_memory.value_or(hardware.device_memory);
  if (device < trace.slot_bytes) {
    return ResourceExhausted("the device budget of ", device, " is less than a slot of ",
                             trace.slot_bytes);
  }
  GANTRY_ASSIGN_OR_RETURN(Machine machine,
                          MachineFor(hardware, {.slot_bytes = trace.slot_bytes,
                                                .device_memory = settings.device_memory,
                                                .host_memory = settings.host_memory}));
  Combine(settings, trace, machine);
  return machine;
}

absl::StatusOr<StepForecast> ForecastWith(const PlanSettings& settings, const Hardware& hardware,
                                          Recomputation recomputation) {
  StepForecast step{.recomputation = recomputation, .trace = {}, .machine = {}, .decision = {}};
  GANTRY_ASSIGN_OR_RETURN(step.trace, TraceOf(settings, recomputation, hardware.rates));
  GANTRY_ASSIGN_OR_RETURN(step.machine, BudgetedMachine(settings, hardware, step.trace));
  GANTRY_RETURN_IF_ERROR(CheckFits(step.trace, step.machine));
  GANTRY_ASSIGN_OR_RETURN(step.decision, PlanMovement(step.trace, step.machine,
                                                      {.wait_for_norm = settings.wait_for_norm,
                                                       .activations = PlannerOptions::Activations::kStay}));
  GANTRY_RETURN_IF_ERROR(CheckFiles(settings, hardware, step));
  return step;
}

// Whether some step of this shape fits, with few simulations.
bool Fits(const PlanSettings& settings, const Hardware& hardware) {
  const Recomputation recomputation = settings.recomputation.value_or(Recomputation::kFull);
  StepForecast step{.recomputation = recomputation, .trace = {}, .machine = {}, .decision = {}};
  absl::StatusOr<Trace> trace = TraceOf(settings, recomputation, hardware.rates);
  if (!trace.ok()) return false;
  const absl::StatusOr<Machine> machine = BudgetedMachine(settings, hardware, *trace);
  if (!machine.ok()) return false;
  if (!CheckFits(*trace, *machine).ok()) return false;
  step.trace = *std::move(trace);
  step.machine = *machine;
  // The more states stay on the device, the less must be elsewhere.
  for (const int64_t percent : {0, 40, 80}) {
    const auto chunks = static_cast<int64_t>(step.trace.chunks.size());
    const int64_t states =
        std::max<int64_t>(1, UpdateFactsOf(step.trace, step.trace.chunks.back()).states);
    const PlacementShape shape = {
        .resident = std::min(chunks, step.machine.device_slots / states * percent / 100),
        .host_buffers = 2};
    absl::StatusOr<MovementDecision> decision =
        EvaluateShape(step.trace, step.machine, {.wait_for_norm = settings.wait_for_norm}, shape);
    if (!decision.ok()) continue;
    step.decision = *std::move(decision);
    if (CheckFiles(settings, hardware, step).ok()) return true;
  }
  return false;
}

// ---------------------------------------------------------------- what is around the step

LargestModel FindLargest(const PlanSettings& settings, const Hardware& hardware) {
  LargestModel largest;
  PlanSettings other = settings;
  std::vector<PublishedSize> sizes = PublishedSizes(settings.shape.family);
  std::ranges::reverse(sizes);
  for (const PublishedSize& size : sizes) {
    other.shape = size.shape;
    if (!Fits(other, hardware)) continue;
    largest.published = size.name;
    largest.published_parameters = ParameterCount(size.shape);
    break;
  }
  // The most layers: doubled until they do not fit, then halved in between.
  const auto fits = [&](int64_t layers) {
    other.shape = settings.shape;
    other.shape.layers = layers;
    return layers <= kModelLayersMax && other.shape.Validate().ok() && Fits(other, hardware);
  };
  int64_t enough = fits(settings.shape.layers) ? settings.shape.layers : 0;
  int64_t too_many = enough == 0 ? settings.shape.layers : 2 * enough;
  while (enough > 0 && fits(too_many)) {
    enough = too_many;
    too_many *= 2;
  }
  while (too_many - enough > std::max<int64_t>(1, enough / 64)) {
    const int64_t middle = enough + (too_many - enough) / 2;
    (fits(middle) ? enough : too_many) = middle;
  }
  if (enough == 0) return largest;
  other.shape = settings.shape;
  other.shape.layers = enough;
  largest.layers = enough;
  largest.layers_parameters = ParameterCount(other.shape);
  return largest;
}

struct Upgrade {
  std::string text;
  Hardware hardware;
  PlanSettings settings;
};

// One more drive like those there are; the first one is a PCIe 4 SSD.
absl::StatusOr<Upgrade> OneMoreDrive(const PlanSettings& settings, const Hardware& hardware) {
  Upgrade upgrade{.text = "", .hardware = hardware, .settings = settings};
  Hardware& more = upgrade.hardware;
  if (hardware.file_bytes == Bytes(0)) {
    GANTRY_ASSIGN_OR_RETURN(const Hardware drive, CatalogMachine("rtx4090+gen4"));
    more.file_bytes = drive.file_bytes;
    more.rates.file_read = drive.rates.file_read;
    more.rates.file_write = drive.rates.file_write;
    more.rates.file_duplex = drive.rates.file_duplex;
    upgrade.text = "a drive (PCI Express 4.0 SSD)";
    return upgrade;
  }
  const int64_t drives = settings.drives;
  const auto grow = [drives](int64_t value) { return value / drives * (drives + 1); };
  more.file_bytes = Bytes(grow(more.file_bytes.count()));
  more.rates.file_read.bytes_per_second = grow(more.rates.file_read.bytes_per_second);
  more.rates.file_write.bytes_per_second = grow(more.rates.file_write.bytes_per_second);
  more.rates.file_mixed_bytes_per_second = grow(more.rates.file_mixed_bytes_per_second);
  upgrade.settings.drives = drives + 1;
  upgrade.text = drives == 1 ? "a second drive" : StrCat(drives + 1, " drives instead of ", drives);
  return upgrade;
}

absl::StatusOr<std::vector<Upgrade>> UpgradesOf(const PlanSettings& settings,
                                                const Hardware& hardware) {
  std::vector<Upgrade> upgrades;
  const auto add = [&](std::string text) -> Upgrade& {
    return upgrades.emplace_back(
        Upgrade{.text = std::move(text), .hardware = hardware, .settings = settings});
  };
  const Bytes device = settings.device_memory.value_or(hardware.device_memory);
  Upgrade& more_device = add(
      StrCat(device * 2, " of ", hardware.unified ? "" : "device ", "memory instead of ", device));
  more_device.hardware.device_memory = std::max(hardware.device_memory, device * 2);
  more_device.settings.device_memory = device * 2;
  if (!hardware.unified) {
    const Bytes host = settings.host_memory.value_or(hardware.host_memory);
    Upgrade& more_host = add(StrCat(host * 2, " of host memory instead of ", host));
    more_host.hardware.host_memory = std::max(hardware.host_memory, host * 2);
    more_host.settings.host_memory = host * 2;
    Upgrade& link = add("the next PCI Express generation (copies twice as fast)");
    MachineRates& rates = link.hardware.rates;
    rates.host_to_device.bytes_per_second *= 2;
    rates.device_to_host.bytes_per_second *= 2;
    rates.copy_mixed_bytes_per_second *= 2;
  }
  GANTRY_ASSIGN_OR_RETURN(Upgrade drive, OneMoreDrive(settings, hardware));
  upgrades.push_back(std::move(drive));
  return upgrades;
}

// With as little kept as the settings allow. Of one rank alone.
absl::StatusOr<LeastBudgets> LeastOf(const PlanSettings& settings, const Hardware& hardware) {
  GANTRY_ASSIGN_OR_RETURN(
      const Trace trace,
      TraceOf(settings, settings.recomputation.value_or(Recomputation::kFull), hardware.rates));
  const Machine rates{.unified = hardware.unified, .rates = hardware.rates};
  return FindLeastBudgets(trace, rates, {.wait_for_norm = settings.wait_for_norm});
}

// The step does not fit: what would be the least machine.
absl::Status WithLeast(const absl::Status& why, const PlanSettings& settings,
                       const Hardware& hardware) {
  const absl::StatusOr<LeastBudgets> least = LeastOf(settings, hardware);
  if (!least.ok()) return why;
  const std::string needs =
      hardware.unified
          ? StrCat(least->device, " of memory with ", least->files, " of files")
          : StrCat(least->device, " on the device, and on the host ", least->host_with_files,
                   " with ", least->files, " of files or ", least->host_without_files, " without");
  return ResourceExhausted("'", settings.model_name, "' does not fit '", hardware.name,
                           "': ", Message(why), ". The least that does: ", needs,
                           settings.ranks > 1 ? " (of one rank alone)" : "");
}

Hardware Scaled(Hardware hardware, double compute) {
  hardware.rates.compute_scale *= compute;
  return hardware;
}

UpgradeForecast ResultOf(const Upgrade& upgrade, const absl::StatusOr<StepForecast>& step) {
  UpgradeForecast result{.text = upgrade.text, .seconds = std::nullopt};
  if (step.ok()) {
    result.seconds = step->seconds();
  } else {
    result.reason = Message(step.status());
  }
  return result;
}

void SetWear(const PlanSettings& settings, const Hardware& hardware, Forecast& forecast) {
  const auto lane = static_cast<size_t>(hardware.unified ? SimulatedLane::kDeviceToHost
                                                         : SimulatedLane::kFileWrite);
  const auto written = static_cast<double>(forecast.step.decision.predicted.bytes[lane]);
  const double seconds = forecast.step.seconds() * static_cast<double>(FileShare(settings));
  if (written <= 0.0 || seconds <= 0.0) return;
  forecast.drive_bytes_per_day = written / seconds * kSecondsPerDay;
  forecast.drive_days = settings.drive_terabytes * 1e12 * static_cast<double>(settings.drives) /
                        forecast.drive_bytes_per_day;
}

}  // namespace

absl::StatusOr<StepForecast> ForecastStep(const PlanSettings& settings, const Hardware& hardware) {
  if (settings.recomputation.has_value()) {
    return ForecastWith(settings, hardware, *settings.recomputation);
  }
  absl::StatusOr<StepForecast> full = ForecastWith(settings, hardware, Recomputation::kFull);
  absl::StatusOr<StepForecast> none = ForecastWith(settings, hardware, Recomputation::kNone);
  if (!none.ok()) return full;
  if (!full.ok()) return none;
  return none->seconds() <= full->seconds() ? std::move(none) : std::move(full);
}

absl::StatusOr<Forecast> MakeForecast(const PlanSettings& settings, const Hardware& hardware,
                                      ThreadTeam& team) {
  absl::StatusOr<StepForecast> step = ForecastStep(settings, hardware);
  if (absl::IsResourceExhausted(step.status())) {
    return WithLeast(step.status(), settings, hardware);
  }
  GANTRY_RETURN_IF_ERROR(step.status());
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Upgrade> upgrades, UpgradesOf(settings, hardware));
  Forecast forecast;
  // Each of these plans alone, so they run at once.
  std::vector<std::optional<absl::StatusOr<StepForecast>>> upgraded(upgrades.size());
  absl::StatusOr<LeastBudgets> least = LeastBudgets();
  std::optional<absl::StatusOr<StepForecast>> fast;
  std::optional<absl::StatusOr<StepForecast>> slow;
  PlanSettings same = settings;
  same.recomputation = step->recomputation;
  std::vector<std::function<void()>> tasks = {
      [&] { forecast.largest = FindLargest(settings, hardware); },
      [&] { fast = ForecastStep(same, Scaled(hardware, kComputeFast)); },
      [&] { slow = ForecastStep(same, Scaled(hardware, kComputeSlow)); },
      [&] { least = LeastOf(settings, hardware); },
  };
  for (size_t i = 0; i < upgrades.size(); ++i) {
    tasks.emplace_back(
        [&, i] { upgraded[i] = ForecastStep(upgrades[i].settings, upgrades[i].hardware); });
  }
  team.For({.count = static_cast<int64_t>(tasks.size()), .grain = 1},
           [&tasks](int64_t begin, int64_t end) {
             for (int64_t i = begin; i < end; ++i) tasks[static_cast<size_t>(i)]();
           });
  GANTRY_RETURN_IF_ERROR(least.status());
  GANTRY_RETURN_IF_ERROR(fast->status());
  GANTRY_RETURN_IF_ERROR(slow->status());
  forecast.least = *least;
  forecast.fast_seconds = (*fast)->seconds();
  forecast.slow_seconds = (*slow)->seconds();
  for (size_t i = 0; i < upgrades.size(); ++i) {
    forecast.upgrades.push_back(ResultOf(upgrades[i], *upgraded[i]));
  }
  std::ranges::stable_sort(forecast.upgrades, {}, [](const UpgradeForecast& upgrade) {
    return upgrade.seconds.value_or(std::numeric_limits<double>::infinity());
  });
  forecast.step = *std::move(step);
  forecast.tiers = TierBytesOf(forecast.step.trace, forecast.step.machine, forecast.step.decision);
  DivideAmongRanks(settings, forecast.tiers);
  forecast.bound = ComputeLowerBound(forecast.step.decision.training.problem, {});
  if (!hardware.unified) {
    GANTRY_ASSIGN_OR_RETURN(const FreePlacementInput input,
                            FreePlacementInputOf(forecast.step.trace, forecast.step.machine));
    forecast.free_bound = ComputeFreePlacementBound(input, {}).total;
  }
  SetWear(settings, hardware, forecast);
  return forecast;
}

}  // namespace gantry
