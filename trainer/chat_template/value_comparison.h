// Python's comparisons of values, and what rests on them: keys of dicts, sorting.
//
// Stateless and thread-safe, but a Budget has one user at a time. Errors as in value_operations.h.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_VALUE_COMPARISON_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_VALUE_COMPARISON_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// a == b; never an error of Python.
absl::StatusOr<bool> Equal(const Value& a, const Value& b, Budget& budget);
// a < b. Errors also: kinds that have no order.
absl::StatusOr<bool> Less(const Value& a, const Value& b, Budget& budget);
// Where x compares as less than no number, as Python's <= and >= do.
absl::StatusOr<bool> LessOrEqual(const Value& a, const Value& b, Budget& budget);
// `item in container`.
absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget& budget);

bool IsHashable(const Value& value);
// The value at `key`, which need not be hashable: then there is none.
absl::StatusOr<std::optional<Value>> FindKey(const Value::Entries& entries, const Value& key,
                                             Budget& budget);
// The same for a text.
const Value* FindText(const Value::Entries& entries, std::string_view key);
// Sets or adds. Errors also: a key that is not hashable.
absl::Status SetKey(Value::Entries& entries, const Value& key, const Value& value, Budget& budget);

// Stable. `keys` are compared, and `items` moved with them; descending keeps equals in order too.
enum class SortOrder : uint8_t { kAscending, kDescending };
absl::StatusOr<std::vector<Value>> SortByKeys(const std::vector<Value>& items,
                                              const std::vector<Value>& keys, SortOrder order,
                                              Budget& budget);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_VALUE_COMPARISON_H_
