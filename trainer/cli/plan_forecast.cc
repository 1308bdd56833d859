#include "trainer/cli/plan_forecast.h"

#include <algorithm>
#include <cmath>
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
#include "placement_policy/movement_decision.h"
#include "placement_policy/plan_alternatives.h"
#include "placement_policy/planner.h"
#include "placement_policy/published_sizes.h"
#include "placement_policy/simulator.h"
#include "placement_policy/synthetic_layout.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/tier_bytes.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

constexpr double kSecondsPerDay = 86'400.0;
// Another chunk size than the rule's should make a step at least this much shorter.
constexpr double kWorthwhile = 0.98;

std::string Message(const absl::Status& status) { return std::string(FromAbsl(status.message())); }

absl::StatusOr<Trace> TraceOf(const PlanSettings& settings, const StepWay& way,
                              const MachineRates& rates) {
  SyntheticOptions options = settings.step;
  options.order = way.order;
  options.recomputation = way.recomputation;
  options.chunk_elements = way.chunk_elements;
  options.flops_per_second = static_cast<double>(rates.flops_per_second);
  return SyntheticTrace(settings.shape, options);
}

int64_t ChunkElementsOf(const PlanSettings& settings) {
  return settings.chunk_elements > 0 ? settings.chunk_elements
                                     : ChooseSyntheticChunkElements(ParameterCount(settings.shape));
}

// What is compared at one chunk size, the plainest first.
std::vector<StepWay> WaysOf(const PlanSettings& settings) {
  std::vector<MicroBatchOrder> orders = {
      settings.order.value_or(MicroBatchOrder::kMicroBatchMajor)};
  // Training goes layer by layer only where no number depends on it.
  if (!settings.order.has_value() && settings.step.micro_batches > 1 &&
      !settings.shape.tied_embeddings) {
    orders.push_back(MicroBatchOrder::kLayerMajor);
  }
  std::vector<Recomputation> recomputations = {
      settings.recomputation.value_or(Recomputation::kNone)};
  if (!settings.recomputation.has_value()) recomputations.push_back(Recomputation::kFull);
  std::vector<StepWay> ways;
  for (const MicroBatchOrder order : orders) {
    for (const Recomputation recomputation : recomputations) {
      ways.push_back({.order = order,
                      .recomputation = recomputation,
                      .chunk_elements = ChunkElementsOf(settings)});
    }
  }
  return ways;
}

// The way that needs the least memory.
StepWay LeastWayOf(const PlanSettings& settings) {
  StepWay least = WaysOf(settings).front();
  least.recomputation = settings.recomputation.value_or(Recomputation::kFull);
  return least;
}

