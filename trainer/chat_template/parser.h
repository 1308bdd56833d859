// Parses a template into statements.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_PARSER_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/chat_template/syntax.h"

namespace gantry {

// Statements nest at most so deep.
inline constexpr int kStatementDepthMax = 60;

// Errors: kInvalidArgument naming line and column, for what Jinja refuses, for tags that chat
// templates have no use for (extends, include, import, from, block, autoescape, do), and for
// nesting beyond the limits.
absl::StatusOr<TemplateSyntax> ParseTemplate(std::string_view source);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_PARSER_H_
