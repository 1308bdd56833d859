// What the program's commands share: how they end, and what they run with.
#ifndef GANTRY_TRAINER_CLI_COMMAND_H_
#define GANTRY_TRAINER_CLI_COMMAND_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/stop_source.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/console.h"

namespace gantry {

inline constexpr char kGantryVersion[] = "0.1.0";
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// How a command ended. An error is told by the caller, in one line.
struct CommandResult {
  int exit_code = 0;
  absl::Status status;
};

// The command line or the config is wrong: nothing was done.
inline CommandResult UsageError(const absl::Status& status) { return {kExitUsage, status}; }
// It was right, but something went wrong on the way.
inline CommandResult Failure(const absl::Status& status) { return {kExitFailure, status}; }

struct CommandContext {
  Console* console;
  FileCalls* files;
  const StopSource* stop;
};

enum class OutputFormat { kText, kJson };
// Takes --json. Errors: as TakeFlag.
absl::StatusOr<OutputFormat> TakeOutputFormat(Arguments& arguments);

// The config of `gantry COMMAND [CONFIG.yaml] [--config=FILE] [--key=value ...]`; takes all words
// and options. Errors: kInvalidArgument, all of them usage.
absl::StatusOr<RunConfig> TakeConfig(FileCalls& files, Arguments& arguments, RunConfig defaults);

// A file where shell users expect it: parent folders are made. Errors: as MakeDirectories.
absl::Status MakeParentDirectories(FileCalls& files, const std::string& path);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_COMMAND_H_