PlannerOptions PlannerOptionsFor(const PlanSettings& settings) {
  return {
      .wait_for_norm = settings.wait_for_norm, .move_activations = false, .start = settings.start};
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
                        const PlanInput& input, const MovementDecision& decision) {
  const Bytes files = TierBytesOf(input.trace, input.machine, decision).files.total();
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

absl::StatusOr<PlanInput> InputOf(const PlanSettings& settings, const Hardware& hardware,
                                  const StepWay& way) {
  PlanInput input;
  GANTRY_ASSIGN_OR_RETURN(input.trace, TraceOf(settings, way, hardware.rates));
  GANTRY_ASSIGN_OR_RETURN(input.machine, BudgetedMachine(settings, hardware, input.trace));
  return input;
}

// Whether some step of this shape fits, with few simulations.
bool Fits(const PlanSettings& settings, const Hardware& hardware) {
  absl::StatusOr<PlanInput> input = InputOf(settings, hardware, LeastWayOf(settings));
  if (!input.ok() || !CheckFits(input->trace, input->machine).ok()) return false;
  // The more states stay on the device, the less must be elsewhere.
  for (const int64_t percent : {0, 40, 80}) {
    const auto chunks = static_cast<int64_t>(input->trace.chunks.size());
    const int64_t states =
        std::max<int64_t>(1, UpdateFactsOf(input->trace, input->trace.chunks.back()).states);
    const PlacementShape shape = {
        .resident = std::min(chunks, input->machine.device_slots / states * percent / 100),
        .host_buffers = 2};
    const absl::StatusOr<MovementDecision> decision = EvaluateShape(
        input->trace, input->machine, {.wait_for_norm = settings.wait_for_norm}, shape);
    if (!decision.ok()) continue;
    if (CheckFiles(settings, hardware, *input, *decision).ok()) return true;
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
  GANTRY_ASSIGN_OR_RETURN(const Trace trace,
                          TraceOf(settings, LeastWayOf(settings), hardware.rates));
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
  const std::vector<StepWay> ways = WaysOf(settings);
  PlanAlternativesInput alternatives{
      .count = std::ssize(ways),
      .make =
          [&](int64_t number, int64_t coarseness) {
            StepWay way = ways[static_cast<size_t>(number)];
            way.chunk_elements *= coarseness;
            return InputOf(settings, hardware, way);
          },
      .allowed =
          [&](const PlanInput& input, const MovementDecision& decision) {
            return CheckFiles(settings, hardware, input, decision);
          }};
  GANTRY_ASSIGN_OR_RETURN(BestPlan best,
                          PlanAlternatives(alternatives, PlannerOptionsFor(settings)));
  return StepForecast{.way = ways[static_cast<size_t>(best.chosen)],
                      .input = std::move(best.input),
                      .decision = std::move(best.decision),
                      .ways = ways,
                      .tried = std::move(best.tried)};
}

void CompareChunkSizes(const PlanSettings& settings, const Hardware& hardware, StepForecast& step) {
  const int64_t rule = step.way.chunk_elements;
  const PlannerOptions options = PlannerOptionsFor(settings);
  const absl::StatusOr<Nanoseconds> usual =
      TimeWithOtherChunks(step.decision, step.input, step.input, options);
  if (!usual.ok()) return;  // the placement fits only as it is moved
  std::optional<StepForecast> better;
  for (const int64_t size : {rule / 2, 2 * rule}) {
    StepWay way = step.way;
    way.chunk_elements = size;
    const absl::StatusOr<PlanInput> input = InputOf(settings, hardware, way);
    if (!input.ok()) continue;  // too small for a chunk, or too large for the budgets
    const absl::StatusOr<Nanoseconds> time =
        TimeWithOtherChunks(step.decision, step.input, *input, options);
    step.ways.push_back(way);
    step.tried.push_back({.status = time.status()});
    if (!time.ok()) continue;
    const double ratio = static_cast<double>(*time) / static_cast<double>(*usual);
    step.tried.back().predicted =
        std::llround(static_cast<double>(step.decision.predicted.elapsed) * ratio);
    if (ratio > kWorthwhile) continue;
    PlanSettings other = settings;
    other.chunk_elements = size;
    other.order = way.order;
    other.recomputation = way.recomputation;
    absl::StatusOr<StepForecast> planned = ForecastStep(other, hardware);
    if (!planned.ok()) continue;
    step.tried.back() = planned->tried.front();
    const double least = better.has_value() ? better->seconds() : kWorthwhile * step.seconds();
    if (planned->seconds() < least) better = *std::move(planned);
  }
  if (!better.has_value()) return;
  better->ways = std::move(step.ways);
  better->tried = std::move(step.tried);
  step = *std::move(better);
}

absl::StatusOr<Forecast> MakeForecast(const PlanSettings& settings, const Hardware& hardware,
                                      ThreadTeam& team) {
  absl::StatusOr<StepForecast> step = ForecastStep(settings, hardware);
  if (absl::IsResourceExhausted(step.status())) {
    return WithLeast(step.status(), settings, hardware);
  }
  GANTRY_RETURN_IF_ERROR(step.status());
  if (settings.chunk_elements == 0) CompareChunkSizes(settings, hardware, *step);
  PlanSettings sized = settings;
  sized.chunk_elements = step->way.chunk_elements;
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Upgrade> upgrades, UpgradesOf(sized, hardware));
  Forecast forecast;
  // Each of these plans alone, so they run at once.
  std::vector<std::optional<absl::StatusOr<StepForecast>>> upgraded(upgrades.size());
  absl::StatusOr<LeastBudgets> least = LeastBudgets();
  std::optional<absl::StatusOr<StepForecast>> fast;
  std::optional<absl::StatusOr<StepForecast>> slow;
  PlanSettings same = settings;
  same.recomputation = step->way.recomputation;
  same.order = step->way.order;
  same.chunk_elements = step->way.chunk_elements;
  same.start = step->decision.shape;
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
  forecast.tiers =
      TierBytesOf(forecast.step.input.trace, forecast.step.input.machine, forecast.step.decision);
  DivideAmongRanks(settings, forecast.tiers);
  forecast.bound = ComputeLowerBound(forecast.step.decision.training.problem, {});
  for (size_t i = 0; i < forecast.step.ways.size(); ++i) {
    if (forecast.step.ways[i] != forecast.step.way) continue;
    forecast.step.tried[i].bound = forecast.bound.total;
  }
  if (!hardware.unified) {
    GANTRY_ASSIGN_OR_RETURN(
        const FreePlacementInput input,
        FreePlacementInputOf(forecast.step.input.trace, forecast.step.input.machine));
    forecast.free_bound = ComputeFreePlacementBound(input, {}).total;
  }
  SetWear(settings, hardware, forecast);
  return forecast;
}

}  // namespace gantry
