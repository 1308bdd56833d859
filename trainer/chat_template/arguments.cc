#include "trainer/chat_template/arguments.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/strings.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {

absl::StatusOr<BoundArguments> BoundArguments::Bind(const Arguments& arguments,
                                                    const Signature& signature) {
  const size_t count = signature.names.size();
  if (arguments.positional.size() > count) {
    return InvalidArgument(signature.function, "() takes at most ", count, " arguments, not ",
                           arguments.positional.size());
  }
  BoundArguments bound;
  bound.function_ = signature.function;
  bound.values_.assign(arguments.positional.begin(), arguments.positional.end());
  bound.values_.resize(count);
  for (const auto& [name, value] : arguments.named) {
    const auto* const found = std::find(signature.names.begin(), signature.names.end(), name);
    if (found == signature.names.end()) {
      return InvalidArgument(signature.function, "() has no argument '", name, "'");
    }
    auto& place = bound.values_[static_cast<size_t>(std::distance(signature.names.begin(), found))];
    if (place.has_value()) {
      return InvalidArgument(signature.function, "() got its argument '", name, "' twice");
    }
    place = value;
  }
  for (size_t i = 0; i < signature.required; ++i) {
    if (bound.Has(i)) continue;
    return InvalidArgument(signature.function, "() misses its argument '",
                           *(signature.names.begin() + i), "'");
  }
  return bound;
}

absl::StatusOr<int64_t> BoundArguments::Integer(size_t i, int64_t otherwise) const {
  if (!Has(i)) return otherwise;
  return IntegerOf(values_[i].value());
}

absl::StatusOr<std::string> BoundArguments::Text(size_t i, std::string_view otherwise) const {
  if (!Has(i)) return std::string(otherwise);
  return TextOf(values_[i].value());
}

bool BoundArguments::Flag(size_t i, bool otherwise) const {
  return Has(i) ? Truth(values_[i].value()) : otherwise;
}

absl::StatusOr<int64_t> IntegerOf(const Value& value) {
  if (value.Is(Value::Kind::kInteger) || value.Is(Value::Kind::kBool)) return value.AsInteger();
  if (value.Is(Value::Kind::kUndefined)) return InvalidArgument(value.undefined_message());
  return InvalidArgument("'", TypeName(value), "' object cannot be interpreted as an integer");
}

absl::StatusOr<std::string> TextOf(const Value& value) {
  if (value.Is(Value::Kind::kString)) return value.string();
  if (value.Is(Value::Kind::kUndefined)) return InvalidArgument(value.undefined_message());
  return InvalidArgument("must be str, not ", TypeName(value));
}

}  // namespace gantry
