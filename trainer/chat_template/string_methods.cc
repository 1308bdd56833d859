#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
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
#include "trainer/chat_template/brace_format.h"
#include "trainer/chat_template/budget.h"
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
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

absl::Status TakesNothing(std::string_view name, const Arguments& arguments) {
  return BoundArguments::Bind(arguments, {.function = name, .names = {}}).status();
}

// Methods that give another text and take no arguments.
template <std::string (*kConvert)(std::string_view)>
absl::StatusOr<Value> Convert(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing("str method", arguments));
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(3 * self.string().size()));
  return Value::String(kConvert(self.string()));
}

template <StripSides kSides>
absl::StatusOr<Value> Strip(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "strip", .names = {"chars"}}));
  std::optional<std::string> characters;
  if (bound.IsSet(0)) {
    GANTRY_ASSIGN_OR_RETURN(characters, TextOf(bound[0]));
    GANTRY_RETURN_IF_ERROR(state.budget().SpendText(characters->size()));
  }
  return TextValue(PythonStrip(self.string(), characters, kSides), state.budget());
}

absl::StatusOr<Value> TextList(const std::vector<std::string_view>& parts, Budget& budget) {
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    GANTRY_ASSIGN_OR_RETURN(Value item, TextValue(part, budget));
    items.push_back(std::move(item));
  }
  return Value::List(std::move(items));
}

template <bool kFromRight>
absl::StatusOr<Value> Split(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "split", .names = {"sep", "maxsplit"}}));
  SplitOptions options{.separator = std::nullopt, .splits_max = -1, .from_right = kFromRight};
  std::string separator;
  if (bound.IsSet(0)) {
    GANTRY_ASSIGN_OR_RETURN(separator, TextOf(bound[0]));
    if (separator.empty()) return InvalidArgument("empty separator");
    options.separator = separator;
  }
  GANTRY_ASSIGN_OR_RETURN(options.splits_max, bound.Integer(1, -1));
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(self.string().size()));
  return TextList(PythonSplit(self.string(), options), state.budget());
}

absl::StatusOr<Value> SplitLines(RenderState& state, const Value& self,
                                 const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "splitlines", .names = {"keepends"}}));
  const LineEnds ends = bound.Flag(0, false) ? LineEnds::kKeep : LineEnds::kDrop;
  return TextList(PythonSplitLines(self.string(), ends), state.budget());
}

// A part of a text by code points, as str methods take start and end.
struct Part {
  std::string_view text;
  int64_t start;  // in code points
  bool valid;     // false where start lies behind the end: then nothing is found, not even ""
};

absl::StatusOr<Part> PartOf(const Value& self, const BoundArguments& bound, size_t first) {
  GANTRY_ASSIGN_OR_RETURN(int64_t start, bound.IsSet(first) ? bound.Integer(first, 0) : 0);
  GANTRY_ASSIGN_OR_RETURN(int64_t end,
                          bound.IsSet(first + 1) ? bound.Integer(first + 1, 0) : kNoLimit);
  if (start == 0 && end == kNoLimit) return Part{self.string(), 0, true};
  const std::vector<size_t> offsets = CodePointOffsets(self.string());
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  if (start < 0) start = std::max<int64_t>(start + size, 0);
  if (end < 0) end = std::max<int64_t>(end + size, 0);
  end = std::min(end, size);
  if (start > end) return Part{"", start, false};
  const size_t begin = offsets[static_cast<size_t>(start)];
  return Part{
      std::string_view(self.string()).substr(begin, offsets[static_cast<size_t>(end)] - begin),
      start, true};
}

template <bool kAtStart>
absl::StatusOr<Value> Affix(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = kAtStart ? "startswith" : "endswith",
                                       .names = {"prefix", "start", "end"},
                                       .required = 1}));
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(self.string().size()));
  GANTRY_ASSIGN_OR_RETURN(const Part part, PartOf(self, bound, 1));
  std::vector<Value> affixes = {bound[0]};
  if (bound[0].Is(Kind::kTuple)) affixes = bound[0].items();
  for (const Value& affix : affixes) {
    GANTRY_ASSIGN_OR_RETURN(const std::string text, TextOf(affix));
    const bool has = kAtStart ? part.text.starts_with(text) : part.text.ends_with(text);
    if (part.valid && has) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool kPrefix>
absl::StatusOr<Value> RemoveAffix(RenderState& state, const Value& self,
                                  const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = kPrefix ? "removeprefix" : "removesuffix",
                                       .names = {"affix"},
                                       .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::string affix, TextOf(bound[0]));
  std::string_view text = self.string();
  if (kPrefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kPrefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return TextValue(text, state.budget());
}

absl::StatusOr<Value> Replace(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(
          arguments, {.function = "replace", .names = {"old", "new", "count"}, .required = 2}));
  GANTRY_ASSIGN_OR_RETURN(const std::string from, TextOf(bound[0]));
  GANTRY_ASSIGN_OR_RETURN(const std::string to, TextOf(bound[1]));
  GANTRY_ASSIGN_OR_RETURN(const int64_t count, bound.Integer(2, -1));
  GANTRY_ASSIGN_OR_RETURN(
      const std::string text,
      ReplaceText({.text = self.string(), .from = from, .to = to, .count_max = count},
                  state.budget()));
  return Value::String(text);
}

