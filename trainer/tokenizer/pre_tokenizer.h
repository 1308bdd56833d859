// The pre-tokenizers of tokenizer.json: what cuts a text into the words that the model sees.
#ifndef GANTRY_TRAINER_TOKENIZER_PRE_TOKENIZER_H_
#define GANTRY_TRAINER_TOKENIZER_PRE_TOKENIZER_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/tokenizer/json_view.h"
#include "trainer/tokenizer/regex.h"
#include "trainer/tokenizer/text_pieces.h"

namespace gantry {

// Immutable and thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  // Splits, and may rewrite, each piece that is no token. Errors: those of matching a regular
  // expression.
  virtual absl::Status Apply(TextPieces& pieces, RegexScratch& scratch) const = 0;
};

struct ParsedPreTokenizer {
  std::unique_ptr<PreTokenizer> steps;
  // The model's alphabet is the bytes, written as ByteLevel writes them. The pieces hold the bytes
  // themselves.
  bool is_byte_level = false;
  // Pieces are treated by where they begin in the input: its origins must be tracked through
  // everything that rewrites the text before.
  bool needs_origins = false;
};

// Errors: kInvalidArgument, naming the field.
absl::StatusOr<ParsedPreTokenizer> ParsePreTokenizer(const JsonView& json);

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_PRE_TOKENIZER_H_
