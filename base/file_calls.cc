#include "base/file_calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace gantry {
namespace {

// What a call returned, as FileCalls has it.
template <typename Result>
Result OrErrno(Result result) {
  return result < 0 ? static_cast<Result>(-errno) : result;
}

}  // namespace

int PosixFileCalls::Open(int directory, const std::string& path, int flags, int mode) {
  return OrErrno(openat(directory, path.c_str(), flags | O_CLOEXEC, mode));
}

int64_t PosixFileCalls::ReadAt(int fd, std::span<std::byte> buffer, int64_t offset) {
  return OrErrno<int64_t>(pread(fd, buffer.data(), buffer.size(), offset));
}

int64_t PosixFileCalls::WriteAt(int fd, std::span<const std::byte> buffer, int64_t offset) {
  const int64_t written = pwrite(fd, buffer.data(), buffer.size(), offset);
  if (written >= 0 || errno != ESPIPE) return OrErrno(written);
  return OrErrno<int64_t>(write(fd, buffer.data(), buffer.size()));
}

int PosixFileCalls::Sync(int fd, SyncKind kind) {
  return OrErrno(kind == SyncKind::kAll ? fsync(fd) : fdatasync(fd));
}

int PosixFileCalls::Allocate(int fd, int64_t offset, int64_t bytes) {
  return OrErrno(fallocate(fd, 0, offset, bytes));
}

int PosixFileCalls::Rename(int from_directory, const std::string& from, int to_directory,
                           const std::string& to) {
  return OrErrno(renameat(from_directory, from.c_str(), to_directory, to.c_str()));
}

int PosixFileCalls::MakeDirectory(int directory, const std::string& path, int mode) {
  return OrErrno(mkdirat(directory, path.c_str(), static_cast<mode_t>(mode)));
}

int PosixFileCalls::Unlink(int directory, const std::string& path, int flags) {
  return OrErrno(unlinkat(directory, path.c_str(), flags));
}

}  // namespace gantry
