// A forecast for people and for programs. Pure functions.
#ifndef GANTRY_TRAINER_CLI_PLAN_REPORT_H_
#define GANTRY_TRAINER_CLI_PLAN_REPORT_H_

#include <string>

#include "placement_policy/hardware.h"
#include "trainer/cli/plan_forecast.h"

namespace gantry {

std::string PlanText(const PlanSettings& settings, const Hardware& hardware,
                     const Forecast& forecast);

// One line: {"command": "plan", "model", "machine", "settings", "memory", "least", "step", "ways",
// "bound", "wear", "largest", "upgrades", "assumptions"}.
std::string PlanJson(const PlanSettings& settings, const Hardware& hardware,
                     const Forecast& forecast);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_PLAN_REPORT_H_
