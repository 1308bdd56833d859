#include "trainer/chat_template/civil_time.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/statusor.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr size_t kFormatBytesMax = 1024;

// With the day of the week and of the year.
std::tm ToTm(const CivilTime& time) {
  std::tm tm = {};
  tm.tm_year = time.year - 1900;
  tm.tm_mon = time.month - 1;
  tm.tm_mday = time.day;
  tm.tm_hour = time.hour;
  tm.tm_min = time.minute;
  tm.tm_sec = time.second;
  const std::time_t seconds = timegm(&tm);
  gmtime_r(&seconds, &tm);
  return tm;
}

bool ParseNumber(std::string_view text, int& number) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() && text[0] != '-';
}

}  // namespace

CivilTime LocalTime(int64_t unix_seconds) {
  const std::time_t seconds = unix_seconds;
  std::tm tm = {};
  localtime_r(&seconds, &tm);
  return {.year = tm.tm_year + 1900,
          .month = tm.tm_mon + 1,
          .day = tm.tm_mday,
          .hour = tm.tm_hour,
          .minute = tm.tm_min,
          .second = tm.tm_sec};
}

absl::StatusOr<CivilTime> ParseDate(std::string_view text) {
  CivilTime time;
  const bool parsed = text.size() == 10 && text[4] == '-' && text[7] == '-' &&
                      ParseNumber(text.substr(0, 4), time.year) &&
                      ParseNumber(text.substr(5, 2), time.month) &&
                      ParseNumber(text.substr(8, 2), time.day);
  if (parsed && time.year >= 1000) {
    const std::tm tm = ToTm(time);
    if (tm.tm_mon + 1 == time.month && tm.tm_mday == time.day) return time;
  }
  return InvalidArgument("'", text, "' is no date of the form YYYY-MM-DD");
}

absl::StatusOr<std::string> FormatTime(const CivilTime& time, std::string_view format) {
  if (format.size() > kFormatBytesMax) {
    return InvalidArgument("a time format of more than ", kFormatBytesMax, " bytes");
  }
  const std::tm tm = ToTm(time);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    // One directive at a time, so that an empty result is no failure.
    size_t end = i + 1;
    while (end + 1 < format.size() &&
           std::string_view("-_0^#EO").find(format[end]) != std::string_view::npos) {
      ++end;
    }
    const char directive = format[end];
    const std::string piece(format.substr(i, end + 1 - i));
    i = end;
    if (directive == 'f') {
      out += "000000";
      continue;
    }
    if (directive == 'z' || directive == 'Z') continue;
    std::array<char, 256> buffer;
    out.append(buffer.data(), std::strftime(buffer.data(), buffer.size(), piece.c_str(), &tm));
  }
  return out;
}

}  // namespace gantry