enum class Search : uint8_t { kFind, kIndex, kFindLast, kIndexLast };

template <Search kSearch>
absl::StatusOr<Value> Find(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments,
                           {.function = "find", .names = {"sub", "start", "end"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::string sub, TextOf(bound[0]));
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(self.string().size()));
  GANTRY_ASSIGN_OR_RETURN(const Part part, PartOf(self, bound, 1));
  const bool last = kSearch == Search::kFindLast || kSearch == Search::kIndexLast;
  const size_t found = last ? part.text.rfind(sub) : part.text.find(sub);
  if (part.valid && found != std::string_view::npos) {
    return Value::Integer(part.start + CountCodePoints(part.text.substr(0, found)));
  }
  if (kSearch == Search::kIndex || kSearch == Search::kIndexLast) {
    return InvalidArgument("substring not found");
  }
  return Value::Integer(-1);
}

absl::StatusOr<Value> Count(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments,
                           {.function = "count", .names = {"sub", "start", "end"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::string sub, TextOf(bound[0]));
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(self.string().size()));
  GANTRY_ASSIGN_OR_RETURN(const Part part, PartOf(self, bound, 1));
  if (!part.valid) return Value::Integer(0);
  if (sub.empty()) return Value::Integer(CountCodePoints(part.text) + 1);
  int64_t count = 0;
  for (size_t at = part.text.find(sub); at != std::string_view::npos;
       at = part.text.find(sub, at + sub.size())) {
    ++count;
  }
  return Value::Integer(count);
}

absl::StatusOr<Value> Join(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "join", .names = {"iterable"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items, ToItems(bound[0], state.budget()));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].Is(Kind::kString)) {
      return InvalidArgument("sequence item ", i, ": expected str instance, ", TypeName(items[i]),
                             " found");
    }
    if (i > 0) out += self.string();
    out += items[i].string();
    GANTRY_RETURN_IF_ERROR(state.budget().CheckText(out.size()));
    GANTRY_RETURN_IF_ERROR(
        state.budget().SpendText(self.string().size() + items[i].string().size()));
  }
  return Value::String(out);
}

template <bool kFromRight>
absl::StatusOr<Value> Partition(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "partition", .names = {"sep"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::string separator, TextOf(bound[0]));
  if (separator.empty()) return InvalidArgument("empty separator");
  const std::string_view text = self.string();
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(text.size()));
  const size_t found = kFromRight ? text.rfind(separator) : text.find(separator);
  if (found == std::string_view::npos) {
    const Value empty = Value::String("");
    return kFromRight ? Value::Tuple({empty, empty, self}) : Value::Tuple({self, empty, empty});
  }
  return Value::Tuple({Value::String(text.substr(0, found)), Value::String(separator),
                       Value::String(text.substr(found + separator.size()))});
}

enum class Side : uint8_t { kLeft, kCenter, kRight };

template <Side kSide>
absl::StatusOr<Value> Justify(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments,
                           {.function = "ljust", .names = {"width", "fill"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 0));
  GANTRY_ASSIGN_OR_RETURN(const std::string fill, bound.Text(1, " "));
  if (CountCodePoints(fill) != 1) {
    return InvalidArgument("the fill character must be exactly one character long");
  }
  const int64_t size = CountCodePoints(self.string());
  const int64_t padding = std::max<int64_t>(width - size, 0);
  const int64_t left = kSide == Side::kLeft    ? 0
                       : kSide == Side::kRight ? padding
                                               : padding / 2 + (padding & width & 1);
  const size_t bytes = self.string().size();
  GANTRY_RETURN_IF_ERROR(state.budget().SpendItems(static_cast<size_t>(padding) / 8));
  GANTRY_RETURN_IF_ERROR(
      state.budget().SpendText(bytes + static_cast<size_t>(padding) * fill.size()));
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.string();
  for (int64_t i = left; i < padding; ++i) out += fill;
  return Value::String(out);
}

