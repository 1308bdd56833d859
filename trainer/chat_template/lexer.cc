#include "trainer/chat_template/lexer.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/python_text.h"
#include "trainer/chat_template/string_literal.h"
#include "trainer/chat_template/text_tables.h"

namespace gantry {
namespace {

using Kind = TemplateToken::Kind;

// Longest first.
constexpr std::array<std::string_view, 25> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};

// Line ends as \n, and none at the end.
std::string NormalizeLineEnds(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool IsAsciiDigit(char character) { return character >= '0' && character <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<TemplateToken>> Run() {
    while (at_ < source_.size()) {
      const size_t open = NextOpening();
      if (open == std::string_view::npos) {
        AddText(source_.substr(at_), at_);
        at_ = source_.size();
        break;
      }
      GANTRY_RETURN_IF_ERROR(Opening(open));
    }
    Add(Kind::kEnd, "", at_);
    return std::move(tokens_);
  }

 private:
  size_t NextOpening() const {
    for (size_t at = source_.find('{', at_); at != std::string_view::npos;
         at = source_.find('{', at + 1)) {
      if (at + 1 >= source_.size()) break;
      const char next = source_[at + 1];
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string_view::npos;
  }

  // The text before a tag, then what the tag opens.
  absl::Status Opening(size_t open) {
    const char type = source_[open + 1];
    const size_t after = open + 2;
    const char sign = after < source_.size() ? source_[after] : '\0';
    std::string_view text = source_.substr(at_, open - at_);
    if (sign == '-') {
      text = PythonStrip(text, std::nullopt, StripSides::kRight);
    } else if (sign != '+' && type != '{') {
      text = WithoutIndentation(text);
    }
    AddText(text, at_);
    const size_t inside = sign == '-' || sign == '+' ? after + 1 : after;
    if (type == '#') return Comment(open, inside);
    if (type == '%') {
      const std::optional<size_t> raw = RawBegin(inside);
      if (raw.has_value()) return Raw(open, *raw);
    }
    Add(type == '%' ? Kind::kTagBegin : Kind::kPrintBegin, "", open);
    at_ = inside;
    return Inside(open, type == '%' ? "%}" : "}}");
  }

  // lstrip_blocks: spaces between the beginning of a line and a tag go.
  std::string_view WithoutIndentation(std::string_view text) const {
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return text;
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    const bool blank = PythonStrip(text.substr(line), std::nullopt, StripSides::kLeft).empty();
    return blank ? text.substr(0, line) : text;
  }

  void SkipSpace(size_t& at) const {
    const std::string_view rest = source_.substr(at);
    at += rest.size() - PythonStrip(rest, std::nullopt, StripSides::kLeft).size();
  }

  // Behind the end of a tag: its own whitespace control, and trim_blocks.
  void Close(size_t end, char sign, bool is_tag) {
    at_ = end;
    if (sign == '-') {
      SkipSpace(at_);
    } else if (sign != '+' && is_tag && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  absl::Status Comment(size_t open, size_t inside) {
    const size_t end = source_.find("#}", inside);
    if (end == std::string_view::npos) {
      return TemplateError(PositionOf(open), "this comment has no end");
    }
    const char sign = end > inside ? source_[end - 1] : '\0';
    Close(end + 2, sign, true);
    return absl::OkStatus();
  }

  // Where the text of a raw block begins, if `at`, in a tag, is one.
  std::optional<size_t> RawBegin(size_t at) const {
    SkipSpace(at);
    if (source_.substr(at, 3) != "raw") return std::nullopt;
    at += 3;
    SkipSpace(at);
    if (source_.substr(at, 3) == "-%}") {
      at += 3;
      SkipSpace(at);
      return at;
    }
    if (source_.substr(at, 2) == "%}") return at + 2;
    return std::nullopt;
  }

  // Up to {% endraw %}.
  absl::Status Raw(size_t open, size_t begin) {
    line_starting_ = source_[begin - 1] == '\n';
    for (size_t tag = source_.find("{%", begin); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 1)) {
      size_t at = tag + 2;
      const char sign = at < source_.size() ? source_[at] : '\0';
      if (sign == '-' || sign == '+') ++at;
      SkipSpace(at);
      if (source_.substr(at, 6) != "endraw") continue;
      at += 6;
      SkipSpace(at);
      const char end_sign = at < source_.size() ? source_[at] : '\0';
      if (end_sign == '-' || end_sign == '+') ++at;
      if (source_.substr(at, 2) != "%}") continue;
      std::string_view text = source_.substr(begin, tag - begin);
      if (sign == '-') {
        text = PythonStrip(text, std::nullopt, StripSides::kRight);
      } else if (sign != '+') {
        text = WithoutIndentation(text);
      }
      AddText(text, begin);
      Close(at + 2, end_sign, true);
      return absl::OkStatus();
    }
    return TemplateError(PositionOf(open), "this raw block has no end");
  }

  // The tokens up to `end`.
  absl::Status Inside(size_t open, std::string_view end) {
    std::string closers;
    const bool is_tag = end == "%}";
    while (true) {
      SkipSpace(at_);
      if (at_ >= source_.size()) return TemplateError(PositionOf(open), "this tag has no end");
      if (closers.empty()) {
        const char sign = source_[at_];
        const bool signed_end = sign == '-' || (sign == '+' && is_tag);
        if (signed_end && source_.substr(at_ + 1, 2) == end) {
          Add(is_tag ? Kind::kTagEnd : Kind::kPrintEnd, "", at_);
          Close(at_ + 3, sign, is_tag);
          return absl::OkStatus();
        }
        if (source_.substr(at_, 2) == end) {
          Add(is_tag ? Kind::kTagEnd : Kind::kPrintEnd, "", at_);
          Close(at_ + 2, '\0', is_tag);
          return absl::OkStatus();
        }
      }
      GANTRY_RETURN_IF_ERROR(OneToken(closers));
    }
  }

  absl::Status OneToken(std::string& closers) {
    const char first = source_[at_];
    if (IsAsciiDigit(first)) return Number();
    if (first == '\'' || first == '"') return String();
    if (IsNameStart()) {
      Name();
      return absl::OkStatus();
    }
    for (const std::string_view candidate : kOperators) {
      if (source_.substr(at_, candidate.size()) != candidate) continue;
      GANTRY_RETURN_IF_ERROR(Balance(candidate, closers));
      Add(Kind::kOperator, std::string(candidate), at_);
      at_ += candidate.size();
      return absl::OkStatus();
    }
    size_t end = at_;
    NextCodePoint(source_, end);
    return TemplateError(PositionOf(at_), "unexpected character ",
                         PythonRepr(source_.substr(at_, end - at_)));
  }

  absl::Status Balance(std::string_view text, std::string& closers) const {
    if (text == "(" || text == "[" || text == "{") {
      closers += text == "(" ? ')' : text == "[" ? ']' : '}';
      return absl::OkStatus();
    }
    if (text != ")" && text != "]" && text != "}") return absl::OkStatus();
    if (closers.empty()) return TemplateError(PositionOf(at_), "unexpected '", text, "'");
    if (closers.back() != text[0]) {
      return TemplateError(PositionOf(at_), "unexpected '", text, "', expected '", closers.back(),
                           "'");
    }
    closers.pop_back();
    return absl::OkStatus();
  }

  bool IsNameStart() const {
    size_t end = at_;
    const char32_t code = NextCodePoint(source_, end);
    return code == '_' || text_tables::IsAlphabetic(code);
  }

  void Name() {
    size_t end = at_;
    while (end < source_.size()) {
      size_t next = end;
      const char32_t code = NextCodePoint(source_, next);
      if (code != '_' && !text_tables::IsAlphabetic(code) && !text_tables::IsDecimal(code)) break;
      end = next;
    }
    Add(Kind::kName, std::string(source_.substr(at_, end - at_)), at_);
    at_ = end;
  }

  absl::Status String() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return TemplateError(PositionOf(at_), "this string has no end");
    std::string text;
    const absl::Status status = UnescapeLiteral(source_.substr(at_ + 1, end - at_ - 1), text);
    if (!status.ok()) return TemplateError(PositionOf(at_), FromAbsl(status.message()));
    Add(Kind::kString, std::move(text), at_);
    at_ = end + 1;
    return absl::OkStatus();
  }

  // Digits with single _ between them, from `at` on.
  size_t DigitsEnd(size_t at) const {
    while (at < source_.size()) {
      if (IsAsciiDigit(source_[at])) {
        ++at;
      } else if (source_[at] == '_' && at + 1 < source_.size() && IsAsciiDigit(source_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  // Where a float that begins here ends, or nothing when it is an integer.
  std::optional<size_t> FloatEnd() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return std::nullopt;
    size_t end = DigitsEnd(at_);
    bool is_float = false;
    if (end + 1 < source_.size() && source_[end] == '.' && IsAsciiDigit(source_[end + 1])) {
      end = DigitsEnd(end + 1);
      is_float = true;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      if (exponent < source_.size() && IsAsciiDigit(source_[exponent])) {
        return DigitsEnd(exponent);
      }
    }
    return is_float ? std::optional<size_t>(end) : std::nullopt;
  }

  std::string WithoutUnderscores(size_t begin, size_t end) const {
    std::string digits(source_.substr(begin, end - begin));
    std::erase(digits, '_');
    return digits;
  }

  absl::Status Number() {
    const std::optional<size_t> float_end = FloatEnd();
    if (float_end.has_value()) {
      const std::string digits = WithoutUnderscores(at_, *float_end);
      Add(Kind::kFloat, "", at_);
      tokens_.back().floating = std::strtod(digits.c_str(), nullptr);
      at_ = *float_end;
      return absl::OkStatus();
    }
    return Integer();
  }

  // Decimal, or after 0b, 0o, 0x. Zeros may lead nothing but zeros.
  absl::Status Integer() {
    int base = 10;
    size_t begin = at_;
    size_t end = at_;
    if (source_[at_] == '0') {
      const char prefix = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
      base = prefix == 'b' || prefix == 'B'   ? 2
             : prefix == 'o' || prefix == 'O' ? 8
             : prefix == 'x' || prefix == 'X' ? 16
                                              : 10;
      if (base != 10) {
        begin = at_ + 2;
        end = BaseDigitsEnd(begin, base);
        if (end == begin) base = 10;  // a zero, and a name behind it
      }
      if (base == 10) {
        begin = at_;
        end = at_ + 1;
        while (end < source_.size() && (source_[end] == '0' || source_.substr(end, 2) == "_0")) {
          end += source_[end] == '0' ? 1 : 2;
        }
      }
    } else {
      end = DigitsEnd(at_);
    }
    const std::string digits = WithoutUnderscores(begin, end);
    int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value, base).ec !=
        std::errc()) {
      return TemplateError(PositionOf(at_), "the integer ", digits, " has more than 64 bits");
    }
    Add(Kind::kInteger, "", at_);
    tokens_.back().integer = value;
    at_ = end;
    return absl::OkStatus();
  }

  size_t BaseDigitsEnd(size_t at, int base) const {
    const auto is_digit = [&](size_t i) {
      if (i >= source_.size()) return false;
      const char c = source_[i];
      const int digit = IsAsciiDigit(c)        ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      return digit < base;
    };
    while (is_digit(at) || (at < source_.size() && source_[at] == '_' && is_digit(at + 1))) ++at;
    return at;
  }

  // Offsets come in ascending order but for the openings of tags without an end.
  TemplatePosition PositionOf(size_t offset) const {
    if (offset < known_offset_) {
      known_offset_ = 0;
      known_ = TemplatePosition();
    }
    while (known_offset_ < offset) {
      const bool newline = source_[known_offset_] == '\n';
      NextCodePoint(source_, known_offset_);
      known_ = newline ? TemplatePosition{known_.line + 1, 1}
                       : TemplatePosition{known_.line, known_.column + 1};
    }
    return known_;
  }

  void Add(Kind kind, std::string text, size_t offset) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .at = PositionOf(offset)});
  }
  void AddText(std::string_view text, size_t offset) {
    if (!text.empty()) Add(Kind::kText, std::string(text), offset);
  }

  const std::string_view source_;
  size_t at_ = 0;
  bool line_starting_ = true;
  std::vector<TemplateToken> tokens_;
  mutable size_t known_offset_ = 0;
  mutable TemplatePosition known_;
};

}  // namespace

absl::StatusOr<std::vector<TemplateToken>> Tokenize(std::string_view source) {
  if (!IsValidUtf8(source)) return InvalidArgument("the template is not UTF-8");
  const std::string text = NormalizeLineEnds(source);
  return Lexer(text).Run();
}

}  // namespace gantry
