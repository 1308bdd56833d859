// Python's arithmetic on values.
//
// Stateless and thread-safe. Errors of all: kInvalidArgument where Python raises, and where an int
// would need more than 64 bits; kResourceExhausted when the budget runs out.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_OPERATORS_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_OPERATORS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// `name` is one of + - * / // % **.
absl::StatusOr<Value> Calculate(std::string_view name, const Value& left, const Value& right,
                                Budget& budget);
absl::StatusOr<Value> Negate(const Value& value);
absl::StatusOr<Value> Positive(const Value& value);
// `name` is one of == != < <= > >= in, not in.
absl::StatusOr<bool> Compare(std::string_view name, const Value& left, const Value& right,
                             Budget& budget);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_OPERATORS_H_
