#include "nvme/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/file_lock.h"
#include "nvme/run_owner.h"
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

struct RunPath {
  int parent_fd;
  int directory_fd;
  std::string name;
  std::string path;  // for messages
};

// Removes the run's files, the lock last (as long as it is there the directory is known as a
// run's), and the directory; links are removed, not followed. Another process may be doing the
// same, so what is gone already is fine.
absl::Status RemoveRun(FileCalls& files, const RunPath& run) {
  GANTRY_ASSIGN_OR_RETURN(std::vector<std::string> names,
                          ListNames(files, {run.directory_fd, run.path}));
  std::erase(names, kLockName);
  names.emplace_back(kLockName);
  for (const std::string& name : names) {
    const int error = files.Unlink(run.directory_fd, name, 0);
    if (error == -EISDIR) {
      return FailedPrecondition("'", run.path, "/", name,
                                "' is a directory, which no run makes: look what it is, remove it "
                                "yourself, and clean once more");
    }
    if (error != 0 && error != -ENOENT) {
      return ErrnoStatus(-error, StrCat("removing '", run.path, "/", name, "'"));
    }
  }
  const int error = files.Unlink(run.parent_fd, run.name, AT_REMOVEDIR);
  if (error == 0 || error == -ENOENT) return absl::OkStatus();
  return ErrnoStatus(-error, StrCat("removing '", run.path, "'"));
}

// The start of a lock file, or an error that names it.
absl::StatusOr<std::string> ReadLock(FileCalls& files, int fd, const std::string& path) {
  std::array<char, 1024> text{};
  const int64_t got = RetryInterrupted(
      [&] { return files.ReadAt(fd, std::as_writable_bytes(std::span(text)), 0); });
  if (got >= 0) return std::string(text.data(), static_cast<size_t>(got));
  return ErrnoStatus(static_cast<int>(-got), StrCat("reading '", path, "/", kLockName, "'"));
}

// Whether opening a lock file failed because it is none that a run made.
bool IsNoLock(int error_number) {
  return error_number == ELOOP || error_number == ENXIO || error_number == EISDIR ||
         error_number == EACCES || error_number == EPERM;
}

