// Whether a command gives back all that its run took: compares descriptors, locked and pinned
// memory, and the spill folders, before the run's parts exist and after they are gone.
#ifndef GANTRY_TRAINER_CLI_EXIT_CHECK_H_
#define GANTRY_TRAINER_CLI_EXIT_CHECK_H_

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/process_resources.h"

namespace gantry {

// Thread-compatible.
class ExitCheck {
 public:
  struct Options {
    // Outlive the check.
    FileCalls* files;
    Clock* clock;
    Logger* logger;
    std::vector<std::string> spill_folders;
  };
  // Looks now. Where the system does not tell, nothing is checked.
  explicit ExitCheck(Options options);

  // What is left of what came after the constructor, told in one warning. What the kernel gives
  // back late (it takes rings and their memory down in the background) has a second to go.
  // REQUIRES: whatever the run owned is destroyed.
  std::vector<std::string> Finish();

 private:
  const Options options_;
  std::vector<WatchedFolder> folders_;
  std::optional<ProcessResources> before_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_EXIT_CHECK_H_
