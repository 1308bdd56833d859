// Observers of a training run: one shows progress on the console, one writes a log of JSON lines;
// and the texts they are made of. Thread-compatible.
#ifndef GANTRY_TRAINER_CLI_REPORTS_H_
#define GANTRY_TRAINER_CLI_REPORTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "trainer/booster/metrics.h"
#include "trainer/cli/console.h"

namespace gantry {

// "1h02m", "3m07s", "12s".
std::string DurationText(Nanoseconds duration);
// "step 3/10  loss 4.1231  512 tokens/s  stall 12%  device 8.0 MiB  host ...  file ...".
std::string StepText(const StepMetrics& metrics);

// A bar that follows every step on a terminal, else a line every `log_every` steps and at the end.
class ProgressReporter final : public TrainingObserver {
 public:
  struct Options {
    Console* console;  // outlives the reporter
    int64_t log_every;
    std::string label;  // stands before each line: "budgeted: "; may be empty
  };
  explicit ProgressReporter(Options options);

  void OnStart(const RunDescription& description) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnEvaluation(const EvaluationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointMetrics& metrics) override;

 private:
  Options options_;
  int64_t first_step_ = 0;
  Nanoseconds elapsed_ = 0;
};

// One JSON object a line: {"event": "step", "step": 3, "loss": ...}. Appends, so that a resumed run
// continues the log.
class JsonLog final : public TrainingObserver {
 public:
  // `files` outlives the log. Errors: those of opening the file.
  static absl::StatusOr<std::unique_ptr<JsonLog>> Open(FileCalls* files, const std::string& path);

  void OnStart(const RunDescription& description) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnEvaluation(const EvaluationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointMetrics& metrics) override;
  // The first error of writing, if any.
  absl::Status status() const { return status_; }

 private:
  JsonLog(FileCalls* files, FileDescriptor file, std::string path);
  void WriteLine(std::string line);

  FileCalls* files_;
  FileDescriptor file_;
  std::string path_;
  absl::Status status_;
};

// Passes everything on.
class ObserverList final : public TrainingObserver {
 public:
  explicit ObserverList(std::vector<TrainingObserver*> observers);

  void OnStart(const RunDescription& description) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnEvaluation(const EvaluationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointMetrics& metrics) override;

 private:
  std::vector<TrainingObserver*> observers_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_REPORTS_H_
