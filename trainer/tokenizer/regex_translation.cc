// From Oniguruma's Ruby syntax to PCRE2's.
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/tokenizer/regex.h"

namespace gantry {
namespace {

// What \w matches in Oniguruma, as the inside of a class.
constexpr std::string_view kWordClass =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
constexpr std::string_view kHexClass = "0-9a-fA-F";
constexpr std::string_view kCategories[] = {
    "L",  "Ll", "Lu", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Cs",
};
constexpr std::string_view kScripts[] = {
    "Arabic",  "Armenian", "Bengali",  "Cyrillic", "Devanagari", "Ethiopic",  "Georgian",
    "Greek",   "Gujarati", "Gurmukhi", "Han",      "Hangul",     "Hebrew",    "Hiragana",
    "Kannada", "Katakana", "Khmer",    "Lao",      "Latin",      "Malayalam", "Mongolian",
    "Myanmar", "Sinhala",  "Tamil",    "Telugu",   "Thai",       "Tibetan",
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern), pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (!rest_.empty()) GANTRY_RETURN_IF_ERROR(Item());
    return out_;
  }

 private:
  absl::Status Refuse(std::string_view what) const {
    return InvalidArgument("the regular expression has ", what, " at byte ",
                           pattern_.size() - rest_.size(), ", which is not supported");
  }

  bool Begins(std::string_view text) const { return rest_.substr(0, text.size()) == text; }
  char Take() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  void Copy(size_t size) {
    out_.append(rest_.substr(0, size));
    rest_.remove_prefix(size);
  }

  // One literal, class, group's beginning or quantifier.
  absl::Status Item() {
    switch (rest_.front()) {
      case '\\':
        is_quantified_ = false;
        return Escape();
      case '[':
        is_quantified_ = false;
        return Class();
      case '(':
        is_quantified_ = true;  // nothing to repeat
        return Group();
      case '*':
      case '+':
      case '?':
      case '{':
        return Quantifier();
      case '^':
      case '$':
        // Lines begin and end at every newline.
        out_ += StrCat("(?m:", Take(), ")");
        is_quantified_ = true;
        return absl::OkStatus();
      case '|':
        is_quantified_ = true;
        Copy(1);
        return absl::OkStatus();
      default:
        is_quantified_ = false;
        Copy(1);
        return absl::OkStatus();
    }
  }

  absl::Status Group() {
    for (const std::string_view beginning : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (!Begins(beginning)) continue;
      Copy(beginning.size());
      return absl::OkStatus();
    }
    // Elsewhere it would reach over alternatives in one syntax and not in the other.
    if (Begins("(?i)") && out_.empty()) {
      Copy(4);
      return absl::OkStatus();
    }
    if (Begins("(?")) return Refuse("a group that begins with '(?'");
    Copy(1);
    return absl::OkStatus();
  }

  // The size of an interval like {1,3} at the front, or 0.
  size_t IntervalSize() const {
    size_t at = 1;
    bool has_digits = false;
    while (at < rest_.size() && (IsDigit(rest_[at]) || rest_[at] == ',')) {
      has_digits = has_digits || IsDigit(rest_[at]);
      ++at;
    }
    return has_digits && at < rest_.size() && rest_[at] == '}' ? at + 1 : 0;
  }

  absl::Status Quantifier() {
    const size_t interval = rest_.front() == '{' ? IntervalSize() : 0;
    if (rest_.front() == '{' && interval == 0) {
      is_quantified_ = false;
      out_ += '\\';
      Copy(1);
      return absl::OkStatus();
    }
    if (is_quantified_) return Refuse("a repetition of nothing or of a repetition");
    is_quantified_ = true;
    if (interval > 0) {
      const std::string_view text = rest_.substr(0, interval);
      out_ += text[1] == ',' ? StrCat("{0", text.substr(1)) : std::string(text);
      rest_.remove_prefix(interval);
      if (Begins("+")) return Refuse("'+' after an interval");
      if (Begins("?") && text.find(',') == std::string_view::npos) {
        return Refuse("'?' after an interval of one number");
      }
    } else {
      Copy(1);
      if (Begins("+")) Copy(1);
    }
    if (Begins("?")) Copy(1);
    return absl::OkStatus();
  }

