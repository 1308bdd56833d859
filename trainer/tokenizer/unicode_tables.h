// Tables of Unicode as the reference implementation has them, ascending. See
// testdata/make_unicode_tables.py.
#ifndef GANTRY_TRAINER_TOKENIZER_UNICODE_TABLES_H_
#define GANTRY_TRAINER_TOKENIZER_UNICODE_TABLES_H_

#include <cstdint>
#include <span>

namespace gantry {

struct CharacterRange {
  char32_t first;
  char32_t last;
};

// Characters that PCRE2's tables are too old for or see otherwise, each with an older one of the
// same general category and the same size in UTF-8.
struct StandInRange {
  char32_t first;
  char32_t last;
  char32_t stand_in;
};

// Characters whose lower case is `delta` away, where utf8proc says otherwise.
struct LowercaseRange {
  char32_t first;
  char32_t last;
  int32_t delta;
};

std::span<const CharacterRange> WhitespaceRanges();
std::span<const CharacterRange> NumericRanges();
std::span<const CharacterRange> PunctuationRanges();  // beside white space
std::span<const CharacterRange> MarkRanges();
std::span<const CharacterRange> WordRanges();  // what \w matches
// Characters that the reference's normal forms leave alone and take for starters.
std::span<const CharacterRange> UnknownToNormalFormsRanges();
std::span<const StandInRange> StandInRanges();
std::span<const LowercaseRange> LowercaseRanges();

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_UNICODE_TABLES_H_
