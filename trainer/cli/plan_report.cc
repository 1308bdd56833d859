#include "trainer/cli/plan_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/strings.h"
#include "placement_policy/hardware.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/machine.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/model_structure.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/planner.h"
#include "placement_policy/report/lane_text.h"
#include "placement_policy/simulator.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/tier_bytes.h"
#include "trainer/cli/plan_forecast.h"
#include "trainer/cli/plan_ways.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

template <typename... Arguments>
std::string Print(const char* format, Arguments... arguments) {
  std::array<char, 256> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), format, arguments...);
  return {buffer.data(), std::min(static_cast<size_t>(length), buffer.size() - 1)};
}

double Seconds(Nanoseconds time) { return static_cast<double>(time) * 1e-9; }

// "82.6 T" of a unit.
std::string Metric(double count) {
  if (count >= 1e12) return Print("%.3g T", count / 1e12);
  if (count >= 1e9) return Print("%.3g G", count / 1e9);
  if (count >= 1e6) return Print("%.3g M", count / 1e6);
  return Print("%.0f ", count);
}

std::string Parameters(int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  if (count >= 1e9) return Print("%.1f billion parameters", count / 1e9);
  return Print("%.1f million parameters", count / 1e6);
}

std::string Time(double seconds) {
  if (seconds >= 1.0) return Print("%.3g s", seconds);
  return Print("%.3g ms", seconds * 1e3);
}

std::string Days(double days) {
  if (days >= 2 * 365.25) return Print("%.0f years", days / 365.25);
  if (days < 10.0) return Print("%.1f days", days);
  return Print("%.0f days", days);
}

int64_t TokensOf(const PlanSettings& settings) {
  return settings.step.sequences * settings.step.sequence_length * settings.step.micro_batches *
         settings.ranks;
}

std::string_view NormText(const PlanSettings& settings) {
  return settings.wait_for_norm ? "updates wait for the gradient norm"
                                : "updates do not wait for the gradient norm";
}

std::string_view LimitText(LowerBound::Limit limit) {
  switch (limit) {
    case LowerBound::Limit::kCompute:
      return "computing";
    case LowerBound::Limit::kHostToDevice:
      return "copies to the device";
    case LowerBound::Limit::kDeviceToHost:
      return "copies from the device";
    case LowerBound::Limit::kLink:
      return "copies, both ways";
    case LowerBound::Limit::kHostUpdate:
      return "updates on the host";
    case LowerBound::Limit::kFileRead:
      return "file reads";
    case LowerBound::Limit::kFileWrite:
      return "file writes";
    case LowerBound::Limit::kFiles:
      return "files, reads and writes";
    case LowerBound::Limit::kPath:
      return "when blocks can be there at the earliest";
  }
  return "?";
}

std::string PlacementText(const Forecast& forecast) {
  const PlacementShape& shape = forecast.step.decision.shape;
  int64_t updated = 0;
  for (const int32_t gradient : forecast.step.decision.training.gradient) {
    updated += gradient >= 0 ? 1 : 0;
  }
  const int64_t on_device =
      forecast.step.input.machine.unified ? updated : shape.resident + shape.streamed;
  std::string text = StrCat(updated - on_device, " of ", updated, " chunks updated on the host, ",
                            on_device, " on the device");
  if (shape.in_files > 0) text += StrCat(", states of ", shape.in_files, " in files");
  return text;
}

