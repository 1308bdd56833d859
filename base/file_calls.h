// The file system calls that can fail, behind an interface, so that a test can make the n-th of
// them fail, fall short or be slow.
//
// Results are as the kernel gives them: not negative, or minus errno. Nothing is retried here, not
// even EINTR. `directory` is a descriptor of a directory, or AT_FDCWD.
#ifndef GANTRY_BASE_FILE_CALLS_H_
#define GANTRY_BASE_FILE_CALLS_H_

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gantry {

// Thread-safe. Every call blocks.
class FileCalls {
 public:
  enum class SyncKind { kAll, kData };  // fsync, fdatasync

  virtual ~FileCalls() = default;

  // openat(2) with O_CLOEXEC added: the descriptor, which the caller closes.
  virtual int Open(int directory, const std::string& path, int flags, int mode) = 0;
  // pread(2) and pwrite(2): the bytes moved, maybe fewer than asked for. Pipes and terminals have
  // no offsets: they are written to where they are, as by write(2).
  virtual int64_t ReadAt(int fd, std::span<std::byte> buffer, int64_t offset) = 0;
  virtual int64_t WriteAt(int fd, std::span<const std::byte> buffer, int64_t offset) = 0;
  virtual int Sync(int fd, SyncKind kind) = 0;
  // fallocate(2) with mode 0: reserves space and makes the file at least that long.
  virtual int Allocate(int fd, int64_t offset, int64_t bytes) = 0;
  // renameat(2), mkdirat(2), unlinkat(2).
  virtual int Rename(int from_directory, const std::string& from, int to_directory,
                     const std::string& to) = 0;
  virtual int MakeDirectory(int directory, const std::string& path, int mode) = 0;
  virtual int Unlink(int directory, const std::string& path, int flags) = 0;
};

// The calls themselves. Stateless: whoever needs one makes one. Tests derive from it to change
// single calls.
class PosixFileCalls : public FileCalls {
 public:
  int Open(int directory, const std::string& path, int flags, int mode) override;
  int64_t ReadAt(int fd, std::span<std::byte> buffer, int64_t offset) override;
  int64_t WriteAt(int fd, std::span<const std::byte> buffer, int64_t offset) override;
  int Sync(int fd, SyncKind kind) override;
  int Allocate(int fd, int64_t offset, int64_t bytes) override;
  int Rename(int from_directory, const std::string& from, int to_directory,
             const std::string& to) override;
  int MakeDirectory(int directory, const std::string& path, int mode) override;
  int Unlink(int directory, const std::string& path, int flags) override;
};

// Repeats a call while signals interrupt it.
template <typename Call>
auto RetryInterrupted(Call call) {
  auto result = call();
  while (result == -EINTR) result = call();
  return result;
}

}  // namespace gantry

#endif  // GANTRY_BASE_FILE_CALLS_H_
