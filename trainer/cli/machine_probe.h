// Measures the machine that this runs on, for plans: copy lanes, files, optimizer updates, matrix
// products. The device is the CPU with a memory of its own set aside (device/host, emulated), so
// copies are within the machine's memory.
#ifndef GANTRY_TRAINER_CLI_MACHINE_PROBE_H_
#define GANTRY_TRAINER_CLI_MACHINE_PROBE_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "placement_policy/hardware.h"
#include "trainer/booster/stop_source.h"

namespace gantry {

// kQuick: on little data and shortly: shows that it works, not how fast the machine is.
enum class ProbeEffort { kFull, kQuick };

struct ProbeOptions {
  std::vector<std::string> directories = {};  // of the file tier, all at once; none: there is none
  ProbeEffort effort = ProbeEffort::kFull;
  int threads = 1;                 // of compute
  DType dtype = DType::kBF16;      // of matrix products
  Bytes device_memory = Bytes(0);  // budgets to be written; 0: a quarter and a half of the memory
  Bytes host_memory = Bytes(0);

  // Outlive the call.
  FileCalls* files;
  Clock* clock;
  Logger* logger;
  const StopSource* stop;
  std::function<void(std::string_view)> progress;  // a line about what is measured next
};

// Blocks for some ten seconds (kQuick: less than one). Every figure has a source. Files that are
// made in the directories are gone afterwards.
// Errors: kCancelled when a stop was requested; those of the directories, which name them; of
// memory and threads.
absl::StatusOr<Hardware> MeasureMachine(const ProbeOptions& options);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_MACHINE_PROBE_H_
