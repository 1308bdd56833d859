// The methods of Python's str, list, tuple and dict that templates may call.
//
// Those that would change a list or a dict are no part of the sandbox, so they are undefined.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_METHODS_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_METHODS_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"

namespace gantry {

using MethodFunction = absl::StatusOr<Value> (*)(RenderState& state, const Value& self,
                                                 const Arguments& arguments);

// Null where a str has no such method.
MethodFunction FindStringMethod(std::string_view name);
MethodFunction FindContainerMethod(Value::Kind kind, std::string_view name);

// `self.name` where it is a method, ready to be called; undefined where the sandbox forbids it;
// nothing where there is none. Errors: kResourceExhausted.
absl::StatusOr<std::optional<Value>> BindMethod(RenderState& state, const Value& self,
                                                std::string_view name);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_METHODS_H_
