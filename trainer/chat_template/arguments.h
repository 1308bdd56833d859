// The arguments of a call, and which parameter each belongs to.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_ARGUMENTS_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_ARGUMENTS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/chat_template/value.h"

namespace gantry {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// What a function takes: names in order, of which the first `required` have no default.
struct Signature {
  std::string_view function;
  std::initializer_list<std::string_view> names;
  size_t required = 0;
};

// The arguments in the order of a signature's names. Value type.
class BoundArguments {
 public:
  // Errors: kInvalidArgument for too many, unknown, doubled or missing arguments.
  static absl::StatusOr<BoundArguments> Bind(const Arguments& arguments,
                                             const Signature& signature);

  bool Has(size_t i) const { return values_[i].has_value(); }
  // REQUIRES: Has(i).
  const Value& operator[](size_t i) const { return *values_[i]; }
  // Given and not none.
  bool IsSet(size_t i) const { return Has(i) && !values_[i]->Is(Value::Kind::kNone); }
  Value Or(size_t i, Value otherwise) const { return Has(i) ? *values_[i] : std::move(otherwise); }

  // The argument as what Python would take there, or `otherwise` where it was left out. Errors:
  // kInvalidArgument for a value of another type.
  absl::StatusOr<int64_t> Integer(size_t i, int64_t otherwise) const;
  absl::StatusOr<std::string> Text(size_t i, std::string_view otherwise) const;
  bool Flag(size_t i, bool otherwise) const;  // by its truth

 private:
  std::string_view function_;
  std::vector<std::optional<Value>> values_;
};

// An int or a bool. Errors: kInvalidArgument for anything else.
absl::StatusOr<int64_t> IntegerOf(const Value& value);
// A str. Errors: kInvalidArgument for anything else.
absl::StatusOr<std::string> TextOf(const Value& value);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_ARGUMENTS_H_
