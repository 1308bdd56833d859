#include "nvme/file_lock.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>

#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/describe.h"

namespace gantry {
namespace {

constexpr Nanoseconds kFirstPause = 1'000'000;
constexpr Nanoseconds kLongestPause = 100'000'000;
constexpr Nanoseconds kSecond = 1'000'000'000;

// The name of a file in /proc/locks.
std::string LockedFile(const struct stat& status) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%02x:%02x:%llu", major(status.st_dev),
                minor(status.st_dev), static_cast<unsigned long long>(status.st_ino));
  return text.data();
}

// The process that holds a flock of the file; 0 when nothing tells. Lines are like
// "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1835010 0 EOF", with "->" in the second place for those
// that wait.
int64_t HolderOf(FileCalls& files, int fd) {
  struct stat status{};
  const absl::StatusOr<std::string> locks = ReadFileToString(files, "/proc/locks", 4_MiB);
  if (fstat(fd, &status) != 0 || !locks.ok()) return 0;
  const std::string wanted = LockedFile(status);
  std::istringstream lines(*locks);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, type, advisory, access, file;
    int64_t process = 0;
    words >> number >> type >> advisory >> access >> process >> file;
    if (type == "FLOCK" && file == wanted) return std::max<int64_t>(process, 0);
  }
  return 0;
}

std::string DescribeHolder(FileCalls& files, int fd) {
  const int64_t process = HolderOf(files, fd);
  if (process == 0) return "a process that can't be told from here";
  const absl::StatusOr<std::string> name =
      ReadFileToString(files, StrCat("/proc/", process, "/comm"), 4_KiB);
  if (!name.ok()) return StrCat("process ", process);
  return StrCat("process ", process, " (", name->substr(0, name->find('\n')), ")");
}

}  // namespace

absl::StatusOr<bool> TryLock(OpenedFile file, LockKind kind) {
  const int operation = (kind == LockKind::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  while (flock(file.fd, operation) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) {
      return Internal("'", file.path, "' can't be locked: ", DescribeErrno(errno),
                      "; name a spill directory on a local drive");
    }
  }
  return true;
}

absl::Status Lock(FileCalls& files, Clock& clock, OpenedFile file, LockKind kind) {
  const Nanoseconds end = clock.Now() + kLockPatience;
  for (Nanoseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    GANTRY_ASSIGN_OR_RETURN(const bool locked, TryLock(file, kind));
    if (locked) return absl::OkStatus();
    const Nanoseconds now = clock.Now();
    if (now >= end) {
      return MakeStatus(absl::StatusCode::kDeadlineExceeded, "'", file.path, "' is locked by ",
                        DescribeHolder(files, file.fd), ", and was for ", kLockPatience / kSecond,
                        " s: wait until it has ended, end it, or name another spill directory");
    }
    clock.SleepUntil(std::min(now + pause, end));
  }
}

}  // namespace gantry
