// Splits a template into tokens as Jinja does with trim_blocks and lstrip_blocks on: text outside
// of tags with its whitespace control applied, and what stands inside of {{ }} and {% %}.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_LEXER_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"

namespace gantry {

// Both count from 1; the column counts code points.
struct TemplatePosition {
  int line = 1;
  int column = 1;
};

// An error with its place: "line 3, column 7: ...".
template <typename... Parts>
absl::Status TemplateError(TemplatePosition at, const Parts&... parts) {
  return InvalidArgument("line ", at.line, ", column ", at.column, ": ", parts...);
}

struct TemplateToken {
  enum class Kind : uint8_t {
    kText,
    kPrintBegin,  // {{
    kPrintEnd,
    kTagBegin,  // {%
    kTagEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind;
  std::string text;  // of a string: what it means
  int64_t integer = 0;
  double floating = 0;
  TemplatePosition at;
};

// At least one token, of which the last is kEnd. Errors: kInvalidArgument for what is not UTF-8, a
// character that begins no token, brackets that do not match, a tag, string or comment without an
// end, an integer beyond 64 bits.
absl::StatusOr<std::vector<TemplateToken>> Tokenize(std::string_view source);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_LEXER_H_
