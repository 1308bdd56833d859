#include "trainer/checkpoint/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

// ENOSPC and the like, with what was wanted of the disk.
absl::Status WriteError(int error_number, const std::string& path, int64_t offset) {
  absl::Status status = ErrnoStatus(error_number, StrCat("write ", path, " at offset ", offset));
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  return ResourceExhausted("the disk of ", path, " is full after ", offset,
                           " bytes of the checkpoint: free some space or choose another disk");
}

absl::Status Sync(int fd, const std::string& path) {
  while (fsync(fd) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, StrCat("fsync ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StateFileWriter> StateFileWriter::Create(const std::string& path) {
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, 0666));
  return StateFileWriter(std::move(file), path);
}

absl::Status StateFileWriter::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file_.get(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return WriteError(errno, path_, offset_);
    }
    offset_ += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status StateFileWriter::Finish() {
  GANTRY_RETURN_IF_ERROR(Sync(file_.get(), path_));
  return file_.Close();
}

absl::StatusOr<StateFileReader> StateFileReader::Open(const std::string& path, int64_t bytes) {
  // O_NONBLOCK: opening a FIFO must not wait for its other end.
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path, O_RDONLY | O_NONBLOCK, 0));
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, StrCat("stat ", path));
  if (!S_ISREG(info.st_mode)) return DataLoss(path, " is no regular file");
  if (info.st_size != bytes) {
    return DataLoss(
        path, " has ", info.st_size, " bytes where its manifest says ", bytes,
        info.st_size < bytes ? ": it was cut short" : ": it is from another checkpoint");
  }
  return StateFileReader(std::move(file), path);
}

absl::Status StateFileReader::ReadAt(int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = pread(file_.get(), bytes.data(), bytes.size(), offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, StrCat("read ", path_, " at offset ", offset));
    }
    if (got == 0) return DataLoss(path_, " ends at ", offset, ": it was cut short");
    offset += got;
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor directory, OpenFile(path, O_RDONLY | O_DIRECTORY, 0));
  return Sync(directory.get(), path);
}

}  // namespace gantry
