// The filters that make text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/attribute_path.h"
#include "trainer/chat_template/filters.h"
#include "trainer/chat_template/json_text.h"
#include "trainer/chat_template/methods.h"
#include "trainer/chat_template/python_text.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/text_format.h"
#include "trainer/chat_template/text_tables.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

absl::Status TakesNothing(const Arguments& arguments) {
  return BoundArguments::Bind(arguments, {.function = "filter", .names = {}}).status();
}

template <std::string (*kConvert)(std::string_view)>
absl::StatusOr<Value> Convert(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  GANTRY_ASSIGN_OR_RETURN(const std::string text, ToText(value, state.budget()));
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(3 * text.size()));
  return Value::String(kConvert(text));
}

std::string Same(std::string_view text) { return std::string(text); }

// Jinja's title: words begin behind spaces, hyphens and opening brackets.
std::string Title(std::string_view text) {
  const auto divides = [](char32_t code) {
    return text_tables::IsSpace(code) ||
           (code < 0x80 &&
            std::string_view("-({[<").find(static_cast<char>(code)) != std::string_view::npos);
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t next = at;
    const char32_t first = NextCodePoint(text, next);
    if (divides(first)) {
      out += text.substr(at, next - at);
      at = next;
      continue;
    }
    size_t end = next;
    while (end < text.size()) {
      size_t behind = end;
      if (divides(NextCodePoint(text, behind))) break;
      end = behind;
    }
    out += PythonUpper(text.substr(at, next - at));
    out += PythonLower(text.substr(next, end - next));
    at = end;
  }
  return out;
}

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

absl::StatusOr<Value> Trim(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "trim", .names = {"chars"}}));
  std::optional<std::string> characters;
  if (bound.IsSet(0)) {
    GANTRY_ASSIGN_OR_RETURN(characters, TextOf(bound[0]));
  }
  GANTRY_ASSIGN_OR_RETURN(const std::string text, ToText(value, state.budget()));
  return Value::String(PythonStrip(text, characters, StripSides::kBoth));
}

absl::StatusOr<Value> Replace(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(
          arguments, {.function = "replace", .names = {"old", "new", "count"}, .required = 2}));
  int64_t count = -1;
  if (bound.IsSet(2)) {
    GANTRY_ASSIGN_OR_RETURN(count, bound.Integer(2, -1));
  }
  GANTRY_ASSIGN_OR_RETURN(const std::string text, ToText(value, state.budget()));
  GANTRY_ASSIGN_OR_RETURN(const std::string from, ToText(bound[0], state.budget()));
  GANTRY_ASSIGN_OR_RETURN(const std::string to, ToText(bound[1], state.budget()));
  GANTRY_ASSIGN_OR_RETURN(
      const std::string replaced,
      ReplaceText({.text = text, .from = from, .to = to, .count_max = count}, state.budget()));
  return Value::String(replaced);
}

absl::StatusOr<Value> Indent(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(const BoundArguments bound,
                          BoundArguments::Bind(arguments, {.function = "indent",
                                                           .names = {"width", "first", "blank"}}));
  GANTRY_ASSIGN_OR_RETURN(const std::string text, TextOf(value));
  std::string indentation;
  if (bound.Has(0) && bound[0].Is(Kind::kString)) {
    indentation = bound[0].string();
  } else {
    GANTRY_ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 4));
    const auto size = static_cast<size_t>(std::max<int64_t>(width, 0));
    GANTRY_RETURN_IF_ERROR(state.budget().SpendText(size));
    indentation.assign(size, ' ');
  }
  const bool blank = bound.Flag(2, false);
  const std::string with_end = text + "\n";
  const std::vector<std::string_view> lines = PythonSplitLines(with_end, LineEnds::kDrop);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? bound.Flag(1, false) : blank || !lines[i].empty()) out += indentation;
    out += lines[i];
    GANTRY_RETURN_IF_ERROR(state.budget().CheckText(out.size()));
    GANTRY_RETURN_IF_ERROR(state.budget().SpendText(lines[i].size() + indentation.size()));
  }
  return Value::String(out);
}

absl::StatusOr<Value> Join(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "join", .names = {"d", "attribute"}}));
  GANTRY_ASSIGN_OR_RETURN(const std::string separator,
                          ToText(bound.Or(0, Value::String("")), state.budget()));
  std::optional<AttributePath> path;
  if (bound.IsSet(1)) {
    GANTRY_ASSIGN_OR_RETURN(path, AttributePath::Parse(bound[1]));
  }
  GANTRY_ASSIGN_OR_RETURN(const auto iterator, Iterate(value, state.budget()));
  std::string out;
  for (bool first = true;; first = false) {
    GANTRY_ASSIGN_OR_RETURN(std::optional<Value> item, iterator->Next());
    if (!item.has_value()) break;
    if (path.has_value()) {
      GANTRY_ASSIGN_OR_RETURN(item, path->Read(state, *item));
    }
    GANTRY_ASSIGN_OR_RETURN(const std::string text, ToText(*item, state.budget()));
    if (!first) out += separator;
    out += text;
    GANTRY_RETURN_IF_ERROR(state.budget().CheckText(out.size()));
    GANTRY_RETURN_IF_ERROR(state.budget().SpendText(text.size() + separator.size()));
  }
  return Value::String(out);
}

