#include "trainer/cli/reports.h"

#include <fcntl.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/tier.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/metrics.h"
#include "trainer/cli/console.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

std::string Fixed(double value, int digits) {
  std::array<char, 64> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return {buffer.data(), static_cast<size_t>(length)};
}

double Seconds(Nanoseconds duration) { return static_cast<double>(duration) * 1e-9; }

std::string_view OutcomeText(StepResult::Outcome outcome) {
  return outcome == StepResult::Outcome::kSkippedNonFinite ? "skipped" : "updated";
}

// JSON has no NaN; "nan" and the like become null by themselves. Paths may be no UTF-8.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// "[#####.....]"
std::string BarText(int64_t done, int64_t total) {
  constexpr int64_t kWidth = 16;
  const int64_t filled = total == 0 ? kWidth : done * kWidth / total;
  return StrCat("[", std::string(static_cast<size_t>(filled), '#'),
                std::string(static_cast<size_t>(kWidth - filled), '.'), "]");
}

}  // namespace

std::string DurationText(Nanoseconds duration) {
  const int64_t seconds = std::llround(Seconds(duration));
  const auto two_digits = [](int64_t n) { return StrCat(n < 10 ? "0" : "", n); };
  if (seconds >= 3600) return StrCat(seconds / 3600, "h", two_digits(seconds / 60 % 60), "m");
  if (seconds >= 60) return StrCat(seconds / 60, "m", two_digits(seconds % 60), "s");
  return StrCat(seconds, "s");
}

std::string StepText(const StepMetrics& metrics) {
  std::string text = StrCat("step ", metrics.step, "/", metrics.steps, "  loss ",
                            Fixed(metrics.loss, 4), "  ", Fixed(metrics.tokens_per_second(), 0),
                            " tokens/s  stall ", Fixed(100 * metrics.stall_share(), 0), "%");
  for (int tier = 0; tier < kTierCount; ++tier) {
    const Bytes bytes = metrics.tier_bytes[static_cast<size_t>(tier)];
    if (bytes > Bytes::Zero()) text += StrCat("  ", Name(static_cast<Tier>(tier)), " ", bytes);
  }
  if (metrics.outcome == StepResult::Outcome::kSkippedNonFinite) {
    text += "  SKIPPED: the gradient is not finite";
  }
  return text;
}

ProgressReporter::ProgressReporter(Options options) : options_(std::move(options)) {}

void ProgressReporter::OnStart(const RunDescription& description) {
  first_step_ = description.first_step;
  elapsed_ = 0;
  std::string text =
      StrCat(options_.label, Fixed(static_cast<double>(description.parameters) * 1e-6, 2),
             " million parameters, ", description.tokens_per_step, " tokens a step, ",
             description.steps, " steps");
  if (!description.resumed_from.empty()) {
    text +=
        StrCat("; resumed after step ", description.first_step, " from ", description.resumed_from);
  }
  options_.console->Line(text);
}

void ProgressReporter::OnStep(const StepMetrics& metrics) {
  elapsed_ += metrics.duration;
  const int64_t done = metrics.step - first_step_;
  const double left = Seconds(elapsed_) / static_cast<double>(done) *
                      static_cast<double>(metrics.steps - metrics.step);
  const std::string text = StrCat(options_.label, StepText(metrics), "  left ",
                                  DurationText(static_cast<Nanoseconds>(left * 1e9)));
  if (options_.console->progress() == Console::Progress::kBar) {
    options_.console->Bar(StrCat(BarText(metrics.step, metrics.steps), " ", text));
  } else if (done == 1 || metrics.step == metrics.steps || metrics.step % options_.log_every == 0) {
    options_.console->Line(text);
  }
}

void ProgressReporter::OnEvaluation(const EvaluationMetrics& metrics) {
  options_.console->Line(StrCat(options_.label, "step ", metrics.step, "  validation loss ",
                                Fixed(metrics.loss, 4), "  perplexity ",
                                Fixed(metrics.perplexity(), 2), metrics.best ? "  best" : ""));
}

