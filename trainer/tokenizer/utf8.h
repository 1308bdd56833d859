// UTF-8: characters of valid texts, and valid texts from any bytes.
#ifndef GANTRY_TRAINER_TOKENIZER_UTF8_H_
#define GANTRY_TRAINER_TOKENIZER_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

struct Utf8Character {
  char32_t value;
  size_t size;  // bytes
};

// The character that begins at text[at]. REQUIRES: text is valid UTF-8, and a character does.
inline Utf8Character CharacterAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> char32_t { return static_cast<unsigned char>(text[at + i]); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) {
    return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// Whether `byte` continues a character.
inline bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Where the character before text[at] begins. REQUIRES: valid UTF-8, at > 0.
inline size_t PreviousCharacter(std::string_view text, size_t at) {
  do {
    --at;
  } while (IsContinuation(text[at]));
  return at;
}

void AppendUtf8(char32_t character, std::string& out);
std::string ToUtf8(char32_t character);

// The bytes at the start of `text` that are valid UTF-8.
size_t ValidUtf8Size(std::string_view text);

// The size of what one U+FFFD stands for: the longest start of `text` that could begin a character,
// or one byte. REQUIRES: `text` begins with no valid character and is not empty.
size_t BrokenUtf8Size(std::string_view text);

// Whether more bytes could make `text` a character. REQUIRES: as BrokenUtf8Size.
bool IsUnfinishedUtf8(std::string_view text);

// Appends `text` with U+FFFD for what is no UTF-8.
void AppendValidUtf8(std::string_view text, std::string& out);

// A valid text and where its bytes come from.
struct MendedText {
  std::string text;
  // For each byte of `text` and its end: the byte of the broken text.
  std::vector<uint32_t> origins;
};
MendedText MendUtf8(std::string_view text);

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_UTF8_H_