// What must be believed for the forecast to hold.
std::vector<std::string> Assumptions(const PlanSettings& settings, const Hardware& hardware) {
  const auto source = [&hardware](const char* field) {
    const auto found = hardware.sources.find(field);
    return found == hardware.sources.end() ? std::string("no source given") : found->second;
  };
  const MachineRates& rates = hardware.rates;
  std::vector<std::string> lines = {
      StrCat("computing: ", Metric(static_cast<double>(rates.flops_per_second)),
             "FLOP/s in every operator (", source("device.flops_per_second"),
             "); the range is for 0.7 to 1.3 times the time"),
      StrCat("host updates: ", Metric(static_cast<double>(rates.host_update_bytes_per_second)),
             "B/s (", source("host.update_bytes_per_second"), ")"),
      "AdamW: parameters and gradients in 2 bytes, master, momentum and variance in 4 each",
      "not simulated: launch gaps, updates and copies that share the host's memory"};
  if (!hardware.unified) {
    lines.insert(
        lines.begin() + 1,
        StrCat("copies: ", Metric(static_cast<double>(rates.host_to_device.bytes_per_second)),
               "B/s to the device (", source("copies.host_to_device.bytes_per_second"), ")"));
  }
  if (settings.ranks > 1) {
    lines.push_back(
        settings.zero_stage == 0
            ? std::string("ranks: gradients are summed at no cost")
            : StrCat("ZeRO-", settings.zero_stage, " over ", settings.ranks,
                     " ranks, each with such a machine: what a rank does not hold comes from the "
                     "others, and goes to them, at the rate of its copy lanes"));
  }
  return lines;
}

// ---- Text

std::string TierLine(std::string_view name, const KindBytes& bytes, std::string_view there) {
  const auto cell = [](Bytes value) {
    return value == Bytes(0) ? std::string("-") : StrCat(value);
  };
  return Print("  %-9s %11s %11s %11s %11s %11s %11s  ", std::string(name).c_str(),
               cell(bytes.parameters).c_str(), cell(bytes.gradients).c_str(),
               cell(bytes.states).c_str(), cell(bytes.activations).c_str(),
               cell(bytes.buffers).c_str(), cell(bytes.total()).c_str()) +
         std::string(there) + "\n";
}

std::string MemoryText(const PlanSettings& settings, const Hardware& hardware,
                       const Forecast& forecast) {
  std::string text = Print("  %-9s %11s %11s %11s %11s %11s %11s  %s\n", "memory", "parameters",
                           "gradients", "states", "activations", "buffers", "together", "of");
  const Bytes device = settings.device_memory.value_or(hardware.device_memory);
  const Bytes host = settings.host_memory.value_or(hardware.host_memory);
  text += TierLine(hardware.unified ? "memory" : "device", forecast.tiers.device, StrCat(device));
  if (!hardware.unified) text += TierLine("host", forecast.tiers.host, StrCat(host));
  if (hardware.file_bytes > Bytes(0)) {
    text += TierLine("files", forecast.tiers.files, StrCat(hardware.file_bytes));
  }
  const LeastBudgets& least = forecast.least;
  if (hardware.unified) {
    text += StrCat("  least     ", least.device, " of memory, with ", least.files, " of files\n");
  } else {
    text +=
        StrCat("  least     ", least.device, " on the device; on the host ", least.host_with_files,
               " with ", least.files, " of files, or ", least.host_without_files, " without\n");
  }
  return text + "\n";
}

// What is busy the longest: a lane, or computing.
struct Busiest {
  std::string_view name;
  std::string_view text;
  double seconds;
};
Busiest BusiestOf(const Forecast& forecast) {
  const SimulatedStep& step = forecast.step.decision.predicted;
  const auto busy = [&step](SimulatedLane lane) {
    return Seconds(step.busy[static_cast<size_t>(lane)]);
  };
  Busiest busiest = {"compute", "computing", Seconds(step.compute)};
  const auto consider = [&busiest](std::string_view name, std::string_view text, double seconds) {
    if (seconds > busiest.seconds) busiest = {name, text, seconds};
  };
  for (int i = 0; i < kSimulatedLaneCount; ++i) {
    const auto lane = static_cast<SimulatedLane>(i);
    consider(Name(lane), Text(lane), busy(lane));
  }
  // Lanes that take turns are one resource.
  const MovementProblem& problem = forecast.step.decision.training.problem;
  if (problem.file_half_duplex) {
    consider("files", "files, reads and writes",
             busy(SimulatedLane::kFileRead) + busy(SimulatedLane::kFileWrite));
  }
  if (problem.link_half_duplex) {
    consider("link", "copies, both ways",
             busy(SimulatedLane::kHostToDevice) + busy(SimulatedLane::kDeviceToHost));
  }
  return busiest;
}

