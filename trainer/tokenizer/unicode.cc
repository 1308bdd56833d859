#include "trainer/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/check.h"
#include "trainer/tokenizer/unicode_tables.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

constexpr char32_t kCapitalIWithDot = 0x130;
constexpr size_t kDecompositionMax = 32;  // U+FDFA has 18

template <typename Range>
const Range* FindRange(std::span<const Range> ranges, char32_t character) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), character,
                       [](char32_t c, const Range& range) { return c < range.first; });
  if (after == ranges.begin()) return nullptr;
  const Range& range = *(after - 1);
  return character <= range.last ? &range : nullptr;
}

bool IsUnknown(char32_t character) {
  return FindRange(UnknownToNormalFormsRanges(), character) != nullptr;
}

int CombiningClass(char32_t character) {
  if (character < 0x300 || IsUnknown(character)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(character))->combining_class;
}

bool IsComposed(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

int DecompositionOptions(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd ? UTF8PROC_COMPAT : 0;
}

// Puts a run of combining characters into the order of their classes; equal ones keep theirs.
void OrderByClass(std::span<NormalizedCharacter> characters) {
  struct Entry {
    int combining_class;
    size_t place;
    NormalizedCharacter character;
  };
  std::vector<Entry> entries;
  for (const NormalizedCharacter& character : characters) {
    entries.push_back({CombiningClass(character.value), entries.size(), character});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.combining_class, a.place) < std::pair(b.combining_class, b.place);
  });
  for (size_t i = 0; i < entries.size(); ++i) characters[i] = entries[i].character;
}

// The last of a long range whose characters all are stable, if `first` begins one; otherwise 0.
// Ideographs, surrogates and private use: most characters.
char32_t LastOfPlainRange(char32_t first) {
  switch (first) {
    case 0x3400:
      return 0x4DBF;
    case 0x4E00:
      return 0x9FFF;
    case 0xD800:
      return 0xF8FF;
    case 0x20000:
      return 0x2F7FF;
    default:
      return 0;
  }
}

// The character that two make together, or 0.
char32_t Composition(char32_t first, char32_t second) {
  utf8proc_int32_t pair[2] = {static_cast<utf8proc_int32_t>(first),
                              static_cast<utf8proc_int32_t>(second)};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  if (utf8proc_normalize_utf32(pair, 2, options) != 1) return 0;
  const auto composed = static_cast<char32_t>(pair[0]);
  return IsUnknown(composed) ? 0 : composed;
}

// Appends the full decomposition, canonical or compatible.
void Decompose(char32_t character, int extra_options, std::vector<NormalizedCharacter>& out) {
  if (character < 0x80 || IsUnknown(character)) {
    out.push_back({character, 1});
    return;
  }
  const int options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | extra_options;
  utf8proc_int32_t parts[kDecompositionMax];
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character), parts, kDecompositionMax,
                              static_cast<utf8proc_option_t>(options), &boundary);
  GANTRY_CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(kDecompositionMax));
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    out.push_back({static_cast<char32_t>(parts[i]), i == 0 ? 1 : 0});
  }
}

}  // namespace

bool IsWhitespace(char32_t character) {
  if (character < 0x80) return character == ' ' || (character >= 0x9 && character <= 0xD);
  return FindRange(WhitespaceRanges(), character) != nullptr;
}

bool IsNumeric(char32_t character) {
  if (character < 0x80) return character >= '0' && character <= '9';
  return FindRange(NumericRanges(), character) != nullptr;
}

bool IsPunctuation(char32_t character) {
  return FindRange(PunctuationRanges(), character) != nullptr;
}

bool IsMark(char32_t character) {
  return character >= 0x300 && FindRange(MarkRanges(), character) != nullptr;
}

bool IsWordCharacter(char32_t character) { return FindRange(WordRanges(), character) != nullptr; }

std::u32string_view Lowercase(char32_t character, char32_t (&buffer)[2]) {
  buffer[1] = 0x307;
  if (character == kCapitalIWithDot) {
    buffer[0] = 'i';
    return {buffer, 2};
  }
  if (character < 0x80) {
    buffer[0] = character >= 'A' && character <= 'Z' ? character + 32 : character;
  } else if (const LowercaseRange* range = FindRange(LowercaseRanges(), character);
             range != nullptr) {
    buffer[0] = character + static_cast<char32_t>(range->delta);
  } else {
    buffer[0] = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character)));
  }
  return {buffer, 1};
}

