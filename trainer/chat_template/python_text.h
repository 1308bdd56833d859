// Text as Python's str sees it: code points, not bytes. Strings here are valid UTF-8, which the
// parsers make sure of; a stray byte counts as a code point of its own.
//
// Stateless and thread-safe.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_PYTHON_TEXT_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_PYTHON_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

// Reads the code point that begins at `at` and moves `at` behind it. REQUIRES: at < text.size().
char32_t NextCodePoint(std::string_view text, size_t& at);
void AppendCodePoint(char32_t code, std::string& text);
// Where the code point before `at` begins. REQUIRES: at > 0.
size_t PreviousCodePoint(std::string_view text, size_t at);
int64_t CountCodePoints(std::string_view text);
// Where each code point begins, and the size of the text.
std::vector<size_t> CodePointOffsets(std::string_view text);
bool IsValidUtf8(std::string_view text);

// str.upper, lower, capitalize, title, swapcase.
std::string PythonUpper(std::string_view text);
std::string PythonLower(std::string_view text);
std::string PythonCapitalize(std::string_view text);
std::string PythonTitle(std::string_view text);
std::string PythonSwapCase(std::string_view text);

enum class StripSides : uint8_t { kBoth, kLeft, kRight };
// str.strip, lstrip, rstrip: of whitespace, or of the code points in `characters`.
std::string_view PythonStrip(std::string_view text, std::optional<std::string_view> characters,
                             StripSides sides);

// str.split and rsplit. Without a separator: at runs of whitespace. At most `splits_max` splits,
// any number when negative. REQUIRES: *separator is not empty.
struct SplitOptions {
  std::optional<std::string_view> separator;
  int64_t splits_max = -1;
  bool from_right = false;
};
std::vector<std::string_view> PythonSplit(std::string_view text, const SplitOptions& options);
// str.splitlines(keepends).
enum class LineEnds : uint8_t { kDrop, kKeep };
std::vector<std::string_view> PythonSplitLines(std::string_view text, LineEnds ends);

// repr of a str and of a float.
std::string PythonRepr(std::string_view text);
std::string PythonRepr(double number);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_PYTHON_TEXT_H_