std::string LanesText(const SimulatedStep& step, double seconds) {
  std::string busy;
  for (int i = 0; i < kSimulatedLaneCount; ++i) {
    const auto lane = static_cast<size_t>(i);
    if (step.busy[lane] == 0) continue;
    busy += StrCat(", ", Text(static_cast<SimulatedLane>(i)), " ",
                   Print("%.0f %%", 100.0 * Seconds(step.busy[lane]) / seconds));
  }
  return StrCat("  busy      computing ", Print("%.0f %%", 100.0 * Seconds(step.compute) / seconds),
                busy, " of the step\n");
}

std::string WaitingText(const SimulatedStep& step, double seconds) {
  std::string waits;
  for (int i = 0; i < kSimulatedStallCount; ++i) {
    const double stall = Seconds(step.stalls[static_cast<size_t>(i)]);
    if (stall < 0.0005 * seconds) continue;
    waits +=
        StrCat(waits.empty() ? "" : ", ", Time(stall), " ", Text(static_cast<SimulatedStall>(i)));
  }
  return StrCat("  waiting   ", waits.empty() ? "hardly ever" : waits, "\n");
}

std::string SpeedText(const PlanSettings& settings, const Forecast& forecast) {
  const SimulatedStep& step = forecast.step.decision.predicted;
  const double seconds = forecast.step.seconds();
  const auto tokens = static_cast<double>(TokensOf(settings));
  std::string text =
      StrCat("  step      ", Time(seconds), "  (", Time(forecast.fast_seconds), " to ",
             Time(forecast.slow_seconds), " when computing takes 0.7 to 1.3 times as long)\n");
  text += StrCat("  tokens/s  ", Print("%.4g", tokens / seconds), "  (",
                 Print("%.4g", tokens / forecast.slow_seconds), " to ",
                 Print("%.4g", tokens / forecast.fast_seconds), ")\n");
  text += LanesText(step, seconds);
  text += WaitingText(step, seconds);
  const double bound = Seconds(forecast.bound.total);
  text += StrCat("  limit     ", BusiestOf(forecast).text, "\n");
  text += StrCat("  bound     ", Time(bound), ", from ", LimitText(forecast.bound.limit),
                 "; the step takes ", Print("%.4f", seconds / bound), " times that\n");
  text += StrCat("            for this placement: ", PlacementText(forecast), "; ",
                 NormText(settings), "\n");
  if (forecast.free_bound > 0) {
    text += StrCat("            for any placement: ", Time(Seconds(forecast.free_bound)),
                   "; the step takes ", Print("%.4f", seconds / Seconds(forecast.free_bound)),
                   " times that\n");
  }
  text += "\n";
  return text;
}

std::string WearText(const PlanSettings& settings, const Forecast& forecast) {
  if (forecast.drive_bytes_per_day <= 0.0) return "";
  return StrCat("  drives    ",
                Print("%.*f TB", forecast.drive_bytes_per_day < 1e13 ? 2 : 0,
                      forecast.drive_bytes_per_day / 1e12),
                " written in a day of training; ", settings.drives,
                settings.drives == 1 ? " drive" : " drives", " of ",
                Print("%.0f", settings.drive_terabytes), " TBW last ", Days(forecast.drive_days),
                "\n\n");
}

std::string LargestText(const PlanSettings& settings, const Forecast& forecast) {
  const LargestModel& largest = forecast.largest;
  const std::string published = largest.published.empty() ? std::string("none") : largest.published;
  return StrCat("  largest   of the published sizes of ", Name(settings.shape.family), ": ",
                published, "; with this model's width: ", largest.layers, " layers (",
                Parameters(largest.layers_parameters), ")\n\n");
}

