// The file of a checkpoint that holds the states, one behind the other: appended to once, then
// read. Bytes pass through buffers of bounded size. Thread-compatible.
#ifndef GANTRY_TRAINER_CHECKPOINT_STATE_FILE_H_
#define GANTRY_TRAINER_CHECKPOINT_STATE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"

namespace gantry {

// How much of a state is in memory at a time.
inline constexpr Bytes kStatePieceBytes = 4_MiB;

class StateFileWriter {
 public:
  // Creates the file; `files` outlives the object. Errors: as ErrnoStatus.
  static absl::StatusOr<StateFileWriter> Create(FileCalls* files, const std::string& path);

  // Errors: kResourceExhausted when the disk is full, else as ErrnoStatus, with path and offset.
  absl::Status Append(std::span<const std::byte> bytes);
  int64_t bytes() const { return offset_; }
  // Makes it durable and closes it. After an error the file is worth nothing. Errors: as Append.
  absl::Status Finish();

 private:
  StateFileWriter(FileCalls* files, FileDescriptor file, std::string path)
      : files_(files), file_(std::move(file)), path_(std::move(path)) {}

  FileCalls* files_;
  FileDescriptor file_;
  std::string path_;
  int64_t offset_ = 0;
};

class StateFileReader {
 public:
  // `files` outlives the object. Errors: as ErrnoStatus; kDataLoss unless it is a regular file of
  // exactly this size.
  static absl::StatusOr<StateFileReader> Open(FileCalls* files, const std::string& path,
                                              int64_t bytes);

  // Fills `bytes`. Errors: kDataLoss when the file ends before, else as ErrnoStatus.
  absl::Status ReadAt(int64_t offset, std::span<std::byte> bytes) const {
    return ReadAll(*files_, {file_.get(), path_}, offset, bytes);
  }

 private:
  StateFileReader(FileCalls* files, FileDescriptor file, std::string path)
      : files_(files), file_(std::move(file)), path_(std::move(path)) {}

  FileCalls* files_;
  FileDescriptor file_;
  std::string path_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHECKPOINT_STATE_FILE_H_
