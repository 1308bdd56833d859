#include "trainer/chat_template/string_literal.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/python_text.h"

namespace gantry {
namespace {

constexpr std::string_view kLetters = "abfnrtv\\'\"";
constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";

// The code point of `digits` hexadecimal digits at `at`, which moves behind them.
absl::Status AppendHex(std::string_view literal, size_t digits, size_t& at, std::string& out) {
  const std::string_view text = literal.substr(at, digits);
  uint32_t code = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), code, 16);
  if (text.size() < digits || read.ec != std::errc() || read.ptr != text.data() + digits) {
    return InvalidArgument("an escape in this string needs ", digits, " hexadecimal digits");
  }
  if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
    return InvalidArgument("an escape in this string is no Unicode character");
  }
  AppendCodePoint(code, out);
  at += digits;
  return absl::OkStatus();
}

void AppendOctal(std::string_view literal, size_t& at, std::string& out) {
  char32_t code = 0;
  const size_t end = std::min(at + 3, literal.size());
  while (at < end && literal[at] >= '0' && literal[at] <= '7') {
    code = code * 8 + static_cast<char32_t>(literal[at++] - '0');
  }
  AppendCodePoint(code, out);
}

// Jinja turns what is not ASCII into an escape before it looks for escapes.
void AppendLostEscape(std::string_view literal, size_t& at, std::string& out) {
  char32_t code = NextCodePoint(literal, at);
  const int digits = code <= 0xff ? 2 : code <= 0xffff ? 4 : 8;
  out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[(code >> (4 * i)) & 0xf];
}

}  // namespace

absl::Status UnescapeLiteral(std::string_view literal, std::string& out) {
  for (size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\') {
      out += literal[at++];
      continue;
    }
    const char letter = literal[++at];
    const size_t simple = kLetters.find(letter);
    if (simple != std::string_view::npos) {
      out += kMeanings[simple];
      ++at;
    } else if (letter == '\n') {
      ++at;
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      GANTRY_RETURN_IF_ERROR(AppendHex(literal, digits, ++at, out));
    } else if (letter >= '0' && letter <= '7') {
      AppendOctal(literal, at, out);
    } else if (letter == 'N') {
      return InvalidArgument("\\N in this string: names of characters are not supported");
    } else if (static_cast<uint8_t>(letter) >= 0x80) {
      AppendLostEscape(literal, at, out);
    } else {
      out += '\\';
      out += letter;
      ++at;
    }
  }
  return absl::OkStatus();
}

}  // namespace gantry
