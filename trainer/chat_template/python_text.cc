#include "trainer/chat_template/python_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "trainer/chat_template/text_tables.h"

namespace gantry {
namespace {

constexpr char32_t kCapitalSigma = 0x3a3;
constexpr char32_t kSmallSigma = 0x3c3;
constexpr char32_t kFinalSigma = 0x3c2;
constexpr std::string_view kHexDigits = "0123456789abcdef";

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) == 0x80; }

void AppendMapped(const text_tables::CaseMapping& mapping, char32_t code, std::string& out) {
  const auto run = std::upper_bound(
      mapping.runs.begin(), mapping.runs.end(), code,
      [](char32_t value, const text_tables::CaseRun& entry) { return value < entry.first; });
  if (run != mapping.runs.begin()) {
    const text_tables::CaseRun& found = *(run - 1);
    if (code <= found.last && (code - found.first) % found.step == 0) {
      AppendCodePoint(static_cast<char32_t>(static_cast<int64_t>(code) + found.delta), out);
      return;
    }
  }
  const auto text = std::lower_bound(
      mapping.texts.begin(), mapping.texts.end(), code,
      [](const text_tables::CaseText& entry, char32_t value) { return entry.code < value; });
  if (text != mapping.texts.end() && text->code == code) {
    out += text->text;
    return;
  }
  AppendCodePoint(code, out);
}

// Whether a sigma that lies from `begin` to `end` is the last letter of a word.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  const auto cased = [](char32_t code) {
    return text_tables::IsCased(code) && !text_tables::IsIgnoredBeforeSigma(code);
  };
  bool after_letter = false;
  for (size_t at = begin; at > 0;) {
    at = PreviousCodePoint(text, at);
    size_t next = at;
    const char32_t code = NextCodePoint(text, next);
    if (text_tables::IsIgnoredBeforeSigma(code)) continue;
    after_letter = cased(code);
    break;
  }
  if (!after_letter) return false;
  while (end < text.size()) {
    const char32_t code = NextCodePoint(text, end);
    if (text_tables::IsIgnoredBeforeSigma(code)) continue;
    return !cased(code);
  }
  return true;
}

// Lower-cases the code point from `begin` to `end`.
void AppendLower(std::string_view text, size_t begin, size_t end, std::string& out) {
  const auto byte = static_cast<uint8_t>(text[begin]);
  if (byte < 0x80) {
    out += static_cast<char>(byte >= 'A' && byte <= 'Z' ? byte + 32 : byte);
    return;
  }
  size_t at = begin;
  const char32_t code = NextCodePoint(text, at);
  if (code == kCapitalSigma) {
    AppendCodePoint(IsFinalSigma(text, begin, end) ? kFinalSigma : kSmallSigma, out);
    return;
  }
  AppendMapped(text_tables::ToLower(), code, out);
}

// Splits off words at whitespace.
std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t splits_max) {
  std::vector<std::string_view> parts;
  text = PythonStrip(text, std::nullopt, StripSides::kLeft);
  while (!text.empty()) {
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) == splits_max) {
      parts.push_back(PythonStrip(text, std::nullopt, StripSides::kRight));
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t next = end;
      if (text_tables::IsSpace(NextCodePoint(text, next))) break;
      end = next;
    }
    parts.push_back(text.substr(0, end));
    text = PythonStrip(text.substr(end), std::nullopt, StripSides::kLeft);
  }
  return parts;
}

std::vector<std::string_view> SplitAtSpaceFromRight(std::string_view text, int64_t splits_max) {
  std::vector<std::string_view> parts;
  text = PythonStrip(text, std::nullopt, StripSides::kRight);
  while (!text.empty()) {
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) == splits_max) {
      parts.push_back(PythonStrip(text, std::nullopt, StripSides::kLeft));
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t previous = PreviousCodePoint(text, begin);
      const size_t at = previous;
      if (text_tables::IsSpace(NextCodePoint(text, previous))) break;
      begin = at;
    }
    parts.push_back(text.substr(begin));
    text = PythonStrip(text.substr(0, begin), std::nullopt, StripSides::kRight);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

bool IsLineEnd(char32_t code) {
  return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

void AppendEscape(char32_t code, std::string& out) {
  const int digits = code <= 0xff ? 2 : code <= 0xffff ? 4 : 8;
  out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int i = digits - 1; i >= 0; --i) out += kHexDigits[(code >> (4 * i)) & 0xf];
}

}  // namespace

char32_t NextCodePoint(std::string_view text, size_t& at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  size_t size = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (size == 1 || at + size > text.size()) {
    ++at;
    return lead;
  }
  auto code = static_cast<char32_t>(lead & (0x7f >> size));
  for (size_t i = 1; i < size; ++i) {
    code = (code << 6) | (static_cast<uint8_t>(text[at + i]) & 0x3f);
  }
  at += size;
  return code;
}

