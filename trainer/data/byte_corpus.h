// Text as training data: the bytes of one or several files, one behind the other, are the tokens
// (0..255), so any file works. The last part may be set aside for validation.
//
// The text is read into memory, at most kTextBytesMax. A copy is preferred to a file mapping: a
// file that another program shortens while we train would end the run with a bus error, and the
// text must not change between steps if a resumed run is to repeat it.
//
// Movable; immutable after Load, so any thread may read it. Owns the text.
#ifndef GANTRY_TRAINER_DATA_BYTE_CORPUS_H_
#define GANTRY_TRAINER_DATA_BYTE_CORPUS_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"

namespace gantry {

inline constexpr Bytes kTextBytesMax = 1_GiB;  // of all files together
inline constexpr int64_t kByteVocabulary = 256;

class ByteCorpus {
 public:
  struct Options {
    std::vector<std::string> files;
    int64_t sequence_length;           // each part must hold one sequence and its next token
    double validation_fraction = 0.0;  // of all bytes, from the end; in [0, 1)
  };

  // Errors: kInvalidArgument for no files, an empty file, something that is not a regular file, or
  // a part too short for one sequence; kResourceExhausted above kTextBytesMax; those of reading.
  // Each names the file and what to do.
  static absl::StatusOr<ByteCorpus> Load(FileCalls& files, const Options& options);

  std::span<const uint8_t> training() const { return all().first(training_bytes_); }
  std::span<const uint8_t> validation() const { return all().subspan(training_bytes_); }
  // Identifies the text and its split, so that a resumed run can tell that it is the same.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  explicit ByteCorpus(std::string text) : text_(std::move(text)) {}
  std::span<const uint8_t> all() const {
    return {reinterpret_cast<const uint8_t*>(text_.data()), text_.size()};
  }

  std::string text_;
  size_t training_bytes_ = 0;
  std::string fingerprint_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_BYTE_CORPUS_H_