absl::StatusOr<Value> Format(RenderState& state, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return InvalidArgument("format takes positional or named arguments, not both");
  }
  GANTRY_ASSIGN_OR_RETURN(const std::string format, ToText(value, state.budget()));
  Value values = Value::Tuple(arguments.positional);
  if (!arguments.named.empty()) {
    Value::Entries entries;
    for (const auto& [name, item] : arguments.named) {
      entries.emplace_back(Value::String(name), item);
    }
    values = Value::Dict(std::move(entries));
  }
  GANTRY_ASSIGN_OR_RETURN(const std::string text, FormatPercent(format, values, state.budget()));
  return Value::String(text);
}

absl::StatusOr<Value> Truncate(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(
          arguments, {.function = "truncate", .names = {"length", "killwords", "end", "leeway"}}));
  GANTRY_ASSIGN_OR_RETURN(const int64_t length, bound.Integer(0, 255));
  GANTRY_ASSIGN_OR_RETURN(const std::string end, bound.Text(2, "..."));
  GANTRY_ASSIGN_OR_RETURN(const int64_t leeway, bound.IsSet(3) ? bound.Integer(3, 5) : 5);
  const int64_t kept = length - CountCodePoints(end);
  if (kept < 0 || leeway < 0) return InvalidArgument("truncate: too short, or a negative leeway");
  GANTRY_ASSIGN_OR_RETURN(const int64_t size, LengthOf(value));
  if (size <= leeway || size - leeway <= length) return value;
  GANTRY_ASSIGN_OR_RETURN(const std::string text, TextOf(value));
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(text.size()));
  const std::vector<size_t> offsets = CodePointOffsets(text);
  std::string cut = text.substr(0, offsets[static_cast<size_t>(std::min(kept, size))]);
  if (!bound.Flag(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return Value::String(cut + end);
}

absl::StatusOr<Value> WordCount(RenderState& state, const Value& value,
                                const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  GANTRY_ASSIGN_OR_RETURN(const std::string text, ToText(value, state.budget()));
  int64_t count = 0;
  bool within = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = NextCodePoint(text, at);
    const bool word = code == '_' || text_tables::IsAlphabetic(code) || text_tables::IsDigit(code);
    if (word && !within) ++count;
    within = word;
  }
  return Value::Integer(count);
}

absl::StatusOr<Value> Center(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "center", .names = {"width"}}));
  GANTRY_ASSIGN_OR_RETURN(const std::string text, ToText(value, state.budget()));
  return FindStringMethod("center")(state, Value::String(text),
                                    {.positional = {bound.Or(0, Value::Integer(80))}, .named = {}});
}

absl::StatusOr<Value> ToJson(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(
          arguments,
          {.function = "tojson", .names = {"ensure_ascii", "indent", "separators", "sort_keys"}}));
  JsonOptions options{.ensure_ascii = bound.Flag(0, false), .indent = std::nullopt};
  options.sort_keys = bound.Flag(3, false);
  if (bound.IsSet(1)) {
    options.item_separator = std::string(1, ',');
    if (bound[1].Is(Kind::kString)) {
      options.indent = bound[1].string();
    } else {
      GANTRY_ASSIGN_OR_RETURN(const int64_t width, bound.Integer(1, 0));
      const auto size = static_cast<size_t>(std::max<int64_t>(width, 0));
      GANTRY_RETURN_IF_ERROR(state.budget().SpendText(size));
      options.indent = std::string(size, ' ');
    }
  }
  if (bound.IsSet(2)) {
    GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> separators, ToItems(bound[2], state.budget()));
    if (separators.size() != 2) return InvalidArgument("tojson needs two separators");
    GANTRY_ASSIGN_OR_RETURN(options.item_separator, TextOf(separators[0]));
    GANTRY_ASSIGN_OR_RETURN(options.key_separator, TextOf(separators[1]));
  }
  GANTRY_ASSIGN_OR_RETURN(const std::string text, WriteJson(value, options, state.budget()));
  return Value::String(text);
}

}  // namespace

FilterFunction FindTextFilter(std::string_view name) {
  struct NamedFilter {
    std::string_view name;
    FilterFunction function;
  };
  constexpr NamedFilter kFilters[] = {
      {"capitalize", &Convert<PythonCapitalize>},
      {"center", &Center},
      {"e", &Convert<Escape>},
      {"escape", &Convert<Escape>},
      {"forceescape", &Convert<Escape>},
      {"format", &Format},
      {"indent", &Indent},
      {"join", &Join},
      {"lower", &Convert<PythonLower>},
      {"replace", &Replace},
      {"safe", &Convert<Same>},
      {"string", &Convert<Same>},
      {"title", &Convert<Title>},
      {"tojson", &ToJson},
      {"trim", &Trim},
      {"truncate", &Truncate},
      {"upper", &Convert<PythonUpper>},
      {"wordcount", &WordCount},
  };
  for (const NamedFilter& filter : kFilters) {
    if (filter.name == name) return filter.function;
  }
  return nullptr;
}

}  // namespace gantry
