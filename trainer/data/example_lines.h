// The lines of a data set's files, numbered through, and what each is in tokens.
#ifndef GANTRY_TRAINER_DATA_EXAMPLE_LINES_H_
#define GANTRY_TRAINER_DATA_EXAMPLE_LINES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "trainer/data/example_encoder.h"
#include "trainer/data/line_file.h"

namespace gantry {

// Immutable and thread-safe.
class ExampleLines {
 public:
  struct Options {
    std::vector<std::string> files;
    Bytes line_bytes_max = 16_MiB;
    const ExampleEncoder* encoder;  // outlives the lines
  };
  // `files` outlives the result. Errors: those of LineFile::Open; kInvalidArgument for no files, or
  // more than 2^32 - 2 lines.
  static absl::StatusOr<std::unique_ptr<ExampleLines>> Open(FileCalls& files,
                                                            const Options& options);

  int64_t count() const { return firsts_.back(); }

  // Line `line` of all, with nothing for one that is blank. REQUIRES: 0 <= line < count(). Errors:
  // those of LineFile::Read, of ParseExample and of ExampleEncoder, each with file and number.
  absl::StatusOr<std::optional<EncodedExample>> Encode(int64_t line) const;

 private:
  explicit ExampleLines(const ExampleEncoder* encoder) : encoder_(encoder) {}

  const ExampleEncoder* encoder_;
  std::vector<std::unique_ptr<LineFile>> files_;
  std::vector<int64_t> firsts_ = {0};  // line of each file, and the one behind the last
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_EXAMPLE_LINES_H_
