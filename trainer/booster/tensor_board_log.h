// Tells TensorBoard of a run: an observer that writes scalars to an event file, and the run's
// settings as a text.
//
// Tags: train/{loss, learning_rate, gradient_norm, skipped, loss_scale}, validation/{loss,
// perplexity}, speed/{tokens_per_second, stall_share}, memory/{device, host, file}_bytes. A tag's
// step is the number of steps done.
//
// Thread-compatible.
#ifndef GANTRY_TRAINER_BOOSTER_TENSOR_BOARD_LOG_H_
#define GANTRY_TRAINER_BOOSTER_TENSOR_BOARD_LOG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "trainer/booster/metrics.h"
#include "trainer/logging/event_file.h"

namespace gantry {

class TensorBoardLog final : public TrainingObserver {
 public:
  struct Options {
    // Outlive the log.
    FileCalls* files;
    Clock* wall_clock;  // since 1970
    std::string directory;
    std::string host;
    int64_t process;
    std::string settings;  // shown as they are, in a block of code
  };
  explicit TensorBoardLog(Options options) : options_(std::move(options)) {}

  // Makes the event file: which step is the first is known only here.
  void OnStart(const RunDescription& description) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnEvaluation(const EvaluationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointMetrics& metrics) override;

  // At the end of a run. Errors: the first of making or writing the file.
  absl::Status Close();

 private:
  void Keep(const absl::Status& status);

  Options options_;
  std::unique_ptr<EventFile> events_;  // null before the start, and where it could not be made
  absl::Status status_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_TENSOR_BOARD_LOG_H_
