#include "trainer/data/example_lines.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/data/example.h"
#include "trainer/data/example_encoder.h"
#include "trainer/data/line_file.h"

namespace gantry {
namespace {

constexpr int64_t kLinesMax = std::numeric_limits<uint32_t>::max() - int64_t{1};

}  // namespace

absl::StatusOr<std::unique_ptr<ExampleLines>> ExampleLines::Open(FileCalls& files,
                                                                 const Options& options) {
  if (options.files.empty()) return InvalidArgument("no data files are named");
  auto lines = std::unique_ptr<ExampleLines>(new ExampleLines(options.encoder));
  for (const std::string& path : options.files) {
    GANTRY_ASSIGN_OR_RETURN(
        std::unique_ptr<LineFile> file,
        LineFile::Open(files, {.path = path, .line_bytes_max = options.line_bytes_max}));
    lines->firsts_.push_back(lines->count() + file->lines());
    lines->files_.push_back(std::move(file));
    if (lines->count() > kLinesMax) {
      return InvalidArgument("the data files hold more than ", kLinesMax, " lines");
    }
  }
  return lines;
}

absl::StatusOr<std::optional<EncodedExample>> ExampleLines::Encode(int64_t line) const {
  GANTRY_CHECK(line >= 0 && line < count()) << line << " of " << count();
  const auto behind = std::upper_bound(firsts_.begin(), firsts_.end(), line);
  const auto place = static_cast<size_t>(behind - firsts_.begin()) - 1;
  const LineFile& file = *files_[place];
  const int64_t number = line - firsts_[place];
  GANTRY_ASSIGN_OR_RETURN(const std::string text, file.Read(number));
  if (text.find_first_not_of(" \t\r") == std::string::npos) return std::optional<EncodedExample>();
  const auto located = [&](const absl::Status& status) {
    return MakeStatus(status.code(), "'", file.path(), "', line ", number + 1, ": ",
                      FromAbsl(status.message()));
  };
  const absl::StatusOr<Example> example = ParseExample(text);
  if (!example.ok()) return located(example.status());
  absl::StatusOr<EncodedExample> encoded = encoder_->Encode(*example);
  if (!encoded.ok()) return located(encoded.status());
  return std::optional<EncodedExample>(*std::move(encoded));
}

}  // namespace gantry
