#include "trainer/cli/config_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/booster/parameter_groups.h"

namespace gantry {
namespace {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

// The whole text as a number, or nothing.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const std::span<const char> characters(text.begin(), text.end());
  const char* const end = characters.data() + characters.size();
  const auto result = std::from_chars(characters.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return number;
}

// The shortest text that reads back as the same number.
std::string NumberText(double number) {
  std::array<char, 64> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return {buffer.data(), result.ptr};
}

std::string SizeText(Bytes size) {
  constexpr std::array<std::string_view, 3> kUnits = {"GiB", "MiB", "KiB"};
  int64_t unit = int64_t{1} << 30;
  for (const std::string_view name : kUnits) {
    if (size.count() != 0 && size.count() % unit == 0) return StrCat(size.count() / unit, name);
    unit >>= 10;
  }
  return StrCat(size.count());
}

std::string OneOf(std::span<const std::string_view> names) {
  std::string text = "one of ";
  for (size_t i = 0; i < names.size(); ++i) text += StrCat(i == 0 ? "" : ", ", names[i]);
  return text;
}

bool InRange(double number, double least, double most) {
  return std::isfinite(number) && number >= least && number <= most;
}

std::string DescribeReal(double least, double most) {
  constexpr double kOpen = std::numeric_limits<double>::min();
  constexpr double kEndless = std::numeric_limits<double>::max();
  return StrCat("a number ", least == kOpen ? "above 0" : StrCat("of at least ", NumberText(least)),
                most == kEndless ? "" : StrCat(" and at most ", NumberText(most)));
}

bool IsTrue(std::string_view text) { return text == "true" || text == "yes" || text == "on"; }
bool IsFalse(std::string_view text) { return text == "false" || text == "no" || text == "off"; }

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceSize(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// Whether the target took the value.
bool Take(const IntegerField& field, const std::string& text) {
  const std::optional<int64_t> number = ParseNumber<int64_t>(text);
  if (!number.has_value() || *number < field.least || *number > field.most) return false;
  *field.value = *number;
  return true;
}
bool Take(const SeedField& field, const std::string& text) {
  const std::optional<int64_t> number = ParseNumber<int64_t>(text);
  if (!number.has_value() || *number < 0) return false;
  *field.value = static_cast<uint64_t>(*number);
  return true;
}
bool Take(const RealField& field, const std::string& text) {
  const std::optional<double> number = ParseNumber<double>(text);
  if (!number.has_value() || !InRange(*number, field.least, field.most)) return false;
  *field.value = *number;
  return true;
}
bool Take(const DefaultedRealField& field, const std::string& text) {
  const std::optional<double> number = ParseNumber<double>(text);
  if (!number.has_value() || !InRange(*number, field.least, field.most)) return false;
  *field.value = *number;
  return true;
}
bool Take(const SizeField& field, const std::string& text) {
  const absl::StatusOr<Bytes> size = ParseBytes(text);
  if (!size.ok() || *size < field.least) return false;
  *field.value = *size;
  return true;
}
bool Take(const FlagField& field, const std::string& text) {
  if (!IsTrue(text) && !IsFalse(text)) return false;
  *field.value = IsTrue(text);
  return true;
}
bool Take(const TextField& field, const std::string& text) {
  if (!IsUtf8(text) || text.find('\0') != std::string::npos) return false;
  *field.value = text;
  return true;
}
bool Take(const NameField& field, const std::string& text) {
  if (std::find(field.names.begin(), field.names.end(), text) == field.names.end()) return false;
  *field.value = text;
  return true;
}
// SetField handles lists.
bool Take(const ListField&, const std::string&) { return false; }
bool Take(const RealListField&, const std::string&) { return false; }
bool Take(const GroupListField&, const std::string&) { return false; }
bool Take(const ChoiceField& field, const std::string& text) {
  const auto found = std::find(field.names.begin(), field.names.end(), text);
  if (found == field.names.end()) return false;
  field.set(static_cast<size_t>(found - field.names.begin()));
  return true;
}

}  // namespace

std::string DescribeType(const ConfigField& field) {
  return std::visit(
      Overloaded{[](const IntegerField& f) {
                   return StrCat("a whole number from ", f.least, " to ", f.most);
                 },
                 [](const SeedField&) { return StrCat("a whole number of at least 0"); },
                 [](const RealField& f) { return DescribeReal(f.least, f.most); },
                 [](const DefaultedRealField& f) { return DescribeReal(f.least, f.most); },
                 [](const SizeField& f) {
                   return StrCat("a size like 128MiB",
                                 f.least > Bytes::Zero() ? " that is more than 0" : "");
                 },
                 [](const FlagField&) { return StrCat("true or false"); },
                 [](const TextField&) { return StrCat("text"); },
                 [](const NameField& f) { return OneOf(f.names); },
                 [](const ListField&) { return StrCat("a list of text"); },
                 [](const RealListField& f) {
                   return StrCat("a list, each ", DescribeReal(f.least, f.most));
                 },
                 [](const GroupListField&) {
                   return StrCat(
                       "a list of match=PATTERN;learning_rate_factor=NUMBER;"
                       "weight_decay=NUMBER");
                 },
                 [](const ChoiceField& f) { return OneOf(f.names); }},
      field.target);
}

bool IsList(const ConfigField& field) {
  return std::holds_alternative<ListField>(field.target) ||
         std::holds_alternative<RealListField>(field.target) ||
         std::holds_alternative<GroupListField>(field.target);
}

std::vector<std::string> ValuesOf(const ConfigField& field) {
  using Values = std::vector<std::string>;
  return std::visit(
      Overloaded{[](const IntegerField& f) { return Values{StrCat(*f.value)}; },
                 [](const SeedField& f) { return Values{StrCat(*f.value)}; },
                 [](const RealField& f) { return Values{NumberText(*f.value)}; },
                 [](const DefaultedRealField& f) {
                   return Values{NumberText(f.value->has_value() ? **f.value : f.implied())};
                 },
                 [](const SizeField& f) { return Values{SizeText(*f.value)}; },
                 [](const FlagField& f) { return Values{*f.value ? "true" : "false"}; },
                 [](const TextField& f) { return Values{*f.value}; },
                 [](const NameField& f) { return Values{*f.value}; },
                 [](const ListField& f) { return *f.value; },
                 [](const RealListField& f) {
                   Values values;
                   for (const double number : *f.value) values.push_back(NumberText(number));
                   return values;
                 },
                 [](const GroupListField& f) {
                   Values values;
                   for (const ParameterGroup& group : *f.value) {
                     values.push_back(FormatParameterGroup(group));
                   }
                   return values;
                 },
                 [](const ChoiceField& f) { return Values{std::string(f.names[f.get()])}; }},
      field.target);
}

absl::Status SetField(const ConfigField& field, std::span<const std::string> values) {
  const auto expected = [&](std::string_view got) {
    return InvalidArgument("expected ", DescribeType(field), ", not ", got);
  };
  for (const std::string& value : values) {
    if (!IsUtf8(value)) return expected("bytes that are no UTF-8");
  }
  if (const auto* list = std::get_if<ListField>(&field.target)) {
    list->value->assign(values.begin(), values.end());
    return absl::OkStatus();
  }
  if (const auto* list = std::get_if<RealListField>(&field.target)) {
    std::vector<double> numbers;
    for (const std::string& value : values) {
      const std::optional<double> number = ParseNumber<double>(value);
      if (!number.has_value() || !InRange(*number, list->least, list->most)) {
        return expected(StrCat("'", value, "'"));
      }
      numbers.push_back(*number);
    }
    *list->value = std::move(numbers);
    return absl::OkStatus();
  }
  if (const auto* list = std::get_if<GroupListField>(&field.target)) {
    std::vector<ParameterGroup> groups;
    for (const std::string& value : values) {
      GANTRY_ASSIGN_OR_RETURN(ParameterGroup group, ParseParameterGroup(value));
      groups.push_back(std::move(group));
    }
    *list->value = std::move(groups);
    return absl::OkStatus();
  }
  if (values.size() != 1) return expected(StrCat("a list of ", values.size()));
  if (std::visit([&](const auto& target) { return Take(target, values[0]); }, field.target)) {
    return absl::OkStatus();
  }
  return expected(StrCat("'", values[0], "'"));
}

}  // namespace gantry
