// Every number of `gantry demo`, in one place: the model, the budgets, how long it runs.
#ifndef GANTRY_TRAINER_CLI_DEMO_SETTINGS_H_
#define GANTRY_TRAINER_CLI_DEMO_SETTINGS_H_

#include <cstdint>

#include "base/bytes.h"
#include "trainer/booster/run_config.h"

namespace gantry {

enum class DemoLength { kFull, kQuick };

struct DemoSettings {
  RunConfig config;        // of the run under a budget, but for files and folders
  int64_t sample_bytes;    // of text generated at the end
  int64_t steps_per_turn;  // the two runs take turns

  static DemoSettings Make(DemoLength length);
};

// The same run with everything resident on the device. `model_state` and `activations` are what the
// model needs (Engine::budget_report).
MemoryConfig ResidentMemory(const MemoryConfig& budgeted, Bytes model_state, Bytes activations);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_DEMO_SETTINGS_H_
