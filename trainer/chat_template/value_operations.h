// Python's operations on values: what they are called, printed, iterated.
//
// Stateless and thread-safe, but a Budget has one user at a time. Errors of all: kResourceExhausted
// when the budget runs out; kInvalidArgument where Python raises, without a place in the template.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_VALUE_OPERATIONS_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_VALUE_OPERATIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// Python's name: "str", "int", "NoneType".
std::string_view TypeName(const Value& value);
bool Truth(const Value& value);
// Errors also: what has no length.
absl::StatusOr<int64_t> LengthOf(const Value& value);

// str(value) and repr(value).
absl::StatusOr<std::string> ToText(const Value& value, Budget& budget);
absl::StatusOr<std::string> ToRepr(const Value& value, Budget& budget);

// What `for` walks over. `budget` outlives the iterator. Errors also: what is not iterable.
absl::StatusOr<std::shared_ptr<ValueIterator>> Iterate(const Value& value, Budget& budget);
// list(value).
absl::StatusOr<std::vector<Value>> ToItems(const Value& value, Budget& budget);
// `value`, unless it nests too deep. Errors also: it does.
absl::StatusOr<Value> Shallow(Value value);
absl::StatusOr<Value> TextValue(std::string_view text, Budget& budget);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_VALUE_OPERATIONS_H_
