#include "trainer/chat_template/render_state.h"

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {

absl::StatusOr<Value> CallValue(RenderState& state, const Value& callee,
                                const Arguments& arguments) {
  if (callee.Is(Value::Kind::kUndefined)) return InvalidArgument(callee.undefined_message());
  if (!callee.Is(Value::Kind::kObject) || !callee.object()->callable()) {
    return InvalidArgument("'", TypeName(callee), "' object is not callable");
  }
  GANTRY_RETURN_IF_ERROR(state.budget().Spend(1));
  return static_cast<Callable*>(callee.object())->Call(state, arguments);
}

}  // namespace gantry
