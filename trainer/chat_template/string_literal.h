// Python's escapes in string literals.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_STRING_LITERAL_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_STRING_LITERAL_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gantry {

// Adds to `out` what a literal between quotes means. REQUIRES: a backslash is followed by
// something. Errors: kInvalidArgument for an escape that is cut short, names a surrogate or a
// code point that does not exist, or names one by \N.
absl::Status UnescapeLiteral(std::string_view literal, std::string& out);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_STRING_LITERAL_H_
