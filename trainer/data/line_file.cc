#include "trainer/data/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

absl::StatusOr<std::unique_ptr<LineFile>> LineFile::Open(FileCalls& files, const Options& options) {
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor descriptor,
                          OpenFile(files, options.path, O_RDONLY | O_NONBLOCK, 0));
  struct stat info = {};
  if (fstat(descriptor.get(), &info) != 0) {
    return ErrnoStatus(errno, StrCat("cannot look at '", options.path, "'"));
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("'", options.path, "' is not a regular file");
  }
  auto file = std::unique_ptr<LineFile>(new LineFile(files, options, std::move(descriptor)));
  GANTRY_RETURN_IF_ERROR(file->BuildIndex());
  return file;
}

absl::Status LineFile::BuildIndex() {
  std::vector<char> block(kBlockBytes);
  Hasher hasher;
  int64_t offset = 0;
  starts_.push_back(0);
  while (true) {
    const int64_t read = RetryInterrupted([&] {
      return files_.ReadAt(descriptor_.get(), std::as_writable_bytes(std::span(block)), offset);
    });
    if (read < 0) {
      return ErrnoStatus(static_cast<int>(-read), StrCat("cannot read '", options_.path, "'"));
    }
    if (read == 0) break;
    const std::string_view bytes(block.data(), static_cast<size_t>(read));
    hasher.Update(bytes);
    for (size_t at = bytes.find('\n'); at != std::string_view::npos;
         at = bytes.find('\n', at + 1)) {
      starts_.push_back(offset + static_cast<int64_t>(at) + 1);
    }
    offset += read;
  }
  if (offset == 0) return InvalidArgument("'", options_.path, "' is empty");
  // A last line without an end is a line too.
  if (starts_.back() != offset) starts_.push_back(offset);
  starts_.shrink_to_fit();
  fingerprint_ = hasher.HexDigest();
  return absl::OkStatus();
}

absl::StatusOr<std::string> LineFile::Read(int64_t line) const {
  const int64_t begin = starts_[static_cast<size_t>(line)];
  const int64_t size = starts_[static_cast<size_t>(line) + 1] - begin;
  // Its end does not count.
  if (size > options_.line_bytes_max.count() + 2) {
    return InvalidArgument("'", options_.path, "', line ", line + 1, ": it has ", Bytes(size),
                           "; at most ", options_.line_bytes_max, " are allowed");
  }
  std::string text(static_cast<size_t>(size), '\0');
  const absl::Status status = ReadAll(files_, {.fd = descriptor_.get(), .path = options_.path},
                                      begin, std::as_writable_bytes(std::span(text)));
  if (!status.ok()) {
    return MakeStatus(status.code(), "'", options_.path, "', line ", line + 1, ": ",
                      FromAbsl(status.message()));
  }
  const bool last = line + 1 == lines();
  const size_t end = text.find('\n');
  if (end != (last && end == std::string::npos ? std::string::npos : text.size() - 1)) {
    return DataLoss("'", options_.path, "', line ", line + 1,
                    ": the file has changed since it was opened");
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (line == 0 && text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

}  // namespace gantry
