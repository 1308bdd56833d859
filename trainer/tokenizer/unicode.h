// Classes of characters, lower case and normal forms, as the reference implementation has them.
// Everything here is immutable and thread-safe.
#ifndef GANTRY_TRAINER_TOKENIZER_UNICODE_H_
#define GANTRY_TRAINER_TOKENIZER_UNICODE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

bool IsWhitespace(char32_t character);
bool IsNumeric(char32_t character);
bool IsPunctuation(char32_t character);
bool IsMark(char32_t character);
bool IsWordCharacter(char32_t character);

// The lower case: one character, but "i̇" for "İ".
std::u32string_view Lowercase(char32_t character, char32_t (&buffer)[2]);

// `text` with a stand-in for each character that PCRE2 would classify wrongly; each byte of the
// result stands for the byte of `text` at the same place. Returns false, and leaves `out` alone,
// when there is none.
bool StandInsForPcre2(std::string_view text, std::string& out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// One character of a normalized text. How many characters of the source it takes: 0 when it is an
// addition that shares the place of the one before.
struct NormalizedCharacter {
  char32_t value;
  int32_t taken;
};

// Normalizes to one form. Creation takes milliseconds.
class Normalization {
 public:
  explicit Normalization(NormalForm form);

  // The size of the longest start of `text`, in whole characters, that is normalized whatever
  // follows it.
  size_t UnchangedSize(std::string_view text) const;
  // The size of what comes after: up to the next character that begins something unchanged.
  // REQUIRES: `text` is not empty.
  size_t ChangedSize(std::string_view text) const;
  // Normalizes a piece that ChangedSize delimits into `out`, which is empty before.
  void Normalize(std::string_view text, std::vector<NormalizedCharacter>& out) const;

 private:
  bool IsStable(char32_t character) const { return character >= kCharacters || stable_[character]; }
  void Compose(std::vector<NormalizedCharacter>& characters) const;

  static constexpr char32_t kCharacters = 0x30000;  // beyond, all are stable

  const NormalForm form_;
  // Characters that are their own normal form, begin something new, and join nothing before them.
  std::vector<bool> stable_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_UNICODE_H_
