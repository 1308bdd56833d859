// What the demonstration found, as a table and as summary.json. Pure functions of plain data.
#ifndef GANTRY_TRAINER_CLI_DEMO_REPORT_H_
#define GANTRY_TRAINER_CLI_DEMO_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "gemini/engine.h"

namespace gantry {

// One of the two runs.
struct DemoRun {
  std::vector<double> losses;  // of all steps
  std::string parameter_hash;
  double tokens_per_second = 0.0;  // without the first step, which also warms up
  double stall_seconds = 0.0;
  EngineStatistics statistics{};
  BudgetReport budget;
};

struct DemoResult {
  int64_t parameters = 0;
  DemoRun budgeted;
  DemoRun resident;
  std::vector<std::string> left_behind;  // by the runs, in words
  std::string sample;                    // text that the budgeted model wrote, with its prompt

  // Whether all losses and all parameters are the same to the bit.
  bool bitwise_equal() const;
  // Speed under the budget as a share of the speed with everything resident.
  double practicality() const;
};

// summary.json: one object with the demonstration's keys.
std::string DemoJson(const DemoResult& result);
std::string DemoTable(const DemoResult& result);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_DEMO_REPORT_H_
