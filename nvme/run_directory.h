// One run's private directory on a spill drive: PARENT/gantry-PID-RANDOM (0700) with a lock file
// that is flock'ed as long as the run lives and says whose it is (nvme/run_owner.h). Files in it
// (0600) are unlinked as soon as they are open, so a crash leaves an empty directory and its lock
// file, which CleanStale removes. Two runs never share a directory.
//
// PARENT is used as it is given, as mkdtemp does: also a directory that others may write to, with a
// sticky bit or without, or that another user owns, as /tmp and shared scratch drives are. Nothing
// is looked up by path again: names are made exclusively below open directories, and links are
// never followed. So whoever may rename in PARENT can move the directory away or remove it, but
// neither read nor change what the run wrote.
//
// Thread-compatible; CreateFile is thread-safe. Safe against other processes: creation and clean-up
// exclude each other by a lock of PARENT (nvme/file_lock.h), and a run is recognised as dead only
// by taking its own.
#ifndef GANTRY_NVME_RUN_DIRECTORY_H_
#define GANTRY_NVME_RUN_DIRECTORY_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "nvme/run_owner.h"

namespace gantry {

// The directory of a run that does not live here.
struct StaleRun {
  enum class Kind {
    kDead,       // of this machine, and nobody holds its lock
    kElsewhere,  // written by another host, or by nobody we know: left alone
  };
  std::string path;
  Kind kind;
  std::optional<RunOwner> owner;  // nothing where the lock file does not say
  int64_t age;                    // seconds since it started
};

class RunDirectory {
 public:
  // `files` outlives the object. Errors: kNotFound, kInvalidArgument (not a directory),
  // kPermissionDenied (read-only, not writable), kResourceExhausted (full): one line each that says
  // what to do. kInternal when the file system has no locks, and for any other errno.
  // kDeadlineExceeded when somebody cleans `parent` for longer than kLockPatience by `clock`.
  static absl::StatusOr<std::unique_ptr<RunDirectory>> Create(FileCalls* files, Clock& clock,
                                                              const std::string& parent);

  // Removes the directory and everything in it; failures go unreported (see Remove). In a process
  // forked from the one that created it, only closes.
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // The directories in `parent`, of this user only, whose runs are dead or live elsewhere, sorted.
  // A lock that is held is a run that lives, whatever its text says; the lock of another host is
  // not even tried. Waits, as Create, while runs are created there. Errors: as Create, and those of
  // reading.
  static absl::StatusOr<std::vector<StaleRun>> FindStale(FileCalls& files, Clock& clock,
                                                         const std::string& parent);
  // The same, and removes the dead ones. Errors: also those of removing, kFailedPrecondition when a
  // dead run's directory holds another one; what could be removed is removed first.
  static absl::StatusOr<std::vector<StaleRun>> CleanStale(FileCalls& files, Clock& clock,
                                                          const std::string& parent);

  // How the names of one process's directories begin.
  static std::string NamePrefix(pid_t pid);

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
  RunDirectory(FileCalls* files, Parts parts);
  static absl::Status MakeDirectory(FileCalls& files, const std::string& parent, Parts& parts);
  static absl::Status TakeLock(FileCalls& files, const std::string& parent, Parts& parts);

  FileCalls* files_;
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
