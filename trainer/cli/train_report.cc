#include "trainer/cli/train_report.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/chunk_layout.h"
#include "device/slot_pool.h"
#include "gemini/engine.h"
#include "placement_policy/report/lane_text.h"
#include "placement_policy/report/plan_certificate.h"
#include "placement_policy/report/report_text.h"
#include "placement_policy/report/simulated_timeline.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/simulator.h"
#include "trainer/booster/measured_timeline.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/step_recorder.h"
#include "trainer/booster/trainer.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

double Seconds(Nanoseconds time) { return static_cast<double>(time) * 1e-9; }

double Ratio(Nanoseconds part, Nanoseconds of) {
  return of <= 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(of);
}

std::string HashText(uint64_t hash) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return digits.data();
}

// "12.3 ms for updates", and what was simulated.
std::string WaitsText(const StepComparison& comparison) {
  std::string text;
  for (size_t i = 0; i < kSimulatedStallCount; ++i) {
    const Nanoseconds measured = comparison.measured->stalls[i];
    const Nanoseconds simulated = comparison.simulated ? comparison.simulated->stalls[i] : 0;
    if (measured == 0 && simulated == 0) continue;
    text += StrCat(text.empty() ? "" : ", ", TimeText(measured), " ",
                   Text(static_cast<SimulatedStall>(i)));
    if (comparison.simulated) text += StrCat(" (simulated ", TimeText(simulated), ")");
  }
  return text.empty() ? "waited: never" : "waited: " + text;
}

std::string BusyText(const StepComparison& comparison) {
  const auto percent = [](Nanoseconds busy, const StepFigures& step) {
    return StrCat(Fixed(100.0 * Ratio(busy, step.elapsed), 0), " %");
  };
  std::string text =
      StrCat("computing ", percent(comparison.measured->compute, *comparison.measured));
  if (comparison.simulated) {
    text +=
        StrCat(" (simulated ", percent(comparison.simulated->compute, *comparison.simulated), ")");
  }
  for (size_t i = 0; i < kSimulatedLaneCount; ++i) {
    const Nanoseconds measured = comparison.measured->lanes[i].busy;
    const Nanoseconds simulated = comparison.simulated ? comparison.simulated->lanes[i].busy : 0;
    if (measured == 0 && simulated == 0) continue;
    text += StrCat(", ", Text(static_cast<SimulatedLane>(i)), " ",
                   percent(measured, *comparison.measured));
    if (comparison.simulated) {
      text += StrCat(" (simulated ", percent(simulated, *comparison.simulated), ")");
    }
  }
  return "busy: " + text;
}

Json FiguresJson(const StepFigures& figures) {
  Json stalls = Json::object();
  for (size_t i = 0; i < kSimulatedStallCount; ++i) {
    stalls[std::string(Name(static_cast<SimulatedStall>(i)))] = Seconds(figures.stalls[i]);
  }
  Json busy = Json::object();
  Json bytes = Json::object();
  for (size_t i = 0; i < kSimulatedLaneCount; ++i) {
    const std::string lane(Name(static_cast<SimulatedLane>(i)));
    busy[lane] = Seconds(figures.lanes[i].busy);
    bytes[lane] = figures.lanes[i].bytes;
  }
  return {{"seconds", Seconds(figures.elapsed)},
          {"compute_seconds", Seconds(figures.compute)},
          {"stalls", std::move(stalls)},
          {"busy", std::move(busy)},
          {"bytes", std::move(bytes)}};
}

std::vector<std::string> ChunkNames(const ChunkLayout& layout) {
  std::vector<std::string> names;
  for (int64_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
    std::vector<std::string> tensors;
    for (const TensorSlice& slice : layout.SlicesIn(ChunkId(chunk))) {
      tensors.push_back(layout.tensor(slice.tensor).name);
    }
    names.push_back(JoinTensorNames(tensors));
  }
  return names;
}

Bytes BytesOf(const PoolUsage& usage, int64_t slots) { return usage.slot_bytes * slots; }

