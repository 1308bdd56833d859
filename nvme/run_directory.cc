#include "nvme/run_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/describe.h"
#include "nvme/scratch_file.h"

namespace gantry {
namespace {

constexpr char kPrefix[] = "gantry-";
constexpr char kLockName[] = "lock";
constexpr int kNameTries = 16;
constexpr size_t kRandomDigits = 16;

// gantry-PID-16 hexadecimal digits.
bool IsRunName(std::string_view name) {
  const std::string_view prefix = kPrefix;
  if (name.substr(0, prefix.size()) != prefix) return false;
  name.remove_prefix(prefix.size());
  const size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos || name[digits] != '-') return false;
  name.remove_prefix(digits + 1);
  return name.size() == kRandomDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Locks by flock; returns 0 or an errno. `operation` as for flock.
int Flock(int fd, int operation) {
  while (flock(fd, operation) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

absl::Status LockError(int error_number, const std::string& path) {
  return Internal("'", path, "' can't be locked: ", DescribeErrno(error_number),
                  "; name a spill directory on a local drive");
}

// Names in the directory without "." and "..".
absl::StatusOr<std::vector<std::string>> ListNames(int directory_fd, const std::string& path) {
  // A descriptor of its own: readdir moves the position and closedir closes.
  const int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return DirectoryError(errno, path);
  DIR* directory = fdopendir(fd);
  GANTRY_CHECK(directory != nullptr) << DescribeErrno(errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error_number = errno;
  closedir(directory);
  if (error_number != 0) return DirectoryError(error_number, path);
  return names;
}

struct RunPath {
  int parent_fd;
  int directory_fd;
  std::string name;
  std::string path;  // for messages
};

// Removes the run's files, the lock last (as long as it is there the directory is known as a
// run's), and the directory. Another process may be doing the same, so what is gone already is
// fine.
absl::Status RemoveRun(const RunPath& run) {
  GANTRY_ASSIGN_OR_RETURN(std::vector<std::string> names, ListNames(run.directory_fd, run.path));
  std::erase(names, kLockName);
  names.emplace_back(kLockName);
  for (const std::string& name : names) {
    if (unlinkat(run.directory_fd, name.c_str(), 0) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, StrCat("removing '", run.path, "/", name, "'"));
    }
  }
  if (unlinkat(run.parent_fd, run.name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, StrCat("removing '", run.path, "'"));
  }
  return absl::OkStatus();
}

// Removes parent/name when its run is dead; whether it was.
absl::StatusOr<bool> RemoveIfDead(RunPath run) {
  const FileDescriptor directory(
      openat(run.parent_fd, run.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return false;  // gone, or no directory, or not ours
  struct stat status{};
  if (fstat(directory.get(), &status) != 0 || status.st_uid != geteuid()) return false;
  const FileDescriptor lock(
      openat(directory.get(), kLockName, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (lock.valid()) {
    const int error_number = Flock(lock.get(), LOCK_EX | LOCK_NB);
    if (error_number == EWOULDBLOCK) return false;  // alive
    if (error_number != 0) return LockError(error_number, run.path);
  } else if (errno != ENOENT) {
    return ErrnoStatus(errno, StrCat("opening '", run.path, "/", kLockName, "'"));
  }
  // No lock file: its run died on the way in or out, because the parent is locked against Create.
  run.directory_fd = directory.get();
  GANTRY_RETURN_IF_ERROR(RemoveRun(run));
  return true;
}

}  // namespace

RunDirectory::RunDirectory(Parts parts)
    : parent_fd_(std::move(parts.parent)),
      name_(std::move(parts.name)),
      path_(std::move(parts.path)),
      directory_fd_(std::move(parts.directory)),
      lock_fd_(std::move(parts.lock)),
      owner_(getpid()) {}

absl::StatusOr<std::unique_ptr<RunDirectory>> RunDirectory::Create(const std::string& parent) {
  Parts parts;
  GANTRY_ASSIGN_OR_RETURN(parts.parent, OpenDirectory(parent));
  // Held until the run's own lock is: CleanStale never sees a run without its lock.
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor creating, OpenDirectory(parent));
  const int error_number = Flock(creating.get(), LOCK_SH);
  if (error_number != 0) return LockError(error_number, parent);
  GANTRY_RETURN_IF_ERROR(MakeDirectory(parent, parts));
  const absl::Status locked = TakeLock(parent, parts);
  std::unique_ptr<RunDirectory> run(new RunDirectory(std::move(parts)));
  GANTRY_RETURN_IF_ERROR(locked);  // `run` removes the directory
  return run;
}

absl::Status RunDirectory::MakeDirectory(const std::string& parent, Parts& parts) {
  for (int i = 0; i < kNameTries; ++i) {
    parts.name = StrCat(kPrefix, getpid(), "-", RandomName());
    parts.path = StrCat(parent, "/", parts.name);
    if (mkdirat(parts.parent.get(), parts.name.c_str(), 0700) == 0) break;
    if (errno != EEXIST) return DirectoryError(errno, parent);
    parts.name.clear();
  }
  if (parts.name.empty()) return Internal("no free name for a run in '", parent, "'");
  parts.directory = FileDescriptor(openat(parts.parent.get(), parts.name.c_str(),
                                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (parts.directory.valid()) return absl::OkStatus();
  const int error_number = errno;
  unlinkat(parts.parent.get(), parts.name.c_str(), AT_REMOVEDIR);
  return DirectoryError(error_number, parts.path);
}

absl::Status RunDirectory::TakeLock(const std::string& parent, Parts& parts) {
  parts.lock = FileDescriptor(openat(parts.directory.get(), kLockName,
                                     O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!parts.lock.valid()) return DirectoryError(errno, parent);
  const int error_number = Flock(parts.lock.get(), LOCK_EX | LOCK_NB);
  if (error_number != 0) return LockError(error_number, parts.path);
  char host[256] = "?";
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '?';
  const std::string text = StrCat(getpid(), " ", host, "\n");  // for whoever looks
  const ssize_t written = write(parts.lock.get(), text.data(), text.size());
  if (written < 0) return DirectoryError(errno, parent);
  if (written != static_cast<ssize_t>(text.size())) return DirectoryError(ENOSPC, parent);
  return absl::OkStatus();
}

RunDirectory::~RunDirectory() {
  if (getpid() == owner_) Remove().IgnoreError();
}

absl::Status RunDirectory::Remove() {
  if (removed_) return absl::OkStatus();
  GANTRY_RETURN_IF_ERROR(RemoveRun({.parent_fd = parent_fd_.get(),
                                    .directory_fd = directory_fd_.get(),
                                    .name = name_,
                                    .path = path_}));
  removed_ = true;
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> RunDirectory::CreateFile(const std::string& name,
                                                        int open_flags) const {
  GANTRY_CHECK(name != kLockName);
  return CreateScratchFile({.directory_fd = directory_fd_.get(), .directory = path_, .name = name},
                           open_flags);
}

absl::StatusOr<std::vector<std::string>> RunDirectory::CleanStale(const std::string& parent) {
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor parent_fd, OpenDirectory(parent));
  const int error_number = Flock(parent_fd.get(), LOCK_EX);
  if (error_number != 0) return LockError(error_number, parent);
  GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNames(parent_fd.get(), parent));
  std::vector<std::string> removed;
  absl::Status first_error;
  for (const std::string& name : names) {
    if (!IsRunName(name)) continue;
    const std::string path = StrCat(parent, "/", name);
    const absl::StatusOr<bool> dead = RemoveIfDead(
        {.parent_fd = parent_fd.get(), .directory_fd = -1, .name = name, .path = path});
    if (dead.ok() && *dead) removed.push_back(path);
    if (!dead.ok() && first_error.ok()) first_error = dead.status();
  }
  GANTRY_RETURN_IF_ERROR(first_error);
  return removed;
}

}  // namespace gantry
