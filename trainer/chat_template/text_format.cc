#include "trainer/chat_template/text_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/python_text.h"
#include "trainer/chat_template/text_tables.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;
constexpr int64_t kWidthMax = 10000;

// One %... of a format.
struct Directive {
  bool left = false;
  bool zero = false;
  bool sign = false;
  bool space = false;
  bool alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char conversion = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(std::string_view format, const Value& values, Budget& budget)
      : format_(format), values_(values), budget_(budget) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out_ += format_.substr(at_, percent - at_);
      at_ = percent + 1;
      if (percent < format_.size()) GANTRY_RETURN_IF_ERROR(One());
      GANTRY_RETURN_IF_ERROR(budget_.CheckText(out_.size()));
    }
    // What has items by key may be left unused.
    const bool mapping = values_.Is(Kind::kDict) || values_.Is(Kind::kList) ||
                         values_.Is(Kind::kRange) || values_.Is(Kind::kUndefined);
    const bool left_over =
        values_.Is(Kind::kTuple) ? next_ < values_.items().size() : next_ == 0 && !mapping;
    if (left_over) return InvalidArgument("not all arguments converted during string formatting");
    GANTRY_RETURN_IF_ERROR(budget_.SpendText(out_.size()));
    return std::move(out_);
  }

 private:
  absl::StatusOr<Value> NextValue() {
    if (values_.Is(Kind::kTuple)) {
      if (next_ < values_.items().size()) return values_.items()[next_++];
    } else if (next_++ == 0) {
      return values_;
    }
    return InvalidArgument("not enough arguments for format string");
  }

  absl::StatusOr<Value> Named(std::string_view name) {
    if (!values_.Is(Kind::kDict)) return InvalidArgument("format requires a mapping");
    const Value* found = FindText(values_.entries(), name);
    if (found == nullptr) return InvalidArgument("no key '", name, "' to format");
    next_ = 1;
    return *found;
  }

  absl::StatusOr<int64_t> Count() {
    if (at_ < format_.size() && format_[at_] == '*') {
      return InvalidArgument("'*' in a format is not supported");
    }
    int64_t count = 0;
    while (at_ < format_.size() && format_[at_] >= '0' && format_[at_] <= '9') {
      count = count * 10 + (format_[at_++] - '0');
      if (count > kWidthMax) return InvalidArgument("a width of more than ", kWidthMax);
    }
    return count;
  }

  absl::Status One() {
    std::optional<Value> value;
    if (at_ < format_.size() && format_[at_] == '(') {
      const size_t close = format_.find(')', at_);
      if (close == std::string_view::npos) return InvalidArgument("incomplete format key");
      GANTRY_ASSIGN_OR_RETURN(value, Named(format_.substr(at_ + 1, close - at_ - 1)));
      at_ = close + 1;
    }
    Directive directive;
    for (; at_ < format_.size(); ++at_) {
      const char flag = format_[at_];
      if (flag == '-')
        directive.left = true;
      else if (flag == '0')
        directive.zero = true;
      else if (flag == '+')
        directive.sign = true;
      else if (flag == ' ')
        directive.space = true;
      else if (flag == '#')
        directive.alternate = true;
      else
        break;
    }
    GANTRY_ASSIGN_OR_RETURN(directive.width, Count());
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      GANTRY_ASSIGN_OR_RETURN(directive.precision, Count());
    }
    while (at_ < format_.size() &&
           std::string_view("hlL").find(format_[at_]) != std::string_view::npos) {
      ++at_;
    }
    if (at_ == format_.size()) return InvalidArgument("incomplete format");
    directive.conversion = format_[at_++];
    if (directive.conversion == '%') {
      out_ += '%';
      return absl::OkStatus();
    }
    if (!value.has_value()) {
      GANTRY_ASSIGN_OR_RETURN(value, NextValue());
    }
    return Convert(directive, *value);
  }

  absl::Status Convert(const Directive& directive, const Value& value) {
    switch (directive.conversion) {
      case 's':
      case 'r': {
        GANTRY_ASSIGN_OR_RETURN(std::string text, directive.conversion == 's'
                                                      ? ToText(value, budget_)
                                                      : ToRepr(value, budget_));
        if (directive.precision >= 0 && directive.precision < CountCodePoints(text)) {
          text.resize(CodePointOffsets(text)[static_cast<size_t>(directive.precision)]);
        }
        Pad(directive, text);
        return absl::OkStatus();
      }
      case 'd':
      case 'i':
      case 'u':
        if (!value.is_number()) return WantsNumber(directive, value);
        return Integer(directive, value);
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_number() || value.Is(Kind::kFloat)) return WantsNumber(directive, value);
        return Integer(directive, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) return WantsNumber(directive, value);
        return Floating(directive, value.AsFloat());
      default:
        return InvalidArgument("unsupported format character '",
                               std::string(1, directive.conversion), "'");
    }
  }

  static absl::Status WantsNumber(const Directive& directive, const Value& value) {
    return InvalidArgument("%", std::string(1, directive.conversion),
                           " format: a number is required, not ", TypeName(value));
  }

  absl::Status Integer(const Directive& directive, const Value& value) {
    int64_t number = 0;
    if (value.Is(Kind::kFloat)) {
      if (!(std::abs(value.floating()) < 9e18)) {
        return InvalidArgument("cannot convert the float to an integer of 64 bits");
      }
      number = static_cast<int64_t>(value.floating());
    } else {
      number = value.AsInteger();
    }
    const int base = directive.conversion == 'o'                                  ? 8
                     : directive.conversion == 'x' || directive.conversion == 'X' ? 16
                                                                                  : 10;
    const uint64_t magnitude =
        number < 0 ? ~static_cast<uint64_t>(number) + 1 : static_cast<uint64_t>(number);
    std::array<char, 32> buffer;
    const auto written =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base);
    std::string digits(buffer.data(), written.ptr);
    if (directive.conversion == 'X') digits = PythonUpper(digits);
    if (directive.precision > static_cast<int64_t>(digits.size())) {
      digits.insert(0, static_cast<size_t>(directive.precision) - digits.size(), '0');
    }
    std::string prefix = number < 0 ? "-" : directive.sign ? "+" : directive.space ? " " : "";
    if (directive.alternate && base == 8) prefix += "0o";
    if (directive.alternate && base == 16) prefix += directive.conversion == 'X' ? "0X" : "0x";
    PadNumber(directive, prefix, digits);
    return absl::OkStatus();
  }

  absl::Status Floating(const Directive& directive, double number) {
    const int precision = directive.precision < 0 ? 6 : static_cast<int>(directive.precision);
    const std::string format =
        StrCat("%", directive.alternate ? "#" : "", ".*", std::string(1, directive.conversion));
    const double magnitude = std::abs(number);
    const int size = std::snprintf(nullptr, 0, format.c_str(), precision, magnitude);
    std::string digits(static_cast<size_t>(size), '\0');
    std::snprintf(digits.data(), digits.size() + 1, format.c_str(), precision, magnitude);
    const bool negative = std::signbit(number) && !std::isnan(number);
    PadNumber(directive,
              negative          ? "-"
              : directive.sign  ? "+"
              : directive.space ? " "
                                : "",
              digits);
    return absl::OkStatus();
  }

  void PadNumber(const Directive& directive, const std::string& prefix, std::string digits) {
    const int64_t size = static_cast<int64_t>(prefix.size() + digits.size());
    if (directive.zero && !directive.left && size < directive.width) {
      digits.insert(0, static_cast<size_t>(directive.width - size), '0');
    }
    Pad(directive, prefix + digits);
  }

  void Pad(const Directive& directive, const std::string& text) {
    const auto padding =
        static_cast<size_t>(std::max<int64_t>(directive.width - CountCodePoints(text), 0));
    if (!directive.left) out_.append(padding, ' ');
    out_ += text;
    if (directive.left) out_.append(padding, ' ');
  }

  const std::string_view format_;
  const Value& values_;
  Budget& budget_;
  std::string out_;
  size_t at_ = 0;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<std::string> FormatPercent(std::string_view format, const Value& values,
                                          Budget& budget) {
  return PercentFormatter(format, values, budget).Run();
}