void ProgressReporter::OnCheckpoint(const CheckpointMetrics& metrics) {
  options_.console->Line(StrCat(options_.label, "step ", metrics.step, "  saved ", metrics.path,
                                " in ", Fixed(Seconds(metrics.duration), 1), " s"));
}

JsonLog::JsonLog(FileCalls* files, FileDescriptor file, std::string path)
    : files_(files), file_(std::move(file)), path_(std::move(path)) {}

absl::StatusOr<std::unique_ptr<JsonLog>> JsonLog::Open(FileCalls* files, const std::string& path) {
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor file,
                          OpenFile(*files, path, O_WRONLY | O_CREAT | O_APPEND, 0666));
  return std::unique_ptr<JsonLog>(new JsonLog(files, std::move(file), path));
}

void JsonLog::OnStart(const RunDescription& description) {
  WriteLine(Dump({{"event", "start"},
                  {"parameters", description.parameters},
                  {"step", description.first_step},
                  {"steps", description.steps},
                  {"tokens_per_step", description.tokens_per_step},
                  {"resumed_from", description.resumed_from}}));
}

void JsonLog::OnStep(const StepMetrics& metrics) {
  Json scale = nullptr;
  if (metrics.loss_scale.has_value()) scale = *metrics.loss_scale;
  WriteLine(Dump({{"event", "step"},
                  {"step", metrics.step},
                  {"loss", metrics.loss},
                  {"learning_rate", metrics.learning_rate},
                  {"gradient_norm", metrics.gradient_norm},
                  {"outcome", OutcomeText(metrics.outcome)},
                  {"loss_scale", std::move(scale)},
                  {"tokens", metrics.tokens},
                  {"seconds", Seconds(metrics.duration)},
                  {"tokens_per_second", metrics.tokens_per_second()},
                  {"stall_share", metrics.stall_share()},
                  {"device_bytes", metrics.tier_bytes[0].count()},
                  {"host_bytes", metrics.tier_bytes[1].count()},
                  {"file_bytes", metrics.tier_bytes[2].count()}}));
}

void JsonLog::OnEvaluation(const EvaluationMetrics& metrics) {
  WriteLine(Dump({{"event", "evaluation"},
                  {"step", metrics.step},
                  {"loss", metrics.loss},
                  {"perplexity", metrics.perplexity()},
                  {"best", metrics.best},
                  {"tokens", metrics.tokens}}));
}

void JsonLog::OnCheckpoint(const CheckpointMetrics& metrics) {
  WriteLine(Dump({{"event", "checkpoint"},
                  {"step", metrics.step},
                  {"path", metrics.path},
                  {"seconds", Seconds(metrics.duration)}}));
}

void JsonLog::WriteLine(std::string line) {
  line += '\n';
  if (!status_.ok()) return;
  // At the end, whatever the offset: the file is open for appending.
  status_ = WriteAll(*files_, {file_.get(), path_}, 0, std::as_bytes(std::span(line)));
}

ObserverList::ObserverList(std::vector<TrainingObserver*> observers)
    : observers_(std::move(observers)) {}

void ObserverList::OnStart(const RunDescription& description) {
  for (TrainingObserver* observer : observers_) observer->OnStart(description);
}
void ObserverList::OnStep(const StepMetrics& metrics) {
  for (TrainingObserver* observer : observers_) observer->OnStep(metrics);
}
void ObserverList::OnEvaluation(const EvaluationMetrics& metrics) {
  for (TrainingObserver* observer : observers_) observer->OnEvaluation(metrics);
}
void ObserverList::OnCheckpoint(const CheckpointMetrics& metrics) {
  for (TrainingObserver* observer : observers_) observer->OnCheckpoint(metrics);
}

}  // namespace gantry
