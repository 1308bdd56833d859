#include "trainer/checkpoint/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {

absl::StatusOr<StateFileWriter> StateFileWriter::Create(FileCalls* files, const std::string& path) {
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor file,
                          OpenFile(*files, path, O_WRONLY | O_CREAT | O_EXCL, 0666));
  return StateFileWriter(files, std::move(file), path);
}

absl::Status StateFileWriter::Append(std::span<const std::byte> bytes) {
  const absl::Status status = WriteAll(*files_, {file_.get(), path_}, offset_, bytes);
  if (absl::IsResourceExhausted(status)) {
    return ResourceExhausted("the disk of ", path_, " is full after ", offset_,
                             " bytes of the checkpoint: free some space or choose another disk");
  }
  GANTRY_RETURN_IF_ERROR(status);
  offset_ += std::ssize(bytes);
  return absl::OkStatus();
}

absl::Status StateFileWriter::Finish() {
  GANTRY_RETURN_IF_ERROR(SyncFile(*files_, {file_.get(), path_}));
  return file_.Close();
}

absl::StatusOr<StateFileReader> StateFileReader::Open(FileCalls* files, const std::string& path,
                                                      int64_t bytes) {
  // O_NONBLOCK: opening a FIFO must not wait for its other end.
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(*files, path, O_RDONLY | O_NONBLOCK, 0));
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, StrCat("stat ", path));
  if (!S_ISREG(info.st_mode)) return DataLoss(path, " is no regular file");
  if (info.st_size != bytes) {
    return DataLoss(
        path, " has ", info.st_size, " bytes where its manifest says ", bytes,
        info.st_size < bytes ? ": it was cut short" : ": it is from another checkpoint");
  }
  return StateFileReader(files, std::move(file), path);
}

}  // namespace gantry
