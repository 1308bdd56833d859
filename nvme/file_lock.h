// Locks of files and directories by flock(2): they belong to the open file and go with it, also
// when a process is killed. Stateless, thread-safe.
#ifndef GANTRY_NVME_FILE_LOCK_H_
#define GANTRY_NVME_FILE_LOCK_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"

namespace gantry {

enum class LockKind { kShared, kExclusive };

// How long Lock waits for whoever has it. They hold it to create a directory, or to remove some
// with all that is in them.
inline constexpr Nanoseconds kLockPatience = 30'000'000'000;

// Takes the lock if it is free; whether it was. Errors: kInternal when the file system has no
// locks, and for any other errno.
absl::StatusOr<bool> TryLock(OpenedFile file, LockKind kind);

// Takes the lock, and waits for it at most kLockPatience by `clock`. Errors also:
// kDeadlineExceeded, naming the process that holds it where /proc/locks tells.
absl::Status Lock(FileCalls& files, Clock& clock, OpenedFile file, LockKind kind);

}  // namespace gantry

#endif  // GANTRY_NVME_FILE_LOCK_H_
