// The filters that make numbers.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/filters.h"
#include "trainer/chat_template/operators.h"
#include "trainer/chat_template/python_text.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Whether text begins with the prefix of its base, which then becomes known.
bool TakePrefix(std::string_view& text, int64_t& base) {
  if (text.size() < 2 || text[0] != '0') return false;
  const char letter = text[1];
  const int64_t named = letter == 'b' || letter == 'B'   ? 2
                        : letter == 'o' || letter == 'O' ? 8
                        : letter == 'x' || letter == 'X' ? 16
                                                         : 0;
  if (named == 0 || (base != 0 && base != named)) return false;
  base = named;
  text.remove_prefix(2);
  if (text.starts_with('_')) text.remove_prefix(1);
  return true;
}

// int(text, base). Nothing for what is no integer. Errors: kInvalidArgument beyond 64 bits.
absl::StatusOr<std::optional<int64_t>> ParseInteger(std::string_view text, int64_t base) {
  text = PythonStrip(text, std::nullopt, StripSides::kBoth);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const bool named = base == 0;
  const bool prefixed = TakePrefix(text, base);
  if (named && !prefixed) {
    // Zeros may lead nothing but zeros.
    if (text.size() > 1 && text[0] == '0' &&
        text.find_first_not_of("0_") != std::string_view::npos) {
      return std::optional<int64_t>();
    }
    base = 10;
  }
  int64_t value = 0;
  bool digit_before = false;
  for (const char c : text) {
    if (c == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    const int digit = DigitOf(c);
    if (digit >= base) return std::optional<int64_t>();
    digit_before = true;
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_sub_overflow(value, digit, &value)) {
      return InvalidArgument("an integer of more than 64 bits");
    }
  }
  if (!digit_before) return std::optional<int64_t>();
  if (!negative && value == std::numeric_limits<int64_t>::min()) {
    return InvalidArgument("an integer of more than 64 bits");
  }
  return negative ? value : -value;
}

// float(text), or nothing.
std::optional<double> ParseFloat(std::string_view text) {
  text = PythonStrip(text, std::nullopt, StripSides::kBoth);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const bool between =
        i > 0 && i + 1 < text.size() && DigitOf(text[i - 1]) < 10 && DigitOf(text[i + 1]) < 10;
    if (!between) return std::nullopt;
  }
  const std::string word = PythonLower(PythonStrip(digits, "+-", StripSides::kLeft));
  const bool is_word = word == "inf" || word == "infinity" || word == "nan";
  if (digits.empty() ||
      (!is_word && digits.find_first_not_of("0123456789+-.eE") != std::string::npos)) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size()) return std::nullopt;
  return value;
}

// float(value), or nothing where Python raises a TypeError or a ValueError.
absl::StatusOr<std::optional<double>> ToFloat(const Value& value) {
  if (value.Is(Kind::kUndefined)) return InvalidArgument(value.undefined_message());
  if (value.is_number()) return std::optional<double>(value.AsFloat());
  if (value.Is(Kind::kString)) return ParseFloat(value.string());
  return std::optional<double>();
}

std::optional<int64_t> Truncate(double number) {
  if (!(std::abs(number) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(number);
}

absl::StatusOr<Value> Int(RenderState&, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "int", .names = {"default", "base"}}));
  const Value otherwise = bound.Or(0, Value::Integer(0));
  GANTRY_ASSIGN_OR_RETURN(const int64_t base, bound.Integer(1, 10));
  if (base != 0 && (base < 2 || base > 36)) {
    if (value.Is(Kind::kString)) return otherwise;
  }
  if (value.Is(Kind::kInteger) || value.Is(Kind::kBool)) {
    return Value::Integer(value.AsInteger());
  }
  if (value.Is(Kind::kFloat) && std::isinf(value.floating())) {
    return InvalidArgument("cannot convert float infinity to integer");
  }
  if (value.Is(Kind::kString)) {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<int64_t> integer,
                            ParseInteger(value.string(), base));
    if (integer.has_value()) return Value::Integer(*integer);
  }
  GANTRY_ASSIGN_OR_RETURN(const std::optional<double> number, ToFloat(value));
  if (!number.has_value() || !std::isfinite(*number)) return otherwise;
  const std::optional<int64_t> integer = Truncate(*number);
  if (!integer.has_value()) return InvalidArgument("an integer of more than 64 bits");
  return Value::Integer(*integer);
}

absl::StatusOr<Value> Float(RenderState&, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "float", .names = {"default"}}));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<double> number, ToFloat(value));
  return number.has_value() ? Value::Float(*number) : bound.Or(0, Value::Float(0.0));
}

absl::StatusOr<Value> Abs(RenderState&, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(
      BoundArguments::Bind(arguments, {.function = "abs", .names = {}}).status());
  if (value.Is(Kind::kFloat)) return Value::Float(std::abs(value.floating()));
  GANTRY_ASSIGN_OR_RETURN(const Value positive, Positive(value));
  return positive.integer() < 0 ? Negate(positive) : positive;
}

// round(number, digits): to the nearest decimal, of two as near ones the even.
double RoundDecimal(double number, int64_t digits) {
  if (!std::isfinite(number) || digits > 323) return number;
  if (digits < -308) return std::copysign(0.0, number);
  if (digits >= 0) {
    std::string text(
        static_cast<size_t>(std::snprintf(nullptr, 0, "%.*f", static_cast<int>(digits), number)),
        '\0');
    std::snprintf(text.data(), text.size() + 1, "%.*f", static_cast<int>(digits), number);
    return std::strtod(text.c_str(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(number / scale) * scale;
}

// The same for an int, where digits < 0 counts places before the point.
absl::StatusOr<Value> RoundInteger(int64_t number, int64_t digits) {
  if (digits >= 0) return Value::Integer(number);
  if (digits < -18) return Value::Integer(0);
  int64_t scale = 1;
  for (int64_t i = 0; i < -digits; ++i) scale *= 10;
  const int64_t rest = ((number % scale) + scale) % scale;
  const __int128 down = static_cast<__int128>(number) - rest;
  const bool odd = (down / scale) % 2 != 0;
  const bool up =
      2 * static_cast<__int128>(rest) > scale || (2 * static_cast<__int128>(rest) == scale && odd);
  const __int128 rounded = up ? down + scale : down;
  if (rounded > std::numeric_limits<int64_t>::max() ||
      rounded < std::numeric_limits<int64_t>::min()) {
    return InvalidArgument("an integer of more than 64 bits");
  }
  return Value::Integer(static_cast<int64_t>(rounded));
}

absl::StatusOr<Value> Round(RenderState&, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "round", .names = {"precision", "method"}}));
  GANTRY_ASSIGN_OR_RETURN(const int64_t precision, bound.Integer(0, 0));
  GANTRY_ASSIGN_OR_RETURN(const std::string method, bound.Text(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return InvalidArgument("method must be common, ceil or floor");
  }
  GANTRY_ASSIGN_OR_RETURN(const Value number, Positive(value));
  if (method == "common") {
    if (number.Is(Kind::kInteger)) return RoundInteger(number.integer(), precision);
    return Value::Float(RoundDecimal(number.floating(), precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = number.AsFloat() * scale;
  if (!std::isfinite(scaled)) return InvalidArgument("cannot round a number that is not finite");
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

}  // namespace

FilterFunction FindNumberFilter(std::string_view name) {
  if (name == "abs") return &Abs;
  if (name == "float") return &Float;
  if (name == "int") return &Int;
  if (name == "round") return &Round;
  return nullptr;
}

}  // namespace gantry
