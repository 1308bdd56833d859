// What a run tells while it runs and at its end. Plain data, and the interface that receives it.
#ifndef GANTRY_TRAINER_BOOSTER_METRICS_H_
#define GANTRY_TRAINER_BOOSTER_METRICS_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/tier.h"
#include "gemini/engine.h"
#include "gemini/parameter_store.h"
#include "trainer/checkpoint/manifest.h"

namespace gantry {

// Known once the store is sealed.
struct RunDescription {
  int64_t parameters;  // elements
  int64_t first_step;  // steps done before: 0, or those of the checkpoint
  int64_t steps;       // to do in all
  int64_t tokens_per_step;
  std::string resumed_from = {};  // the checkpoint's path; empty for a fresh start
};

struct StepMetrics {
  int64_t step;  // steps done, this one included
  int64_t steps;
  double loss;  // mean over the step's tokens
  double learning_rate;
  double gradient_norm;
  StepResult::Outcome outcome;
  int64_t tokens;
  Nanoseconds duration;
  Nanoseconds stall;  // of the duration, waiting for memory to move
  std::array<Bytes, kTierCount> tier_bytes{Bytes(0), Bytes(0), Bytes(0)};  // in use now, by Tier
  std::optional<double> loss_scale = std::nullopt;  // of this step, where there is one

  double tokens_per_second() const {
    return duration == 0 ? 0.0 : static_cast<double>(tokens) * 1e9 / static_cast<double>(duration);
  }
  double stall_share() const {
    return duration == 0 ? 0.0 : static_cast<double>(stall) / static_cast<double>(duration);
  }
};

struct EvaluationMetrics {
  int64_t step;
  double loss;  // mean over the scored tokens of the validation sequences
  int64_t tokens;
  bool best = false;  // of all evaluations of the run so far

  double perplexity() const { return std::exp(loss); }
};

struct CheckpointMetrics {
  int64_t step;
  std::string path;
  Nanoseconds duration;
};

// Called on the thread that runs the trainer, between steps.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  virtual void OnStart(const RunDescription& description) = 0;
  virtual void OnStep(const StepMetrics& metrics) = 0;
  virtual void OnEvaluation(const EvaluationMetrics& metrics) = 0;
  virtual void OnCheckpoint(const CheckpointMetrics& metrics) = 0;
};

enum class RunEnd {
  kFinished,
  kStopped,       // somebody asked
  kStoppedEarly,  // the validation loss no longer falls
};

struct TrainingSummary {
  RunEnd end = RunEnd::kFinished;
  int64_t first_step = 0;            // steps done before this run
  int64_t step = 0;                  // steps done at its end
  std::optional<double> loss_first;  // of this run; none when there was no step to do
  std::optional<double> loss_last;
  std::optional<EvaluationMetrics> validation_last;
  std::optional<BestEvaluation> validation_best;  // of the whole run, earlier parts included
  int64_t tokens = 0;
  Nanoseconds duration = 0;  // of the steps
  Nanoseconds stall = 0;
  int64_t skipped_steps = 0;
  int64_t parameters = 0;  // of the model
  std::string parameter_hash;
  std::string checkpoint;  // the last one written or resumed from; empty without one
  std::optional<EngineStatistics> engine;

  double tokens_per_second() const {
    return duration == 0 ? 0.0 : static_cast<double>(tokens) * 1e9 / static_cast<double>(duration);
  }
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_METRICS_H_
