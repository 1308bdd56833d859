// A run that trains in milliseconds, for tests: a model of two small layers, a text file, and the
// plain in-memory store.
#ifndef GANTRY_TRAINER_BOOSTER_TESTING_TINY_RUN_H_
#define GANTRY_TRAINER_BOOSTER_TESTING_TINY_RUN_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "gemini/testing/memory_store.h"
#include "kernels/matmul.h"
#include "trainer/autograd/execution_context.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/run_config.h"

namespace gantry {

// Two layers of width 32 over sequences of 16 bytes of a text written to `directory`.
RunConfig TinyConfig(const std::string& directory);

// What a ParameterStore needs around it. Aborts on errors.
class TinyMachine {
 public:
  explicit TinyMachine(const RunConfig& config);

  ExecutionContext context();
  MonotonicClock& clock() { return clock_; }
  MemoryLogger& logger() { return logger_; }
  MemoryStore& store() { return *store_; }

 private:
  MonotonicClock clock_;
  MemoryLogger logger_;
  DType compute_dtype_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<MatMul> matmul_;
  std::unique_ptr<MemoryStore> store_;
};

// Keeps what it hears, and calls `on_step` after each step.
class RecordingObserver final : public TrainingObserver {
 public:
  void OnStart(const RunDescription& description) override { starts.push_back(description); }
  void OnStep(const StepMetrics& metrics) override {
    steps.push_back(metrics);
    if (on_step) on_step(metrics);
  }
  void OnEvaluation(const EvaluationMetrics& metrics) override { evaluations.push_back(metrics); }
  void OnCheckpoint(const CheckpointMetrics& metrics) override { checkpoints.push_back(metrics); }
  std::vector<double> losses() const;

  std::function<void(const StepMetrics&)> on_step;
  std::vector<RunDescription> starts;
  std::vector<StepMetrics> steps;
  std::vector<EvaluationMetrics> evaluations;
  std::vector<CheckpointMetrics> checkpoints;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_TESTING_TINY_RUN_H_
