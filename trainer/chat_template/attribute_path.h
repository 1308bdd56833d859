// "name", "address.city" or "0.role": what filters take as an attribute.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_ATTRIBUTE_PATH_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_ATTRIBUTE_PATH_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// Value type.
class AttributePath {
 public:
  // Of a text or an index; of none: the value itself. Errors: kInvalidArgument for another type.
  static absl::StatusOr<AttributePath> Parse(const Value& attribute);
  // Several, with commas between them. Errors: likewise.
  static absl::StatusOr<std::vector<AttributePath>> ParseSeveral(const Value& attribute);

  // What stands in for a part that is undefined.
  void set_default(Value value) { default_ = std::move(value); }

  // Errors: kInvalidArgument for a part of an undefined value; kResourceExhausted.
  absl::StatusOr<Value> Read(RenderState& state, const Value& value) const;

 private:
  std::vector<Value> parts_;
  std::optional<Value> default_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_ATTRIBUTE_PATH_H_