std::string UpgradesText(const Forecast& forecast) {
  std::string text = "  what the next upgrade would buy\n";
  const double before = forecast.step.seconds();
  for (const UpgradeForecast& upgrade : forecast.upgrades) {
    if (upgrade.seconds.has_value()) {
      text += StrCat("  ", Print("%+8.1f %%", 100.0 * (before / *upgrade.seconds - 1.0)), "  ",
                     upgrade.text, " (", Time(*upgrade.seconds), ")\n");
    } else {
      text += StrCat("         -    ", upgrade.text, ": ", upgrade.reason, "\n");
    }
  }
  return text + "\n";
}

// ---- JSON

Json KindsJson(const KindBytes& bytes) {
  return {{"parameters", bytes.parameters.count()}, {"gradients", bytes.gradients.count()},
          {"states", bytes.states.count()},         {"activations", bytes.activations.count()},
          {"buffers", bytes.buffers.count()},       {"total", bytes.total().count()}};
}

Json StepJson(const PlanSettings& settings, const Forecast& forecast) {
  const SimulatedStep& step = forecast.step.decision.predicted;
  const double seconds = forecast.step.seconds();
  const auto tokens = static_cast<double>(TokensOf(settings));
  Json stalls = Json::object();
  for (int i = 0; i < kSimulatedStallCount; ++i) {
    stalls[std::string(Name(static_cast<SimulatedStall>(i)))] =
        Seconds(step.stalls[static_cast<size_t>(i)]);
  }
  Json busy = Json::object();
  for (int i = 0; i < kSimulatedLaneCount; ++i) {
    busy[std::string(Name(static_cast<SimulatedLane>(i)))] =
        Seconds(step.busy[static_cast<size_t>(i)]);
  }
  return {{"seconds", seconds},
          {"seconds_low", forecast.fast_seconds},
          {"seconds_high", forecast.slow_seconds},
          {"tokens", TokensOf(settings)},
          {"tokens_per_second", tokens / seconds},
          {"tokens_per_second_low", tokens / forecast.slow_seconds},
          {"tokens_per_second_high", tokens / forecast.fast_seconds},
          {"compute_seconds", Seconds(step.compute)},
          {"limit", BusiestOf(forecast).name},
          {"order", Name(forecast.step.way.order)},
          {"recompute", Name(forecast.step.way.recomputation)},
          {"steady", step.steady},
          {"stalls", std::move(stalls)},
          {"busy", std::move(busy)},
          {"plan_hash",
           Print("%016llx", static_cast<unsigned long long>(forecast.step.decision.hash))}};
}

Json BoundJson(const PlanSettings& settings, const Forecast& forecast) {
  const PlacementShape& shape = forecast.step.decision.shape;
  const double bound = Seconds(forecast.bound.total);
  return {{"seconds", bound},
          {"ratio", bound > 0.0 ? Json(forecast.step.seconds() / bound) : Json(nullptr)},
          {"limit", Name(forecast.bound.limit)},
          {"any_placement_seconds",
           forecast.free_bound > 0 ? Json(Seconds(forecast.free_bound)) : Json(nullptr)},
          {"norm", NormText(settings)},
          {"placement",
           {{"resident", shape.resident},
            {"streamed", shape.streamed},
            {"next_forward", shape.next_forward},
            {"in_files", shape.in_files},
            {"host_buffers", shape.host_buffers}}}};
}

Json UpgradesJson(const Forecast& forecast) {
  Json upgrades = Json::array();
  for (const UpgradeForecast& upgrade : forecast.upgrades) {
    Json json = {{"upgrade", upgrade.text}};
    if (upgrade.seconds.has_value()) {
      json["seconds"] = *upgrade.seconds;
      json["gain"] = forecast.step.seconds() / *upgrade.seconds - 1.0;
    } else {
      json["seconds"] = nullptr;
      json["note"] = upgrade.reason;
    }
    upgrades.push_back(std::move(json));
  }
  return upgrades;
}

}  // namespace

