// What `gantry plan` found, as a report to look at: a page and a trace (placement_policy/report).
#ifndef GANTRY_TRAINER_CLI_PLAN_PAGE_H_
#define GANTRY_TRAINER_CLI_PLAN_PAGE_H_

#include "absl/status/statusor.h"
#include "placement_policy/hardware.h"
#include "placement_policy/report/step_report.h"
#include "trainer/cli/plan_forecast.h"

namespace gantry {

// Simulates the step once more. Errors: those of the simulation.
absl::StatusOr<StepReport> PlanStepReport(const PlanSettings& settings, const Hardware& hardware,
                                          const Forecast& forecast);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_PLAN_PAGE_H_
