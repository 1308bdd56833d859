// GPT-2's way to write bytes as characters: those that can be seen as themselves, the others as
// characters from U+0100 on. "Ġ" is the space.
#ifndef GANTRY_TRAINER_TOKENIZER_BYTE_ALPHABET_H_
#define GANTRY_TRAINER_TOKENIZER_BYTE_ALPHABET_H_

#include <optional>
#include <string>
#include <string_view>

namespace gantry {

char32_t CharacterOfByte(unsigned char byte);

// The bytes that `text`, valid UTF-8, writes; nothing when it holds any other character.
std::optional<std::string> BytesOfText(std::string_view text);

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_BYTE_ALPHABET_H_
