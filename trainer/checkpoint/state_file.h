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
#include "base/files.h"

namespace gantry {

// How much of a state is in memory at a time.
inline constexpr Bytes kStatePieceBytes = 4_MiB;

class StateFileWriter {
 public:
  // Creates the file. Errors: as ErrnoStatus.
  static absl::StatusOr<StateFileWriter> Create(const std::string& path);

  // Errors: kResourceExhausted when the disk is full, else as ErrnoStatus, with path and offset.
  absl::Status Append(std::span<const std::byte> bytes);
  int64_t bytes() const { return offset_; }
  // Makes it durable and closes it. Errors: as Append.
  absl::Status Finish();

 private:
  StateFileWriter(FileDescriptor file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}

  FileDescriptor file_;
  std::string path_;
  int64_t offset_ = 0;
};

class StateFileReader {
 public:
  // Errors: as ErrnoStatus; kDataLoss unless it is a regular file of exactly this size.
  static absl::StatusOr<StateFileReader> Open(const std::string& path, int64_t bytes);

  // Fills `bytes`. Errors: kDataLoss when the file ends before, else as ErrnoStatus.
  absl::Status ReadAt(int64_t offset, std::span<std::byte> bytes) const;

 private:
  StateFileReader(FileDescriptor file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}

  FileDescriptor file_;
  std::string path_;
};

// Makes the entries of a directory durable. Errors: as ErrnoStatus.
absl::Status SyncDirectory(const std::string& path);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHECKPOINT_STATE_FILE_H_