void AppendCodePoint(char32_t code, std::string& text) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0 | (code >> 12));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    text += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | (code >> 18));
    text += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    text += static_cast<char>(0x80 | (code & 0x3f));
  }
}

size_t PreviousCodePoint(std::string_view text, size_t at) {
  --at;
  while (at > 0 && IsContinuation(text[at])) --at;
  return at;
}

int64_t CountCodePoints(std::string_view text) {
  return static_cast<int64_t>(text.size()) -
         std::count_if(text.begin(), text.end(), [](char byte) { return IsContinuation(byte); });
}

std::vector<size_t> CodePointOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); NextCodePoint(text, at)) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

bool IsValidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = Utf8SequenceSize(text.substr(at));
    if (size == 0) return false;
    at += size;
  }
  return true;
}

std::string PythonUpper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (byte < 0x80) {
      out += static_cast<char>(byte >= 'a' && byte <= 'z' ? byte - 32 : byte);
      ++at;
    } else {
      AppendMapped(text_tables::ToUpper(), NextCodePoint(text, at), out);
    }
  }
  return out;
}

std::string PythonLower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    NextCodePoint(text, at);
    AppendLower(text, begin, at, out);
  }
  return out;
}

std::string PythonCapitalize(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = NextCodePoint(text, at);
    if (begin == 0) {
      AppendMapped(text_tables::ToTitle(), code, out);
    } else {
      AppendLower(text, begin, at, out);
    }
  }
  return out;
}

std::string PythonTitle(std::string_view text) {
  std::string out;
  bool within = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = NextCodePoint(text, at);
    if (within) {
      AppendLower(text, begin, at, out);
    } else {
      AppendMapped(text_tables::ToTitle(), code, out);
    }
    within = text_tables::IsCased(code);
  }
  return out;
}

std::string PythonSwapCase(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = NextCodePoint(text, at);
    if (text_tables::IsUpper(code)) {
      AppendLower(text, begin, at, out);
    } else if (text_tables::IsLower(code)) {
      AppendMapped(text_tables::ToUpper(), code, out);
    } else {
      AppendCodePoint(code, out);
    }
  }
  return out;
}

std::string_view PythonStrip(std::string_view text, std::optional<std::string_view> characters,
                             StripSides sides) {
  const auto strips = [&](std::string_view piece) {
    if (characters.has_value()) return characters->find(piece) != std::string_view::npos;
    size_t at = 0;
    return text_tables::IsSpace(NextCodePoint(piece, at));
  };
  while (!text.empty() && sides != StripSides::kRight) {
    size_t end = 0;
    NextCodePoint(text, end);
    if (!strips(text.substr(0, end))) break;
    text.remove_prefix(end);
  }
  while (!text.empty() && sides != StripSides::kLeft) {
    const size_t begin = PreviousCodePoint(text, text.size());
    if (!strips(text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::vector<std::string_view> PythonSplit(std::string_view text, const SplitOptions& options) {
  if (!options.separator.has_value()) {
    return options.from_right ? SplitAtSpaceFromRight(text, options.splits_max)
                              : SplitAtSpace(text, options.splits_max);
  }
  const std::string_view separator = *options.separator;
  std::vector<std::string_view> parts;
  while (options.splits_max < 0 || static_cast<int64_t>(parts.size()) < options.splits_max) {
    const size_t found = options.from_right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    if (options.from_right) {
      parts.push_back(text.substr(found + separator.size()));
      text = text.substr(0, found);
    } else {
      parts.push_back(text.substr(0, found));
      text.remove_prefix(found + separator.size());
    }
  }
  parts.push_back(text);
  if (options.from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> PythonSplitLines(std::string_view text, LineEnds ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t code = NextCodePoint(text, at);
    if (!IsLineEnd(code)) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (ends == LineEnds::kKeep ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string PythonRepr(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const char32_t code = NextCodePoint(text, at);
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if ((code >= 0x20 && code < 0x7f) || (code > 0x7f && text_tables::IsPrintable(code))) {
      AppendCodePoint(code, out);
    } else {
      AppendEscape(code, out);
    }
  }
  out += quote;
  return out;
}

std::string PythonRepr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto written =
      std::to_chars(buffer.begin(), buffer.end(), number, std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<size_t>(written.ptr - buffer.data()));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits;
  for (const char digit : text.substr(0, e)) {
    if (digit != '.') digits += digit;
  }
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    const int size = std::abs(exponent);
    return out + "e" + (exponent < 0 ? "-" : "+") + (size < 10 ? "0" : "") + std::to_string(size);
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto point = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

}  // namespace gantry
