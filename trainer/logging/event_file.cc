#include "trainer/logging/event_file.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/logging/event_message.h"

namespace gantry {
namespace {

constexpr std::string_view kNamePrefix = "events.out.tfevents.";
constexpr size_t kTimeDigits = 10;
constexpr Nanoseconds kNanosecondsPerSecond = 1'000'000'000;

// The seconds in an event file's name; nothing for other names.
std::optional<int64_t> SecondsIn(std::string_view name) {
  if (!name.starts_with(kNamePrefix)) return std::nullopt;
  const std::string_view rest = name.substr(kNamePrefix.size());
  if (rest.size() <= kTimeDigits || rest[kTimeDigits] != '.') return std::nullopt;
  int64_t seconds = 0;
  const char* const end = rest.data() + kTimeDigits;
  const auto result = std::from_chars(rest.data(), end, seconds);
  if (result.ec != std::errc() || result.ptr != end || seconds < 0) return std::nullopt;
  return seconds;
}

// Names sort by time to readers: a file of the same second, or of a clock that was set back, must
// still come last.
int64_t SecondsFor(Nanoseconds now, const std::vector<std::string>& names) {
  int64_t seconds = now / kNanosecondsPerSecond;
  for (const std::string& name : names) {
    const std::optional<int64_t> taken = SecondsIn(name);
    if (taken.has_value()) seconds = std::max(seconds, *taken + 1);
  }
  return seconds;
}

std::string NameOf(int64_t seconds, const EventFile::Options& options) {
  std::string digits = StrCat(seconds);
  digits.insert(0, kTimeDigits - std::min(kTimeDigits, digits.size()), '0');
  std::string host = options.host;
  std::replace(host.begin(), host.end(), '/', '_');
  return StrCat(kNamePrefix, digits, ".", host, ".", options.process, ".0");
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const Options& options) {
  GANTRY_CHECK_GE(options.first_step, 0);
  FileCalls& files = *options.files;
  GANTRY_RETURN_IF_ERROR(MakeDirectories(files, options.directory));
  std::vector<std::string> names;
  {
    GANTRY_ASSIGN_OR_RETURN(const FileDescriptor directory,
                            OpenFile(files, options.directory, O_RDONLY | O_DIRECTORY, 0));
    GANTRY_ASSIGN_OR_RETURN(names, ListNames(files, {directory.get(), options.directory}));
  }
  const Nanoseconds now = options.clock->Now();
  const std::string path = StrCat(options.directory, "/", NameOf(SecondsFor(now, names), options));
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor file,
                          OpenFile(files, path, O_WRONLY | O_CREAT | O_EXCL, 0666));
  auto events = std::unique_ptr<EventFile>(new EventFile(options, std::move(file), path));
  const EventStamp start = events->StampOf(options.first_step);
  GANTRY_RETURN_IF_ERROR(events->Append(FileVersionRecord(start.wall_time) + RestartRecord(start)));
  return events;
}

EventStamp EventFile::StampOf(int64_t step) const {
  // Whole seconds apart: a double does not hold all nanoseconds since 1970.
  constexpr Nanoseconds kSecond = 1'000'000'000;
  const Nanoseconds now = clock_->Now();
  return {
      .wall_time = static_cast<double>(now / kSecond) + static_cast<double>(now % kSecond) / 1e9,
      .step = step};
}

absl::Status EventFile::AddScalars(int64_t step, std::span<const ScalarPoint> points) {
  return Append(ScalarsRecord(StampOf(step), points));
}

absl::Status EventFile::AddText(int64_t step, const TextPoint& point) {
  return Append(TextRecord(StampOf(step), point));
}

absl::Status EventFile::Append(const std::string& record) {
  if (!status_.ok()) return status_;
  GANTRY_CHECK(file_.valid()) << path_ << " is closed";
  status_ = WriteAll(*files_, {file_.get(), path_}, offset_, std::as_bytes(std::span(record)));
  if (status_.ok()) offset_ += std::ssize(record);
  return status_;
}

absl::Status EventFile::Close() {
  if (!status_.ok()) return status_;
  status_ = SyncFile(*files_, {file_.get(), path_});
  const absl::Status closed = file_.Close();
  if (status_.ok()) status_ = closed;
  return status_;
}

}  // namespace gantry
