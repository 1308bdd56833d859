// One training run of the engine on a simulated machine: virtual time, one thread, real bytes. The
// same scenario, seeds and faults give the same run, event by event.
#ifndef GANTRY_TESTS_SIMULATION_SIMULATED_RUN_H_
#define GANTRY_TESTS_SIMULATION_SIMULATED_RUN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/testing/fault_plan.h"
#include "tests/simulation/scenario.h"

namespace gantry {

// What a run computed: the hash of each kind of state.
struct Fingerprint {
  std::array<uint64_t, 4> hashes{};  // parameters, masters, momentum, variance
  bool operator==(const Fingerprint&) const = default;
};

// All state after some steps: in memory, or in a checkpoint directory.
struct SavedState {
  std::string directory;  // empty: in memory
  int64_t steps = 0;
  std::map<std::pair<int, int64_t>, std::vector<std::byte>> values;  // by kind and tensor
};

struct RunOptions {
  const Scenario* scenario;
  uint64_t order_seed = 0;             // of the event loop: which of many orders
  FaultPlan* faults;                   // what fails; counts all operations
  std::string checkpoint_directory;    // for scenarios with a checkpoint on disk
  const SavedState* resume = nullptr;  // null, or of 0 steps: from the beginning
};

struct RunResult {
  absl::Status status;      // of the first call that failed
  Fingerprint fingerprint;  // when it is OK
  SavedState checkpoint;    // the last complete one; of 0 steps: none, as far as this run knows
  int64_t events = 0;
  int64_t updates_speculated = 0;
  int64_t updates_taken_back = 0;
  bool planned = false;     // the last step followed a movement plan
  Nanoseconds end = 0;      // virtual
  std::string left_behind;  // in the spill folders: empty
};

// A run to its end, or to its first error.
RunResult RunSimulated(const RunOptions& options);

// The same model on the store that holds everything in plain memory.
absl::StatusOr<Fingerprint> RunOracle(const Scenario& scenario);

// Whether an engine of this scenario can be sealed. Errors: kResourceExhausted for budgets that are
// too small.
absl::Status TrySeal(const Scenario& scenario);

}  // namespace gantry

#endif  // GANTRY_TESTS_SIMULATION_SIMULATED_RUN_H_
