// Python's `text % values`, str.replace and what else makes text of text.
//
// Stateless and thread-safe. Errors of all: kInvalidArgument where Python raises;
// kResourceExhausted when the budget runs out.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_TEXT_FORMAT_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_TEXT_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// `format % values`: a tuple gives several values, a dict named ones. %c is not supported.
absl::StatusOr<std::string> FormatPercent(std::string_view format, const Value& values,
                                          Budget& budget);

// text.replace(from, to, count_max); a negative count replaces all.
struct Replacement {
  std::string_view text;
  std::string_view from;
  std::string_view to;
  int64_t count_max;
};
absl::StatusOr<std::string> ReplaceText(const Replacement& replacement, Budget& budget);

// str.islower, str.isupper.
enum class Casing : uint8_t { kLower, kUpper };
bool HasCasing(std::string_view text, Casing casing);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_TEXT_FORMAT_H_
