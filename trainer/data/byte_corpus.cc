#include "trainer/data/byte_corpus.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

absl::Status CheckOptions(const ByteCorpus::Options& options) {
  if (options.files.empty()) return InvalidArgument("no text files are named");
  if (options.sequence_length < 1) {
    return InvalidArgument("a sequence of ", options.sequence_length, " tokens");
  }
  if (!(options.validation_fraction >= 0.0 && options.validation_fraction < 1.0)) {
    return InvalidArgument("the validation fraction must be at least 0 and below 1, not ",
                           options.validation_fraction);
  }
  return absl::OkStatus();
}

// Adds the file's bytes to `text`.
absl::Status Append(FileCalls& files, const std::string& path, std::string& text) {
  const Bytes room = kTextBytesMax - Bytes(static_cast<int64_t>(text.size()));
  absl::StatusOr<std::string> content = ReadFileToString(files, path, room);
  if (content.status().code() == absl::StatusCode::kResourceExhausted) {
    return ResourceExhausted("with text file '", path, "' the text is larger than ", kTextBytesMax,
                             "; name less text");
  }
  if (!content.ok()) {
    return MakeStatus(content.status().code(), "cannot read text file '", path,
                      "': ", FromAbsl(content.status().message()));
  }
  if (content->empty()) return InvalidArgument("text file '", path, "' is empty");
  text += *content;
  return absl::OkStatus();
}

absl::Status CheckLength(std::string_view part, size_t bytes, int64_t sequence_length) {
  if (static_cast<int64_t>(bytes) > sequence_length) return absl::OkStatus();
  return InvalidArgument("the ", part, " text has ", bytes, " bytes, but one sequence of ",
                         sequence_length, " tokens needs ", sequence_length,
                         " + 1: name more text or choose a shorter sequence");
}

}  // namespace

absl::StatusOr<ByteCorpus> ByteCorpus::Load(FileCalls& files, const Options& options) {
  GANTRY_RETURN_IF_ERROR(CheckOptions(options));
  std::string text;
  for (const std::string& path : options.files) {
    GANTRY_RETURN_IF_ERROR(Append(files, path, text));
  }

  ByteCorpus corpus(std::move(text));
  const auto validation_bytes = static_cast<size_t>(
      std::floor(static_cast<double>(corpus.text_.size()) * options.validation_fraction));
  corpus.training_bytes_ = corpus.text_.size() - validation_bytes;
  GANTRY_RETURN_IF_ERROR(CheckLength("training", corpus.training_bytes_, options.sequence_length));
  if (options.validation_fraction > 0.0) {
    GANTRY_RETURN_IF_ERROR(CheckLength("validation", validation_bytes, options.sequence_length));
  }

  Hasher hasher;
  hasher.Update(StrCat(corpus.training_bytes_, ":"));
  hasher.Update(corpus.text_);
  corpus.fingerprint_ = hasher.HexDigest();
  return corpus;
}

}  // namespace gantry
