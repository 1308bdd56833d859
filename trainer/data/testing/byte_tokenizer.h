// A small tokenizer for tests: every byte is a token of its own, and there are a few more.
#ifndef GANTRY_TRAINER_DATA_TESTING_BYTE_TOKENIZER_H_
#define GANTRY_TRAINER_DATA_TESTING_BYTE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/tokenizer/tokenizer.h"

namespace gantry {

// Bytes are tokens 0 .. 255. "=4" is one token where the two stand together.
inline constexpr int32_t kEquals4 = 256;
inline constexpr int32_t kBos = 257;        // <s>
inline constexpr int32_t kEos = 258;        // </s>
inline constexpr int32_t kTurnStart = 259;  // <|im_start|>
inline constexpr int32_t kTurnEnd = 260;    // <|im_end|>

enum class AddsBos : bool { kNo, kYes };
// Whether spaces count to no token's range.
enum class TrimsOffsets : bool { kNo, kYes };
// Its tokenizer.json.
std::string ByteTokenizerFile(AddsBos adds_bos, TrimsOffsets trims_offsets = TrimsOffsets::kNo);
std::unique_ptr<Tokenizer> MakeByteTokenizer(AddsBos adds_bos,
                                             TrimsOffsets trims_offsets = TrimsOffsets::kNo);

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_TESTING_BYTE_TOKENIZER_H_
