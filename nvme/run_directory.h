// One run's private directory on a spill drive: PARENT/gantry-PID-RANDOM (0700) with a lock file
// that is flock'ed as long as the run lives. Files in it are unlinked as soon as they are open, so
// a crash leaves an empty directory and its lock file, which CleanStale of any later run removes.
// Two runs never share a directory.
//
// Thread-compatible; CreateFile is thread-safe. Safe against other processes: creation and clean-up
// exclude each other by a flock on PARENT, and a run is recognised as dead only by taking its lock.
#ifndef GANTRY_NVME_RUN_DIRECTORY_H_
#define GANTRY_NVME_RUN_DIRECTORY_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"

namespace gantry {

class RunDirectory {
 public:
  // Errors: kNotFound, kInvalidArgument (not a directory), kPermissionDenied (read-only, not
  // writable), kResourceExhausted (full): one line each that says what to do. kInternal when the
  // file system has no locks, and for any other errno.
  static absl::StatusOr<std::unique_ptr<RunDirectory>> Create(const std::string& parent);

  // Removes the directory and everything in it; failures go unreported (see Remove). In a process
  // forked from the one that created it, only closes.
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // Removes directories in `parent` whose run is dead, of this user only; returns their paths.
  // Errors: as Create, and those of removing; what could be removed is removed first.
  static absl::StatusOr<std::vector<std::string>> CleanStale(const std::string& parent);

  const std::string& path() const { return path_; }

  // A new file (0600) that is unlinked already; `open_flags` is O_DIRECT or 0. `name` is free again
  // afterwards.
  // Errors: as Create; kInvalidArgument when the file system refuses the flags.
  absl::StatusOr<FileDescriptor> CreateFile(const std::string& name, int open_flags) const;

  // Removes the directory now. Idempotent. Open files stay usable.
  absl::Status Remove();

 private:
  struct Parts {
    FileDescriptor parent;
    std::string name;
    std::string path;
    FileDescriptor directory;
    FileDescriptor lock;
  };
  explicit RunDirectory(Parts parts);
  static absl::Status MakeDirectory(const std::string& parent, Parts& parts);
  static absl::Status TakeLock(const std::string& parent, Parts& parts);

  FileDescriptor parent_fd_;
  std::string name_;
  std::string path_;
  FileDescriptor directory_fd_;
  FileDescriptor lock_fd_;
  pid_t owner_;
  bool removed_ = false;
};

}  // namespace gantry

#endif  // GANTRY_NVME_RUN_DIRECTORY_H_