bool IsRegularFile(int fd) {
  struct stat status{};
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

// A run's directory that nobody lives in, as far as can be told here. Holds the lock.
struct FoundRun {
  StaleRun run;
  FileDescriptor directory;
  FileDescriptor lock;
};

// Looks at parent/name; nothing for what is no run's directory, another user's, or alive.
absl::StatusOr<std::optional<FoundRun>> Examine(FileCalls& files, const RunPath& run,
                                                const RunOwner& here) {
  FoundRun found{.run = {.path = run.path, .kind = StaleRun::Kind::kDead, .owner = {}, .age = 0},
                 .directory = {},
                 .lock = {}};
  found.directory =
      FileDescriptor(files.Open(run.parent_fd, run.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
  struct stat status{};
  if (!found.directory.valid() || fstat(found.directory.get(), &status) != 0 ||
      status.st_uid != geteuid()) {
    return std::nullopt;
  }
  int64_t started = status.st_mtime;
  const int lock =
      files.Open(found.directory.get(), kLockName, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
  const bool foreign = lock < 0 ? IsNoLock(-lock) : !IsRegularFile(lock);
  if (lock < 0 && lock != -ENOENT && !foreign) {
    return ErrnoStatus(-lock, StrCat("opening '", run.path, "/", kLockName, "'"));
  }
  found.lock = FileDescriptor(lock);
  if (foreign) {
    found.run.kind = StaleRun::Kind::kElsewhere;  // what it is nobody can tell
  } else if (found.lock.valid()) {
    GANTRY_ASSIGN_OR_RETURN(const std::string text, ReadLock(files, lock, run.path));
    found.run.owner = RunOwner::Parse(text);
    if (found.run.owner.has_value()) started = found.run.owner->started;
    const bool ours =
        text.empty() || (found.run.owner.has_value() && found.run.owner->OnSameMachineAs(here));
    if (ours) {
      GANTRY_ASSIGN_OR_RETURN(const bool locked, TryLock({lock, run.path}, LockKind::kExclusive));
      if (!locked) return std::nullopt;  // alive
    } else {
      found.run.kind = StaleRun::Kind::kElsewhere;
    }
  }
  // No lock file, or an empty one: its run died on the way in or out, because the parent is locked
  // against Create.
  found.run.age = std::max<int64_t>(here.started - started, 0);
  return found;
}

enum class Treatment { kReport, kRemove };

absl::StatusOr<std::vector<StaleRun>> VisitStale(FileCalls& files, Clock& clock,
                                                 const std::string& parent, Treatment treatment) {
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor parent_fd, OpenDirectory(files, parent));
  GANTRY_RETURN_IF_ERROR(Lock(files, clock, {parent_fd.get(), parent}, LockKind::kExclusive));
  GANTRY_ASSIGN_OR_RETURN(std::vector<std::string> names,
                          ListNames(files, {parent_fd.get(), parent}));
  std::sort(names.begin(), names.end());
  const RunOwner here = RunOwner::Current(files);
  std::vector<StaleRun> runs;
  absl::Status first_error;
  for (const std::string& name : names) {
    if (!IsRunName(name)) continue;
    RunPath run{.parent_fd = parent_fd.get(),
                .directory_fd = -1,
                .name = name,
                .path = StrCat(parent, "/", name)};
    const absl::StatusOr<std::optional<FoundRun>> found = Examine(files, run, here);
    absl::Status status = found.status();
    if (status.ok() && !found->has_value()) continue;
    if (status.ok() && (*found)->run.kind == StaleRun::Kind::kDead &&
        treatment == Treatment::kRemove) {
      run.directory_fd = (*found)->directory.get();
      status = RemoveRun(files, run);
    }
    if (status.ok()) runs.push_back((*found)->run);
    if (first_error.ok()) first_error = status;
  }
  GANTRY_RETURN_IF_ERROR(first_error);
  return runs;
}

}  // namespace

RunDirectory::RunDirectory(FileCalls* files, Parts parts)
    : files_(files),
      parent_fd_(std::move(parts.parent)),
      name_(std::move(parts.name)),
      path_(std::move(parts.path)),
      directory_fd_(std::move(parts.directory)),
      lock_fd_(std::move(parts.lock)),
      owner_(getpid()) {}

absl::StatusOr<std::unique_ptr<RunDirectory>> RunDirectory::Create(FileCalls* files, Clock& clock,
                                                                   const std::string& parent) {
  Parts parts;
  GANTRY_ASSIGN_OR_RETURN(parts.parent, OpenDirectory(*files, parent));
  // Held until the run's own lock is: CleanStale never sees a run without its lock.
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor creating, OpenDirectory(*files, parent));
  GANTRY_RETURN_IF_ERROR(Lock(*files, clock, {creating.get(), parent}, LockKind::kShared));
  GANTRY_RETURN_IF_ERROR(MakeDirectory(*files, parent, parts));
  const absl::Status locked = TakeLock(*files, parent, parts);
  std::unique_ptr<RunDirectory> run(new RunDirectory(files, std::move(parts)));
  GANTRY_RETURN_IF_ERROR(locked);  // `run` removes the directory
  return run;
}

absl::Status RunDirectory::MakeDirectory(FileCalls& files, const std::string& parent,
                                         Parts& parts) {
  for (int i = 0; i < kNameTries; ++i) {
    GANTRY_ASSIGN_OR_RETURN(const std::string random, RandomName());
    parts.name = StrCat(NamePrefix(getpid()), random);
    parts.path = StrCat(parent, "/", parts.name);
    const int error = files.MakeDirectory(parts.parent.get(), parts.name, 0700);
    if (error == 0) break;
    if (error != -EEXIST) return DirectoryError(-error, parent);
    parts.name.clear();
  }
  if (parts.name.empty()) return Internal("no free name for a run in '", parent, "'");
  const int fd = RetryInterrupted([&] {
    return files.Open(parts.parent.get(), parts.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
  });
  parts.directory = FileDescriptor(fd);
  if (parts.directory.valid()) return absl::OkStatus();
  files.Unlink(parts.parent.get(), parts.name, AT_REMOVEDIR);
  return DirectoryError(-fd, parts.path);
}

absl::Status RunDirectory::TakeLock(FileCalls& files, const std::string& parent, Parts& parts) {
  const int fd = RetryInterrupted([&] {
    return files.Open(parts.directory.get(), kLockName, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                      0600);
  });
  if (fd < 0) return DirectoryError(-fd, parent);
  parts.lock = FileDescriptor(fd);
  GANTRY_ASSIGN_OR_RETURN(const bool locked, TryLock({fd, parts.path}, LockKind::kExclusive));
  if (!locked) return Internal("another process has locked '", parts.path, "', which is new");
  const std::string line = RunOwner::Current(files).ToLine();
  const int64_t written =
      RetryInterrupted([&] { return files.WriteAt(fd, std::as_bytes(std::span(line)), 0); });
  if (written < 0) return DirectoryError(static_cast<int>(-written), parent);
  if (written != std::ssize(line)) return DirectoryError(ENOSPC, parent);
  return absl::OkStatus();
}

RunDirectory::~RunDirectory() {
  if (getpid() == owner_) Remove().IgnoreError();
}

absl::Status RunDirectory::Remove() {
  if (removed_) return absl::OkStatus();
  GANTRY_RETURN_IF_ERROR(RemoveRun(*files_, {.parent_fd = parent_fd_.get(),
                                             .directory_fd = directory_fd_.get(),
                                             .name = name_,
                                             .path = path_}));
  removed_ = true;
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> RunDirectory::CreateFile(const std::string& name,
                                                        int open_flags) const {
  GANTRY_CHECK(name != kLockName);
  return CreateScratchFile(
      *files_, {.directory_fd = directory_fd_.get(), .directory = path_, .name = name}, open_flags);
}

std::string RunDirectory::NamePrefix(pid_t pid) { return StrCat(kPrefix, pid, "-"); }

absl::StatusOr<std::vector<StaleRun>> RunDirectory::FindStale(FileCalls& files, Clock& clock,
                                                              const std::string& parent) {
  return VisitStale(files, clock, parent, Treatment::kReport);
}

absl::StatusOr<std::vector<StaleRun>> RunDirectory::CleanStale(FileCalls& files, Clock& clock,
                                                               const std::string& parent) {
  return VisitStale(files, clock, parent, Treatment::kRemove);
}

}  // namespace gantry
