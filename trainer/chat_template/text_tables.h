// What Python's str methods know about code points (Unicode 14), so that templates render the same
// text here. The tables are written by testdata/make_text_tables.py.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_TEXT_TABLES_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_TEXT_TABLES_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace gantry::text_tables {

bool IsSpace(char32_t code);
bool IsAlphabetic(char32_t code);
bool IsDecimal(char32_t code);
bool IsDigit(char32_t code);
bool IsUpper(char32_t code);
bool IsLower(char32_t code);
bool IsPrintable(char32_t code);
// Of a letter that has a case: what follows it in a word is not its first letter.
bool IsCased(char32_t code);
// Looked through on the way from a sigma to the letter before it.
bool IsIgnoredBeforeSigma(char32_t code);

// Every `step`-th code point from `first` to `last` moves by `delta`.
struct CaseRun {
  uint32_t first;
  uint32_t last;
  uint32_t step;
  int32_t delta;
};
// Becomes several code points, in UTF-8.
struct CaseText {
  uint32_t code;
  std::string_view text;
};
// Both ascending; what neither names stays as it is.
struct CaseMapping {
  std::span<const CaseRun> runs;
  std::span<const CaseText> texts;
};
CaseMapping ToUpper();
CaseMapping ToLower();  // a sigma at the end of a word is the caller's
CaseMapping ToTitle();

// Whether the runs, of code points to skip and to take in turns from 0 on, take this one.
constexpr bool Holds(std::span<const uint32_t> runs, char32_t code) {
  uint32_t end = 0;
  for (size_t i = 0; i + 1 < runs.size(); i += 2) {
    if (code < end + runs[i]) return false;
    end += runs[i] + runs[i + 1];
    if (code < end) return true;
  }
  return false;
}

}  // namespace gantry::text_tables

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_TEXT_TABLES_H_
