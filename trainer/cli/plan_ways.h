// The ways to run a step that a forecast compared, for people and for programs. Pure functions.
#ifndef GANTRY_TRAINER_CLI_PLAN_WAYS_H_
#define GANTRY_TRAINER_CLI_PLAN_WAYS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "placement_policy/synthetic_trace.h"
#include "trainer/cli/plan_forecast.h"

namespace gantry {

// A table; empty when there was only one way.
std::string WaysText(const StepForecast& step);

// [{"order", "recompute", "chunk_bytes", "seconds" (null: see "note"), "bound_seconds", "in_full",
// "chosen", "note"}, ...]
nlohmann::ordered_json WaysJson(const StepForecast& step);

std::string_view Name(MicroBatchOrder order);        // as the option --order has it
std::string_view Name(Recomputation recomputation);  // "full" or "none"

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_PLAN_WAYS_H_
