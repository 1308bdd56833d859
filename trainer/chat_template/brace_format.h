// str.format.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_BRACE_FORMAT_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_BRACE_FORMAT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/render_state.h"

namespace gantry {

// format.format(arguments). Errors: kInvalidArgument where Python raises, and for a format
// specification ({:>8}); kResourceExhausted when the budget runs out.
absl::StatusOr<std::string> FormatBraces(RenderState& state, std::string_view format,
                                         const Arguments& arguments);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_BRACE_FORMAT_H_
