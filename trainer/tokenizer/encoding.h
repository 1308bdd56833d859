// What a tokenizer makes of a text, and what it is asked for.
#ifndef GANTRY_TRAINER_TOKENIZER_ENCODING_H_
#define GANTRY_TRAINER_TOKENIZER_ENCODING_H_

#include <cstdint>
#include <vector>

namespace gantry {

// Bytes [begin, end) of a text.
struct TextRange {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const TextRange&) const = default;
};

struct EncodeOptions {
  // Adds what the file's post-processor adds, such as a token at the beginning.
  bool add_special_tokens = true;
  bool want_offsets = false;
};

struct Encoding {
  std::vector<int32_t> ids;
  // Per id, the bytes of the input that it stands for: whole characters. Several ids may share a
  // character, and those that the post-processor added have [0, 0). Empty without want_offsets.
  std::vector<TextRange> offsets;
};

struct DecodeOptions {
  bool skip_special_tokens = true;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_ENCODING_H_