  absl::Status Escape() {
    if (rest_.size() < 2) return Refuse("a backslash at its end");
    switch (rest_[1]) {
      case 'w':
      case 'W':
        out_ += StrCat(rest_[1] == 'w' ? "[" : "[^", kWordClass, "]");
        break;
      case 'h':
      case 'H':
        out_ += StrCat(rest_[1] == 'h' ? "[" : "[^", kHexClass, "]");
        break;
      case 'b':
      case 'B': {
        const bool is_edge = rest_[1] == 'b';
        out_ += StrCat("(?:(?<=[", kWordClass, "])(?", is_edge ? '!' : '=', "[", kWordClass,
                       "])|(?<![", kWordClass, "])(?", is_edge ? '=' : '!', "[", kWordClass, "]))");
        break;
      }
      case 'A':
      case 'z':
      case 'Z':
        Copy(2);
        return absl::OkStatus();
      default:
        return CommonEscape();
    }
    rest_.remove_prefix(2);
    return absl::OkStatus();
  }

  // Those that mean the same within classes.
  absl::Status CommonEscape() {
    const char c = rest_[1];
    switch (c) {
      case 'd':
      case 'D':
      case 's':
      case 'S':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        Copy(2);
        return absl::OkStatus();
      case 'v':
        rest_.remove_prefix(2);
        out_ += "\\x{B}";
        return absl::OkStatus();
      case 'p':
      case 'P':
        return Property();
      case 'x':
      case 'u':
        return CodePoint();
      default:
        if (IsLetter(c) || IsDigit(c)) return Refuse(StrCat("'\\", c, "'"));
        if (static_cast<unsigned char>(c) >= 0x80) rest_.remove_prefix(1);
        Copy(static_cast<unsigned char>(c) >= 0x80 ? 1 : 2);
        return absl::OkStatus();
    }
  }

  absl::Status Property() {
    const size_t end = rest_.find('}');
    if (rest_.size() < 4 || rest_[2] != '{' || end == std::string_view::npos) {
      return Refuse("'\\p' without a name in braces");
    }
    std::string_view name = rest_.substr(3, end - 3);
    const bool is_inverted = !name.empty() && name.front() == '^';
    if (is_inverted) name.remove_prefix(1);
    std::string_view prefix;
    bool is_known = false;
    for (const std::string_view category : kCategories) is_known = is_known || name == category;
    for (const std::string_view script : kScripts) {
      if (name != script) continue;
      is_known = true;
      prefix = "sc:";
    }
    if (!is_known) return Refuse(StrCat("the property '", name, "'"));
    out_ += StrCat("\\", rest_[1], "{", is_inverted ? "^" : "", prefix, name, "}");
    rest_.remove_prefix(end + 1);
    return absl::OkStatus();
  }

  // \x41, \x{1F600}, A.
  absl::Status CodePoint() {
    size_t begin = 2;
    size_t end = 2;
    size_t size = 0;
    if (rest_[1] == 'u') {
      end = size = 6;
    } else if (rest_.size() > 2 && rest_[2] == '{') {
      begin = 3;
      end = rest_.find('}');
      size = end + 1;
    } else {
      end = size = 4;
    }
    if (end > rest_.size() || end == begin) return Refuse("a code point that is not finished");
    for (const char c : rest_.substr(begin, end - begin)) {
      if (!IsHex(c)) return Refuse("a code point that is no hexadecimal number");
    }
    if (rest_[1] == 'x' && begin == 2 && rest_[2] >= '8') {
      return Refuse("a byte that is no character");
    }
    out_ += StrCat("\\x{", rest_.substr(begin, end - begin), "}");
    rest_.remove_prefix(size);
    return absl::OkStatus();
  }

  absl::Status Class() {
    Copy(1);
    if (Begins("^")) Copy(1);
    if (Begins("]")) return Refuse("a class that begins with ']'");
    while (!rest_.empty()) {
      if (Begins("[")) return Refuse("a class within a class");
      if (Begins("&&")) return Refuse("an intersection of classes");
      const char c = rest_.front();
      if (c == '\\') {
        GANTRY_RETURN_IF_ERROR(ClassEscape());
        continue;
      }
      Copy(1);
      if (c == ']') return absl::OkStatus();
    }
    return Refuse("a class that does not end");
  }

  absl::Status ClassEscape() {
    if (rest_.size() < 2) return Refuse("a backslash at its end");
    switch (rest_[1]) {
      case 'w':
        out_ += kWordClass;
        break;
      case 'h':
        out_ += kHexClass;
        break;
      case 'b':
        out_ += "\\x{8}";
        break;
      default:
        return CommonEscape();
    }
    rest_.remove_prefix(2);
    return absl::OkStatus();
  }

  std::string_view rest_;
  const std::string_view pattern_;
  std::string out_;
  // Whether what was last written takes no quantifier.
  bool is_quantified_ = true;
};

}  // namespace

absl::StatusOr<std::string> TranslateRegex(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace gantry
