// A text file of lines, larger than memory, read by line number: one pass finds where each line
// begins, in memory for one block, and keeps 8 bytes for every line.
//
// Immutable once opened, and thread-safe: lines are read with pread. Owns its descriptor.
#ifndef GANTRY_TRAINER_DATA_LINE_FILE_H_
#define GANTRY_TRAINER_DATA_LINE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"

namespace gantry {

class LineFile {
 public:
  struct Options {
    std::string path;
    Bytes line_bytes_max = 16_MiB;  // longer lines are an error when they are read
  };
  // Reads the whole file once. `files` outlives the result. Errors: kInvalidArgument for a file
  // that is empty or no regular file; those of reading, with the path.
  static absl::StatusOr<std::unique_ptr<LineFile>> Open(FileCalls& files, const Options& options);

  const std::string& path() const { return options_.path; }
  int64_t lines() const { return static_cast<int64_t>(starts_.size()) - 1; }
  // Of all bytes: tells whether it is the same file.
  const std::string& fingerprint() const { return fingerprint_; }

  // Line `line` (from 0) without its end (\n or \r\n) and without a byte-order mark.
  // REQUIRES: 0 <= line < lines(). Errors: kInvalidArgument for a line that is too long; kDataLoss
  // for a file that has changed; those of reading. Each names the file and the line, from 1.
  absl::StatusOr<std::string> Read(int64_t line) const;

 private:
  LineFile(FileCalls& files, Options options, FileDescriptor descriptor)
      : files_(files), options_(std::move(options)), descriptor_(std::move(descriptor)) {}
  absl::Status BuildIndex();

  FileCalls& files_;
  const Options options_;
  const FileDescriptor descriptor_;
  std::vector<int64_t> starts_;  // and where the file ends
  std::string fingerprint_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_LINE_FILE_H_
