#include "trainer/chat_template/operators.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/text_format.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

absl::Status Overflow() { return InvalidArgument("an integer of more than 64 bits"); }

bool IsInteger(const Value& value) { return value.Is(Kind::kInteger) || value.Is(Kind::kBool); }

// Rounds to minus infinity. REQUIRES: b != 0 and not (INT64_MIN, -1).
int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return InvalidArgument("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value::Integer(result);
}

absl::StatusOr<Value> OfIntegers(std::string_view name, int64_t a, int64_t b) {
  int64_t result = 0;
  if (name == "+") {
    if (__builtin_add_overflow(a, b, &result)) return Overflow();
    return Value::Integer(result);
  }
  if (name == "-") {
    if (__builtin_sub_overflow(a, b, &result)) return Overflow();
    return Value::Integer(result);
  }
  if (name == "*") {
    if (__builtin_mul_overflow(a, b, &result)) return Overflow();
    return Value::Integer(result);
  }
  if (name == "**") return IntegerPower(a, b);
  if (b == 0) return InvalidArgument("division by zero");
  if (name == "/") return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  if (a == std::numeric_limits<int64_t>::min() && b == -1) {
    return name == "//" ? absl::StatusOr<Value>(Overflow()) : Value::Integer(0);
  }
  if (name == "//") return Value::Integer(FloorDivide(a, b));
  return Value::Integer(a - FloorDivide(a, b) * b);
}

// The remainder with the sign of b, and the floor of the quotient, as Python computes them.
struct FloatDivision {
  double quotient;
  double remainder;
};

FloatDivision DivideFloats(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1.0;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (quotient != 0) {
    double floor = std::floor(quotient);
    if (quotient - floor > 0.5) floor += 1.0;
    quotient = floor;
  } else {
    quotient = std::copysign(0.0, a / b);
  }
  return {quotient, remainder};
}

absl::StatusOr<Value> OfFloats(std::string_view name, double a, double b) {
  if (name == "+") return Value::Float(a + b);
  if (name == "-") return Value::Float(a - b);
  if (name == "*") return Value::Float(a * b);
  if (name == "**") {
    if (a == 0 && b < 0) return InvalidArgument("0.0 cannot be raised to a negative power");
    if (a < 0 && std::isfinite(b) && b != std::floor(b)) {
      return InvalidArgument("a negative number cannot be raised to a fractional power");
    }
    const double power = std::pow(a, b);
    if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
      return InvalidArgument("the result is too large");
    }
    return Value::Float(power);
  }
  if (b == 0) return InvalidArgument("float division by zero");
  if (name == "/") return Value::Float(a / b);
  const FloatDivision division = DivideFloats(a, b);
  return Value::Float(name == "//" ? division.quotient : division.remainder);
}

absl::StatusOr<Value> Repeat(const Value& value, int64_t times, Budget& budget) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const size_t size = value.Is(Kind::kString) ? value.string().size() : value.items().size();
  size_t total = 0;
  if (__builtin_mul_overflow(count, size, &total)) {
    return ResourceExhausted("a sequence repeated too often");
  }
  if (value.Is(Kind::kString)) {
    GANTRY_RETURN_IF_ERROR(budget.SpendText(total));
    std::string out;
    out.reserve(total);
    for (size_t i = 0; i < count && size > 0; ++i) out += value.string();
    return Value::String(out);
  }
  GANTRY_RETURN_IF_ERROR(budget.SpendItems(std::min<size_t>(total, size_t{1} << 60)));
  std::vector<Value> items;
  for (size_t i = 0; i < count && size > 0; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.Is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

absl::StatusOr<Value> Join(const Value& left, const Value& right, Budget& budget) {
  if (left.Is(Kind::kString)) {
    GANTRY_RETURN_IF_ERROR(budget.SpendText(left.string().size() + right.string().size()));
    return Value::String(left.string() + right.string());
  }
  GANTRY_RETURN_IF_ERROR(budget.SpendItems(left.items().size() + right.items().size()));
  std::vector<Value> items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.Is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

bool IsRepeatable(const Value& value) {
  return value.Is(Kind::kString) || value.is_list_or_tuple();
}

}  // namespace

absl::StatusOr<Value> Calculate(std::string_view name, const Value& left, const Value& right,
                                Budget& budget) {
  if (name == "%" && left.Is(Kind::kString)) {
    GANTRY_ASSIGN_OR_RETURN(const std::string text, FormatPercent(left.string(), right, budget));
    return Value::String(text);
  }
  for (const Value* operand : {&left, &right}) {
    if (operand->Is(Kind::kUndefined)) return InvalidArgument(operand->undefined_message());
  }
  if (left.is_number() && right.is_number()) {
    if (IsInteger(left) && IsInteger(right)) {
      return OfIntegers(name, left.AsInteger(), right.AsInteger());
    }
    return OfFloats(name, left.AsFloat(), right.AsFloat());
  }
  if (name == "+" && left.kind() == right.kind() && IsRepeatable(left)) {
    return Join(left, right, budget);
  }
  if (name == "*" && IsRepeatable(left) && IsInteger(right)) {
    return Repeat(left, right.AsInteger(), budget);
  }
  if (name == "*" && IsInteger(left) && IsRepeatable(right)) {
    return Repeat(right, left.AsInteger(), budget);
  }
  return InvalidArgument("unsupported operand types for ", name, ": '", TypeName(left), "' and '",
                         TypeName(right), "'");
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.Is(Kind::kFloat)) return Value::Float(-value.floating());
  if (!IsInteger(value)) return Positive(value);
  return OfIntegers("-", 0, value.AsInteger());
}

absl::StatusOr<Value> Positive(const Value& value) {
  if (value.Is(Kind::kFloat)) return value;
  if (IsInteger(value)) return Value::Integer(value.AsInteger());
  if (value.Is(Kind::kUndefined)) return InvalidArgument(value.undefined_message());
  return InvalidArgument("bad operand type for a sign: '", TypeName(value), "'");
}

absl::StatusOr<bool> Compare(std::string_view name, const Value& left, const Value& right,
                             Budget& budget) {
  if (name == "==" || name == "!=") {
    GANTRY_ASSIGN_OR_RETURN(const bool equal, Equal(left, right, budget));
    return equal == (name == "==");
  }
  if (name == "in" || name == "not in") {
    GANTRY_ASSIGN_OR_RETURN(const bool contains, Contains(right, left, budget));
    return contains == (name == "in");
  }
  for (const Value* operand : {&left, &right}) {
    if (operand->Is(Kind::kUndefined)) return InvalidArgument(operand->undefined_message());
  }
  if (name == "<") return Less(left, right, budget);
  if (name == ">") return Less(right, left, budget);
  if (name == "<=") return LessOrEqual(left, right, budget);
  return LessOrEqual(right, left, budget);
}

}  // namespace gantry
