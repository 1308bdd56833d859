// What a process holds that can outlive a run by mistake: open descriptors, locked and pinned
// memory, files in given folders. Taken before and after a run, the two say what the run left.
//
//   GANTRY_ASSIGN_OR_RETURN(const auto before, ProcessResources::Take(files, folders));
//   ... a run ...
//   GANTRY_ASSIGN_OR_RETURN(const auto after, ProcessResources::Take(files, folders));
//   for (const std::string& what : LeftBehind(before, after)) ...
//
// Plain data; stateless functions, thread-safe.
#ifndef GANTRY_BASE_PROCESS_RESOURCES_H_
#define GANTRY_BASE_PROCESS_RESOURCES_H_

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"

namespace gantry {

// The entries of a folder whose names begin with `prefix`; others may use the folder, too.
struct WatchedFolder {
  std::string path;
  std::string prefix;
};

struct ProcessResources {
  // What each open descriptor refers to, as the kernel names it ("/d/x (deleted)", "pipe:[7]").
  // Without what lies in /dev, /proc and /sys: libraries keep such open, and runs have nothing
  // there.
  std::map<int, std::string> descriptors;
  Bytes locked = Bytes(0);      // by mlock
  Bytes pinned = Bytes(0);      // by the kernel, for I/O
  std::set<std::string> files;  // paths, from the folders

  // Errors: those of reading /proc or a folder that is there.
  static absl::StatusOr<ProcessResources> Take(FileCalls& files,
                                               std::span<const WatchedFolder> folders);
};

// Each thing that `after` has and `before` had not, in words. What counts is what a descriptor
// refers to, not its number or how many there are: a copy of standard output is nothing new.
std::vector<std::string> LeftBehind(const ProcessResources& before, const ProcessResources& after);

}  // namespace gantry

#endif  // GANTRY_BASE_PROCESS_RESOURCES_H_
