// An observer that keeps what a run tells, and makes of it the table at the run's end.
// Thread-compatible.
#ifndef GANTRY_TRAINER_CLI_RUN_TABLE_H_
#define GANTRY_TRAINER_CLI_RUN_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/booster/metrics.h"

namespace gantry {

class RunTable final : public TrainingObserver {
 public:
  void OnStart(const RunDescription& description) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnEvaluation(const EvaluationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointMetrics& metrics) override;

  // A row each for what was measured: first, last, lowest, highest and mean value. Values that are
  // no numbers show as first and last only. Empty without a step.
  std::string Text() const;

 private:
  struct Row {
    std::string_view name;
    double first;
    double last;
    double lowest;  // of finite values
    double highest;
    double sum;
    int64_t finite;
  };
  void Add(std::string_view name, double value);

  std::vector<Row> rows_;  // in the order of their first values
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_RUN_TABLE_H_
