// The decoders of tokenizer.json: what makes text of tokens.
#ifndef GANTRY_TRAINER_TOKENIZER_DECODER_H_
#define GANTRY_TRAINER_TOKENIZER_DECODER_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/tokenizer/json_view.h"

namespace gantry {

// Turns a sequence of tokens into text, as much of it at a time as is certain. One thread at a
// time.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;

  // Takes the next token's text, and appends the text that is certain now.
  virtual void Next(std::string_view token, std::string& out) = 0;
  // Appends the rest. The stream is over.
  virtual void Finish(std::string& out) = 0;
};

// Immutable and thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // A stream at its beginning. The decoder must outlive it.
  virtual std::unique_ptr<DecodeStream> Begin() const = 0;
};

// Errors: kInvalidArgument, naming the field.
absl::StatusOr<std::unique_ptr<Decoder>> ParseDecoder(const JsonView& json);
// For files without a decoder: tokens with spaces between them.
std::unique_ptr<Decoder> SpacingDecoder();

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_DECODER_H_
