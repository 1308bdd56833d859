// What a training run prints at its end. Pure functions.
#ifndef GANTRY_TRAINER_CLI_TRAIN_SUMMARY_H_
#define GANTRY_TRAINER_CLI_TRAIN_SUMMARY_H_

#include <string>
#include <vector>

#include "trainer/booster/metrics.h"
#include "trainer/cli/train_report.h"

namespace gantry {

// What a run leaves to tell.
struct RunResult {
  TrainingSummary summary;
  StepComparison step;
  std::string table;  // RunTable::Text
};

// Lines for people.
std::string SummaryText(const RunResult& result);
// One line. `left_behind`: what the run should have removed and did not.
std::string SummaryJson(const RunResult& result, const std::vector<std::string>& left_behind);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_TRAIN_SUMMARY_H_
