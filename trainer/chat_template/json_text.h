// JSON to values and back, as Python's json module does it.
//
// Stateless and thread-safe.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_JSON_TEXT_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_JSON_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// Objects keep their order; of a key that comes twice the last value counts, at the first place.
// Time and memory grow with the text only. Errors: kInvalidArgument, with the byte's number, for
// text that is not JSON in UTF-8, an integer beyond 64 bits, or nesting deeper than kValueDepthMax.
absl::StatusOr<Value> ParseJson(std::string_view text);

// json.dumps.
struct JsonOptions {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of each level; empty: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// Errors: kInvalidArgument for what json.dumps refuses; kResourceExhausted.
absl::StatusOr<std::string> WriteJson(const Value& value, const JsonOptions& options,
                                      Budget& budget);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_JSON_TEXT_H_
