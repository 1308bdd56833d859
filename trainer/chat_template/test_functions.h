// Jinja's tests: `value is name(arguments)`.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_TEST_FUNCTIONS_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_TEST_FUNCTIONS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// Errors: kInvalidArgument where Python raises; kResourceExhausted.
using TestFunction = absl::StatusOr<bool> (*)(RenderState& state, const Value& value,
                                              const Arguments& arguments);

// Null where there is no such test. Thread-safe.
TestFunction FindTest(std::string_view name);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_TEST_FUNCTIONS_H_
