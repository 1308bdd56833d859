// A date and a time of day, and strftime over them.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_CIVIL_TIME_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_CIVIL_TIME_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gantry {

// Without a time zone, as the clock on the wall shows it.
struct CivilTime {
  int year = 1970;
  int month = 1;  // 1..12
  int day = 1;    // 1..31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

// As the machine's time zone has it at so many seconds since 1970-01-01 UTC.
CivilTime LocalTime(int64_t unix_seconds);

// "YYYY-MM-DD". Errors: kInvalidArgument for anything else, or a day that no year has.
absl::StatusOr<CivilTime> ParseDate(std::string_view text);

// datetime.strftime. Errors: kInvalidArgument for a format of more than 1 KiB.
absl::StatusOr<std::string> FormatTime(const CivilTime& time, std::string_view format);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_CIVIL_TIME_H_
