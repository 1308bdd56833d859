// Small files, whole: read with a size limit, replace atomically; and directories. For
// configuration, manifests, reports. Bulk data goes through nvme/.
//
// The functions are stateless and thread-safe, and block. What can fail goes through a FileCalls;
// calls that a signal interrupts and transfers that fall short are resumed. Errors, unless a
// function says otherwise: as ErrnoStatus, with the operation and the path; kInvalidArgument for a
// path that is empty or holds a zero byte.
#ifndef GANTRY_BASE_FILES_H_
#define GANTRY_BASE_FILES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"

namespace gantry {

// Owns an open file descriptor. Move-only; moved-from is empty. Thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes ownership of `fd`; negative means empty.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  // Closes and forgets errors; call Close where a failed write must be noticed.
  ~FileDescriptor();

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Gives up ownership.
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  // Closes now; the descriptor is empty afterwards, whatever the result. OK when empty.
  absl::Status Close();

 private:
  int fd_ = -1;
};

// open(2) with O_CLOEXEC. `mode` counts for O_CREAT and O_TMPFILE.
absl::StatusOr<FileDescriptor> OpenFile(FileCalls& files, const std::string& path, int flags,
                                        int mode);

// An open file; `path` is for messages.
struct OpenedFile {
  int fd;
  const std::string& path;
};
// Fills `bytes`. Errors also: kDataLoss when the file ends before.
absl::Status ReadAll(FileCalls& files, OpenedFile file, int64_t offset, std::span<std::byte> bytes);
// Writes all of `bytes`. Errors also: kInternal where the file takes no more bytes and no errno
// says why.
absl::Status WriteAll(FileCalls& files, OpenedFile file, int64_t offset,
                      std::span<const std::byte> bytes);
// fsync(2). After an error what was written may be lost, and a second call would not tell: the file
// is worth nothing.
absl::Status SyncFile(FileCalls& files, OpenedFile file);
// Makes the entries of a directory durable.
absl::Status SyncDirectory(FileCalls& files, const std::string& path);
// The names in an open directory, in no order, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListNames(FileCalls& files, OpenedFile directory);

// The content of a regular file. Errors also: kInvalidArgument when `path` is a directory or any
// other thing that is not a regular file, kResourceExhausted when it holds more than `bytes_max`.
absl::StatusOr<std::string> ReadFileToString(FileCalls& files, const std::string& path,
                                             Bytes bytes_max);

// Replaces or creates the file so that a crash at any moment leaves the old content or the new one,
// never a mixture: writes a temporary file in the same directory, syncs it, renames it, syncs the
// directory. A file that exists keeps its permission bits; a symbolic link is replaced, not
// followed. After an error the old content is in place, unless only the directory's sync failed.
// Errors also: kInvalidArgument when `path` exists and is not a regular file or a symbolic link.
absl::Status WriteFileAtomically(FileCalls& files, const std::string& path,
                                 std::span<const std::byte> content);

// Creates one directory; `mode` is subject to the umask. Errors also: kAlreadyExists.
absl::Status MakeDirectory(FileCalls& files, const std::string& path, int mode);
// The same with its parents (0777); fine when it is there already.
absl::Status MakeDirectories(FileCalls& files, const std::string& path);

// Removes the directory and all it holds; symbolic links inside are removed, not followed. Errors
// also: kNotFound, and kInvalidArgument when `path` is not a directory (a link to one is not), is
// the root, or ends in "." or "..". After an error part of the tree may be gone.
absl::Status RemoveTree(FileCalls& files, const std::string& path);

}  // namespace gantry

#endif  // GANTRY_BASE_FILES_H_