// Budgets and peaks of the run, and of the simulated step where there is one.
std::vector<TierFigures> TiersOf(const EngineStatistics& statistics, const StepReport& report) {
  std::vector<TierFigures> tiers;
  const auto add = [&](std::string name, const PoolUsage& usage) {
    tiers.push_back({.name = std::move(name),
                     .budget = BytesOf(usage, usage.slots_total),
                     .measured_peak = BytesOf(usage, usage.slots_peak)});
  };
  const bool unified = statistics.host.slots_total == 0;
  add(unified ? "memory" : "device", statistics.device);
  if (!unified) add("host", statistics.host);
  if (!report.simulated_timeline.has_value()) return tiers;
  for (const TierCurve& curve : report.simulated_timeline->tiers) {
    const Bytes peak = PeakOf(curve, report.simulated_timeline->slot_bytes);
    bool found = false;
    for (TierFigures& tier : tiers) {
      if (tier.name != curve.name) continue;
      tier.simulated_peak = peak;
      found = true;
    }
    if (!found) {
      tiers.push_back({.name = curve.name, .budget = curve.budget, .simulated_peak = peak});
    }
  }
  return tiers;
}

}  // namespace

std::string ComparisonText(const StepComparison& comparison) {
  if (!comparison.measured.has_value()) return "";
  const StepFigures& measured = *comparison.measured;
  std::string text = StrCat("step: ", TimeText(measured.elapsed), ", mean of ", measured.steps);
  if (comparison.simulated) {
    text += StrCat(" under the plan; simulated ", TimeText(comparison.simulated->elapsed), ", ",
                   Fixed(Ratio(measured.elapsed, comparison.simulated->elapsed), 3),
                   " times that; plan ", HashText(comparison.plan_hash));
  } else {
    text += "; no plan";
  }
  return StrCat(text, "\n", WaitsText(comparison), "\n", BusyText(comparison), "\n");
}

Json ComparisonJson(const StepComparison& comparison) {
  if (!comparison.measured.has_value()) return nullptr;
  Json json = {{"steps", comparison.measured->steps},
               {"measured", FiguresJson(*comparison.measured)},
               {"simulated", nullptr},
               {"ratio", nullptr},
               {"plan_hash", nullptr}};
  if (comparison.simulated.has_value() && comparison.simulated->elapsed > 0) {
    json["simulated"] = FiguresJson(*comparison.simulated);
    json["ratio"] = Ratio(comparison.measured->elapsed, comparison.simulated->elapsed);
    json["plan_hash"] = HashText(comparison.plan_hash);
  }
  return json;
}

absl::StatusOr<StepReport> TrainStepReport(const RunConfig& config, Engine& engine,
                                           const StepComparison& comparison,
                                           const StepRecorder& recorder) {
  const EngineStatistics statistics = engine.statistics();
  const PlannedStep* const planned = engine.planned_step(Trainer::kTrainKey);
  StepReport report{.title = "A training run",
                    .subtitle = StrCat("Written by gantry train. Policy ", config.memory.policy,
                                       ", steps of ", TokensPerStep(config.data), " tokens."),
                    .simulated = comparison.simulated,
                    .measured = comparison.measured,
                    .chunk_names = ChunkNames(engine.layout())};
  if (planned != nullptr) {
    report.certificate = PlanCertificate(planned->trace, planned->machine, planned->decision);
    GANTRY_ASSIGN_OR_RETURN(report.simulated_timeline,
                            SimulatedTimeline({.trace = &planned->trace,
                                               .machine = &planned->machine,
                                               .decision = &planned->decision,
                                               .file_bytes = statistics.file_bytes()}));
    report.notes.push_back(
        "The simulated step computes as long as the steps before the plan did, measured.");
  } else {
    report.notes.push_back("No plan was in force at the end: blocks moved on demand.");
  }
  if (const std::optional<RecordedStep> step = recorder.Step(); step.has_value()) {
    report.measured_timeline = MeasuredTimeline(
        {.step = &*step,
         .trace = engine.trace(Trainer::kTrainKey),
         .slot_bytes = statistics.device.slot_bytes,
         .device_budget = BytesOf(statistics.device, statistics.device.slots_total),
         .host_budget = BytesOf(statistics.host, statistics.host.slots_total)});
    report.notes.push_back(
        "The measured timeline is the last step but one. A move begins when it is handed to its "
        "lane, an operator lasts until the next is asked for.");
  }
  report.tiers = TiersOf(statistics, report);
  return report;
}

}  // namespace gantry