absl::StatusOr<std::string> ReplaceText(const Replacement& replacement, Budget& budget) {
  const auto& [text, from, to, count_max] = replacement;
  GANTRY_RETURN_IF_ERROR(budget.SpendText(text.size()));
  int64_t left = count_max < 0 ? std::numeric_limits<int64_t>::max() : count_max;
  std::string out;
  size_t at = 0;
  while (left > 0) {
    const size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += to;
    GANTRY_RETURN_IF_ERROR(budget.CheckText(out.size()));
    GANTRY_RETURN_IF_ERROR(budget.SpendText(to.size()));
    at = found + from.size();
    --left;
    if (!from.empty()) continue;
    // Between every two code points, and at both ends.
    if (at == text.size()) break;
    size_t next = at;
    NextCodePoint(text, next);
    out += text.substr(at, next - at);
    at = next;
  }
  if (at < text.size()) out += text.substr(at);
  GANTRY_RETURN_IF_ERROR(budget.SpendText(out.size()));
  return out;
}

bool HasCasing(std::string_view text, Casing casing) {
  bool cased = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = NextCodePoint(text, at);
    const bool upper = text_tables::IsUpper(code);
    const bool lower = text_tables::IsLower(code);
    const bool title = !upper && !lower && text_tables::IsCased(code);
    if (title || (casing == Casing::kLower ? upper : lower)) return false;
    cased = cased || upper || lower;
  }
  return cased;
}

}  // namespace gantry