bool StandInsForPcre2(std::string_view text, std::string& out) {
  bool is_changed = false;
  for (size_t at = 0; at < text.size();) {
    // All stand-ins are for characters of three or four bytes.
    if (static_cast<unsigned char>(text[at]) < 0xE0) {
      ++at;
      continue;
    }
    const Utf8Character character = CharacterAt(text, at);
    if (const StandInRange* range = FindRange(StandInRanges(), character.value); range != nullptr) {
      if (!is_changed) out.assign(text);
      is_changed = true;
      const std::string stand_in = ToUtf8(range->stand_in);
      GANTRY_CHECK(stand_in.size() == character.size);
      out.replace(at, character.size, stand_in);
    }
    at += character.size;
  }
  return is_changed;
}

Normalization::Normalization(NormalForm form) : form_(form), stable_(kCharacters, true) {
  std::vector<NormalizedCharacter> parts;
  for (char32_t c = 0x80; c < kCharacters; ++c) {
    if (const char32_t last = LastOfPlainRange(c); last != 0) {
      c = last;
      continue;
    }
    if (CombiningClass(c) != 0) stable_[c] = false;
    parts.clear();
    Decompose(c, DecompositionOptions(form_), parts);
    if (parts.size() == 1 && parts[0].value == c) continue;
    if (IsComposed(form_)) Compose(parts);
    if (parts.size() != 1 || parts[0].value != c) stable_[c] = false;
    if (!IsComposed(form_)) continue;
    // What can be the second part of a composition joins what is before it.
    parts.clear();
    Decompose(c, 0, parts);
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].value < kCharacters) stable_[parts[i].value] = false;
    }
  }
}

// The canonical composition algorithm of Unicode Standard Annex 15.
void Normalization::Compose(std::vector<NormalizedCharacter>& characters) const {
  size_t kept = 0;
  size_t starter = 0;
  bool has_starter = false;
  int last_class = -1;  // of what was kept after the starter; -1: nothing
  for (size_t i = 0; i < characters.size(); ++i) {
    const NormalizedCharacter next = characters[i];
    const int combining_class = CombiningClass(next.value);
    if (has_starter && last_class < combining_class) {
      const char32_t composed = Composition(characters[starter].value, next.value);
      if (composed != 0) {
        characters[starter].value = composed;
        characters[starter].taken += next.taken;
        continue;
      }
    }
    if (combining_class == 0) {
      starter = kept;
      has_starter = true;
      last_class = -1;
    } else {
      last_class = combining_class;
    }
    characters[kept++] = next;
  }
  characters.resize(kept);
}

size_t Normalization::UnchangedSize(std::string_view text) const {
  size_t at = 0;
  size_t last = 0;
  while (at < text.size()) {
    // ASCII is stable, and most of most texts.
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      last = at++;
      continue;
    }
    const Utf8Character character = CharacterAt(text, at);
    // What follows may join this character: it is unchanged only if the next one is stable too.
    if (!IsStable(character.value)) return last;
    last = at;
    at += character.size;
  }
  return at;
}

size_t Normalization::ChangedSize(std::string_view text) const {
  size_t at = CharacterAt(text, 0).size;
  while (at < text.size()) {
    const Utf8Character character = CharacterAt(text, at);
    if (IsStable(character.value)) break;
    at += character.size;
  }
  return at;
}

void Normalization::Normalize(std::string_view text, std::vector<NormalizedCharacter>& out) const {
  const size_t begin = out.size();
  GANTRY_CHECK(begin == 0);
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = CharacterAt(text, at);
    Decompose(character.value, DecompositionOptions(form_), out);
    at += character.size;
  }
  for (size_t first = 0; first < out.size();) {
    size_t last = first;
    while (last < out.size() && CombiningClass(out[last].value) != 0) ++last;
    if (last - first > 1) OrderByClass(std::span(out).subspan(first, last - first));
    first = last + 1;
  }
  if (IsComposed(form_)) Compose(out);
}

}  // namespace gantry