std::string PlanText(const PlanSettings& settings, const Hardware& hardware,
                     const Forecast& forecast) {
  const ModelShape& shape = settings.shape;
  std::string text = StrCat(
      "\n", settings.model_name, ": ", Name(shape.family), ", ", Parameters(ParameterCount(shape)),
      ", ", shape.layers, " layers of width ", shape.width, "\non ", hardware.name, ": ",
      hardware.device, "\nsteps of ", TokensOf(settings), " tokens: ", settings.step.micro_batches,
      " micro-batches of ", settings.step.sequences, " x ", settings.step.sequence_length,
      settings.ranks > 1 ? StrCat(" on each of ", settings.ranks, " ranks") : std::string(),
      settings.step.lora_rank > 0 ? StrCat(", LoRA of rank ", settings.step.lora_rank)
                                  : std::string(),
      ", recomputing ", Name(forecast.step.way.recomputation), "\n\n");
  text += MemoryText(settings, hardware, forecast);
  text += SpeedText(settings, forecast);
  text += WaysText(forecast.step);
  text += WearText(settings, forecast);
  text += LargestText(settings, forecast);
  text += UpgradesText(forecast);
  text += "  simulated, assuming\n";
  for (const std::string& line : Assumptions(settings, hardware))
    text += StrCat("  - ", line, "\n");
  return text + "\n";
}

std::string PlanJson(const PlanSettings& settings, const Hardware& hardware,
                     const Forecast& forecast) {
  const ModelShape& shape = settings.shape;
  const LeastBudgets& least = forecast.least;
  Json memory = {{"device", KindsJson(forecast.tiers.device)}};
  if (!hardware.unified) memory["host"] = KindsJson(forecast.tiers.host);
  if (hardware.file_bytes > Bytes(0)) memory["files"] = KindsJson(forecast.tiers.files);
  const Json json = {
      {"command", "plan"},
      {"model",
       {{"name", settings.model_name},
        {"family", Name(shape.family)},
        {"parameters", ParameterCount(shape)},
        {"layers", shape.layers},
        {"width", shape.width}}},
      {"machine", hardware.name},
      {"settings",
       {{"sequence_length", settings.step.sequence_length},
        {"sequences", settings.step.sequences},
        {"micro_batches", settings.step.micro_batches},
        {"lora_rank", settings.step.lora_rank},
        {"ranks", settings.ranks},
        {"zero_stage", settings.zero_stage},
        {"chunk_slot_bytes", forecast.step.input.machine.slot_bytes.count()}}},
      {"memory", std::move(memory)},
      {"least",
       {{"device", least.device.count()},
        {"host_with_files", least.host_with_files.count()},
        {"host_without_files", least.host_without_files.count()},
        {"files", least.files.count()}}},
      {"step", StepJson(settings, forecast)},
      {"ways", WaysJson(forecast.step)},
      {"bound", BoundJson(settings, forecast)},
      {"wear",
       {{"bytes_written_per_day", forecast.drive_bytes_per_day},
        {"drive_terabytes", settings.drive_terabytes},
        {"drives", settings.drives},
        {"days", forecast.drive_days > 0.0 ? Json(forecast.drive_days) : Json(nullptr)}}},
      {"largest",
       {{"published",
         forecast.largest.published.empty() ? Json(nullptr) : Json(forecast.largest.published)},
        {"published_parameters", forecast.largest.published_parameters},
        {"layers", forecast.largest.layers},
        {"layers_parameters", forecast.largest.layers_parameters}}},
      {"upgrades", UpgradesJson(forecast)},
      {"assumptions", Assumptions(settings, hardware)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gantry
