#include "trainer/booster/tensor_board_log.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/metrics.h"
#include "trainer/logging/event_file.h"
#include "trainer/logging/event_message.h"

namespace gantry {

void TensorBoardLog::Keep(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

void TensorBoardLog::OnStart(const RunDescription& description) {
  absl::StatusOr<std::unique_ptr<EventFile>> events =
      EventFile::Create({.files = options_.files,
                         .clock = options_.wall_clock,
                         .directory = options_.directory,
                         .host = options_.host,
                         .process = options_.process,
                         .first_step = description.first_step + 1});
  Keep(events.status());
  if (!events.ok()) return;
  events_ = *std::move(events);
  const std::string text = StrCat("```\n", options_.settings, "```\n");
  Keep(events_->AddText(description.first_step, {.tag = "settings", .text = text}));
}

void TensorBoardLog::OnStep(const StepMetrics& metrics) {
  if (events_ == nullptr) return;
  const bool skipped = metrics.outcome == StepResult::Outcome::kSkippedNonFinite;
  const auto bytes = [&](int tier) {
    return static_cast<double>(metrics.tier_bytes[static_cast<size_t>(tier)].count());
  };
  std::vector<ScalarPoint> points = {
      {"train/loss", metrics.loss},
      {"train/learning_rate", metrics.learning_rate},
      {"train/gradient_norm", metrics.gradient_norm},
      {"train/skipped", skipped ? 1.0 : 0.0},
      {"speed/tokens_per_second", metrics.tokens_per_second()},
      {"speed/stall_share", metrics.stall_share()},
      {"memory/device_bytes", bytes(0)},
      {"memory/host_bytes", bytes(1)},
      {"memory/file_bytes", bytes(2)},
  };
  if (metrics.loss_scale.has_value()) points.push_back({"train/loss_scale", *metrics.loss_scale});
  Keep(events_->AddScalars(metrics.step, points));
}

void TensorBoardLog::OnEvaluation(const EvaluationMetrics& metrics) {
  if (events_ == nullptr) return;
  const std::array<ScalarPoint, 2> points = {
      {{"validation/loss", metrics.loss}, {"validation/perplexity", metrics.perplexity()}}};
  Keep(events_->AddScalars(metrics.step, points));
}

// Nothing to show: the folder of checkpoints says it.
void TensorBoardLog::OnCheckpoint(const CheckpointMetrics&) {}

absl::Status TensorBoardLog::Close() {
  if (events_ != nullptr) Keep(std::exchange(events_, nullptr)->Close());
  return status_;
}

}  // namespace gantry