absl::StatusOr<Value> ZeroFill(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "zfill", .names = {"width"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 0));
  const std::string& text = self.string();
  const int64_t padding = std::max<int64_t>(width - CountCodePoints(text), 0);
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(text.size() + static_cast<size_t>(padding)));
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  return Value::String(text.substr(0, sign) + std::string(static_cast<size_t>(padding), '0') +
                       text.substr(sign));
}

// str.isX: every code point passes, and there is one.
template <bool (*kTest)(char32_t)>
absl::StatusOr<Value> IsAll(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing("str method", arguments));
  const std::string& text = self.string();
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(text.size()));
  for (size_t at = 0; at < text.size();) {
    if (!kTest(NextCodePoint(text, at))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

bool IsAlphanumeric(char32_t code) {
  return text_tables::IsAlphabetic(code) || text_tables::IsDigit(code);
}

absl::StatusOr<Value> IsAscii(RenderState&, const Value& self, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing("isascii", arguments));
  return Value::Bool(std::all_of(self.string().begin(), self.string().end(),
                                 [](char c) { return static_cast<uint8_t>(c) < 0x80; }));
}

template <Casing kCasing>
absl::StatusOr<Value> IsCasing(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing("str method", arguments));
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(self.string().size()));
  return Value::Bool(HasCasing(self.string(), kCasing));
}

absl::StatusOr<Value> Format(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(const std::string text, FormatBraces(state, self.string(), arguments));
  return Value::String(text);
}

struct NamedMethod {
  std::string_view name;
  MethodFunction function;
};

constexpr NamedMethod kMethods[] = {
    {"capitalize", &Convert<PythonCapitalize>},
    {"center", &Justify<Side::kCenter>},
    {"count", &Count},
    {"endswith", &Affix<false>},
    {"find", &Find<Search::kFind>},
    {"format", &Format},
    {"index", &Find<Search::kIndex>},
    {"isalnum", &IsAll<IsAlphanumeric>},
    {"isalpha", &IsAll<text_tables::IsAlphabetic>},
    {"isascii", &IsAscii},
    {"isdecimal", &IsAll<text_tables::IsDecimal>},
    {"isdigit", &IsAll<text_tables::IsDigit>},
    {"islower", &IsCasing<Casing::kLower>},
    {"isspace", &IsAll<text_tables::IsSpace>},
    {"isupper", &IsCasing<Casing::kUpper>},
    {"join", &Join},
    {"ljust", &Justify<Side::kLeft>},
    {"lower", &Convert<PythonLower>},
    {"lstrip", &Strip<StripSides::kLeft>},
    {"partition", &Partition<false>},
    {"removeprefix", &RemoveAffix<true>},
    {"removesuffix", &RemoveAffix<false>},
    {"replace", &Replace},
    {"rfind", &Find<Search::kFindLast>},
    {"rindex", &Find<Search::kIndexLast>},
    {"rjust", &Justify<Side::kRight>},
    {"rpartition", &Partition<true>},
    {"rsplit", &Split<true>},
    {"rstrip", &Strip<StripSides::kRight>},
    {"split", &Split<false>},
    {"splitlines", &SplitLines},
    {"startswith", &Affix<true>},
    {"strip", &Strip<StripSides::kBoth>},
    {"swapcase", &Convert<PythonSwapCase>},
    {"title", &Convert<PythonTitle>},
    {"upper", &Convert<PythonUpper>},
    {"zfill", &ZeroFill},
};

absl::StatusOr<Value> Unsupported(RenderState&, const Value&, const Arguments&) {
  return InvalidArgument(
      "this method of str is not supported (casefold, encode, expandtabs, format_map, "
      "isidentifier, isnumeric, isprintable, istitle, maketrans and translate are not)");
}

constexpr std::string_view kUnsupported[] = {
    "casefold",  "encode",      "expandtabs", "format_map", "isidentifier",
    "isnumeric", "isprintable", "istitle",    "maketrans",  "translate"};

}  // namespace

MethodFunction FindStringMethod(std::string_view name) {
  const auto* const found = std::lower_bound(
      std::begin(kMethods), std::end(kMethods), name,
      [](const NamedMethod& method, std::string_view value) { return method.name < value; });
  if (found != std::end(kMethods) && found->name == name) return found->function;
  const bool known =
      std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported);
  return known ? &Unsupported : nullptr;
}

}  // namespace gantry
