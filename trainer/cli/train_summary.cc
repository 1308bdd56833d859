#include "trainer/cli/train_summary.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/strings.h"
#include "device/slot_pool.h"
#include "gemini/engine.h"
#include "offload/transfer_engine.h"
#include "trainer/booster/metrics.h"
#include "trainer/cli/train_report.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const PoolUsage& usage, const char* tier) {
  return {{StrCat(tier, "_budget_bytes"), usage.slot_bytes.count() * usage.slots_total},
          {StrCat(tier, "_peak_bytes"), usage.slot_bytes.count() * usage.slots_peak}};
}

int64_t LaneBytes(const EngineStatistics& statistics, TransferLane lane) {
  return statistics.lanes[static_cast<size_t>(lane)].bytes;
}

// Read and written, over the steps of this run; 0 without files.
double FileBytesPerParameterStep(const TrainingSummary& summary) {
  const int64_t steps = summary.step - summary.first_step;
  if (steps == 0 || summary.parameters == 0 || summary.engine->stripes.empty()) return 0.0;
  const int64_t bytes = LaneBytes(*summary.engine, TransferLane::kFileRead) +
                        LaneBytes(*summary.engine, TransferLane::kFileWrite);
  return static_cast<double>(bytes) /
         (static_cast<double>(summary.parameters) * static_cast<double>(steps));
}

// One line about the file tier; empty without one.
std::string FilesText(const TrainingSummary& summary) {
  if (!summary.engine.has_value() || summary.engine->stripes.empty()) return "";
  const EngineStatistics& engine = *summary.engine;
  std::array<char, 16> per_parameter{};
  std::snprintf(per_parameter.data(), per_parameter.size(), "%.1f",
                FileBytesPerParameterStep(summary));
  return StrCat("files: ", Bytes(LaneBytes(engine, TransferLane::kFileRead)), " read, ",
                Bytes(LaneBytes(engine, TransferLane::kFileWrite)), " written (",
                per_parameter.data(), " bytes a parameter and step) by ", engine.io_backend(),
                engine.direct_io() ? ", direct" : ", buffered",
                engine.store.pieces_verified > 0 ? ", verified" : "", "\n");
}

// One line about what layers save; empty where all of it stays on the device.
std::string LayersText(const TrainingSummary& summary) {
  if (!summary.engine.has_value()) return "";
  const LayerCounts& layers = summary.engine->layers;
  if (layers.recomputed + layers.moved == 0) return "";
  return StrCat("activations of layers: ", layers.kept, " kept, ", layers.recomputed,
                " computed again, ", layers.moved, " moved\n");
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

std::string EarlyText(const TrainingSummary& summary) {
  if (summary.end != RunEnd::kStoppedEarly) return "";
  return StrCat("stopped early after step ", summary.step,
                ": the validation loss no longer falls\n");
}

// One line about the evaluations; empty without one.
std::string ValidationText(const TrainingSummary& summary) {
  if (!summary.validation_last.has_value()) return "";
  std::string text = StrCat("validation loss ", summary.validation_last->loss, ", perplexity ",
                            summary.validation_last->perplexity());
  if (summary.validation_best.has_value()) {
    text += StrCat("; best loss ", summary.validation_best->loss, " after step ",
                   summary.validation_best->step);
  }
  return text + "\n";
}

Json ValidationJson(const TrainingSummary& summary) {
  Json json = {
      {"loss", nullptr}, {"perplexity", nullptr}, {"best_loss", nullptr}, {"best_step", nullptr}};
  if (summary.validation_last.has_value()) {
    json["loss"] = summary.validation_last->loss;
    json["perplexity"] = summary.validation_last->perplexity();
  }
  if (summary.validation_best.has_value()) {
    json["best_loss"] = summary.validation_best->loss;
    json["best_step"] = summary.validation_best->step;
  }
  return json;
}

}  // namespace

std::string SummaryJson(const RunResult& result, const std::vector<std::string>& left_behind) {
  const TrainingSummary& summary = result.summary;
  Json json = {{"command", "train"},
               {"stopped", summary.end == RunEnd::kStopped},
               {"stopped_early", summary.end == RunEnd::kStoppedEarly},
               {"first_step", summary.first_step},
               {"steps", summary.step},
               {"loss_first", OrNull(summary.loss_first)},
               {"loss_last", OrNull(summary.loss_last)},
               {"validation", ValidationJson(summary)},
               {"skipped_steps", summary.skipped_steps},
               {"tokens", summary.tokens},
               {"tokens_per_second", summary.tokens_per_second()},
               {"stall_seconds", static_cast<double>(summary.stall) * 1e-9},
               {"step", ComparisonJson(result.step)},
               {"parameter_hash", summary.parameter_hash},
               {"checkpoint", summary.checkpoint},
               {"left_behind", left_behind}};
  if (summary.engine.has_value()) {
    json.update(ToJson(summary.engine->device, "device"));
    json.update(ToJson(summary.engine->host, "host"));
    json["state_outside_slots_bytes"] = summary.engine->state_outside_slots.count();
    json["nvme_read_bytes"] = LaneBytes(*summary.engine, TransferLane::kFileRead);
    json["nvme_written_bytes"] = LaneBytes(*summary.engine, TransferLane::kFileWrite);
    json["nvme_bytes_per_parameter_step"] = FileBytesPerParameterStep(summary);
    json["io_backend"] = summary.engine->io_backend();
    json["direct_io"] = summary.engine->direct_io();
    json["layers_kept"] = summary.engine->layers.kept;
    json["layers_recomputed"] = summary.engine->layers.recomputed;
    json["layers_moved"] = summary.engine->layers.moved;
    json["updates_speculated"] = summary.engine->updates_speculated;
    json["updates_taken_back"] = summary.engine->updates_taken_back;
    json["store_mismatches"] = summary.engine->store.mismatches;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string SummaryText(const RunResult& result) {
  const TrainingSummary& summary = result.summary;
  if (!summary.loss_first.has_value() || !summary.loss_last.has_value()) {
    return StrCat("nothing to do: ", summary.step,
                  " steps are done; a larger train.steps goes on\n");
  }
  return StrCat("steps ", summary.first_step + 1, " to ", summary.step, ": loss ",
                *summary.loss_first, " -> ", *summary.loss_last, ", ",
                static_cast<int64_t>(summary.tokens_per_second()), " tokens/s, parameters ",
                summary.parameter_hash, "\n", EarlyText(summary), ValidationText(summary),
                LayersText(summary), FilesText(summary), ComparisonText(result.step), result.table);
}

}  // namespace gantry
