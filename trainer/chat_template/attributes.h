// value.name, value[key] and value[a:b:c], as Jinja's sandbox looks them up.
//
// Errors of all: kInvalidArgument on an undefined value; kResourceExhausted.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_ATTRIBUTES_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_ATTRIBUTES_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// A method first, then an item of that name; undefined where there is neither.
absl::StatusOr<Value> GetAttribute(RenderState& state, const Value& value, std::string_view name);
// An item first, then an attribute; undefined where there is neither.
absl::StatusOr<Value> GetItem(RenderState& state, const Value& value, const Value& key);
// Each part may be none. Errors also: a value that has no slices, a step of 0.
struct SliceParts {
  Value start;
  Value stop;
  Value step;
};
absl::StatusOr<Value> GetSlice(RenderState& state, const Value& value, const SliceParts& parts);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_ATTRIBUTES_H_
