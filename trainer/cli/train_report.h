// What a training run says of its steps at its end: measured beside simulated, as text, as JSON,
// and as a report to look at (placement_policy/report). Pure but for what they ask of the engine.
#ifndef GANTRY_TRAINER_CLI_TRAIN_REPORT_H_
#define GANTRY_TRAINER_CLI_TRAIN_REPORT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "gemini/engine.h"
#include "placement_policy/report/step_report.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/step_recorder.h"

namespace gantry {

// A step on average.
struct StepComparison {
  std::optional<StepFigures> measured = std::nullopt;
  std::optional<StepFigures> simulated = std::nullopt;  // by the plan in force; nothing: none is
  uint64_t plan_hash = 0;                               // of that
};

// Lines for people; empty when nothing was measured.
std::string ComparisonText(const StepComparison& comparison);
// {"steps", "measured": {...}, "simulated": {...} or null, "ratio", "plan_hash"}; null when nothing
// was measured.
nlohmann::ordered_json ComparisonJson(const StepComparison& comparison);

// `recorder` has the run's steps. Errors: those of simulating the plan's step.
absl::StatusOr<StepReport> TrainStepReport(const RunConfig& config, Engine& engine,
                                           const StepComparison& comparison,
                                           const StepRecorder& recorder);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_TRAIN_REPORT_H_
