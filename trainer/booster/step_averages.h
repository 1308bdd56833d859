// What steps take on average, beside what their plan said: time, stalls, lanes.
//
// An observer of the run. Thread-compatible, like the trainer that calls it.
#ifndef GANTRY_TRAINER_BOOSTER_STEP_AVERAGES_H_
#define GANTRY_TRAINER_BOOSTER_STEP_AVERAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "gemini/engine.h"
#include "placement_policy/report/step_report.h"
#include "trainer/booster/metrics.h"

namespace gantry {

class StepAverages final : public TrainingObserver {
 public:
  // `key` is that of the training step. The engine outlives this.
  StepAverages(Engine* engine, std::string key) : engine_(engine), key_(std::move(key)) {}

  void OnStart(const RunDescription& description) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnEvaluation(const EvaluationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointMetrics& metrics) override;

  // Of the steps that ran under the plan that is in force now from their begin on, or, without a
  // plan, of all but the first; nothing when there was none. Computing is all that is no waiting.
  std::optional<StepFigures> measured() const;
  // Nothing when no plan is in force.
  std::optional<StepFigures> simulated() const;

 private:
  void Look();  // what happened since the last time belongs to no step

  Engine* engine_;
  std::string key_;
  EngineStatistics before_;
  std::optional<uint64_t> plan_;  // in force when the last step ended; 0: none
  StepFigures sum_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_STEP_AVERAGES_H_
