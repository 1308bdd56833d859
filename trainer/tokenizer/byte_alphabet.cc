#include "trainer/tokenizer/byte_alphabet.h"

#include <cstddef>

#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

constexpr bool IsVisible(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

struct Alphabet {
  char32_t characters[256] = {};
  int bytes[0x200] = {};  // -1: no byte

  constexpr Alphabet() {
    for (int& byte : bytes) byte = -1;
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      characters[byte] = IsVisible(byte) ? byte : next++;
      bytes[characters[byte]] = static_cast<int>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

char32_t CharacterOfByte(unsigned char byte) { return kAlphabet.characters[byte]; }

std::optional<std::string> BytesOfText(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = CharacterAt(text, at);
    if (character.value >= 0x200 || kAlphabet.bytes[character.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.bytes[character.value]));
    at += character.size;
  }
  return bytes;
}

}  // namespace gantry
