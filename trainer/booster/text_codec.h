// Between text and the tokens of a model: an interface, and its simplest kind, bytes.
#ifndef GANTRY_TRAINER_BOOSTER_TEXT_CODEC_H_
#define GANTRY_TRAINER_BOOSTER_TEXT_CODEC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gantry {

// Turns tokens into text one by one. One thread at a time.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  // The text that the token completes: never a part of a character, so often empty.
  virtual std::string Next(int32_t token) = 0;
  // What is left at the end.
  virtual std::string Finish() = 0;
};

// Immutable and thread-safe; outlives its decoders.
class TextCodec {
 public:
  virtual ~TextCodec() = default;
  // Errors: kInvalidArgument for text that has no tokens.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const = 0;
  virtual std::unique_ptr<TextDecoder> NewDecoder() const = 0;
  // Tokens are below it.
  virtual int64_t vocabulary_size() const = 0;
};

// Bytes are the tokens. Of text that is UTF-8 whole characters are handed out; bytes that are none
// come out as they are.
class ByteCodec final : public TextCodec {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override;
  std::unique_ptr<TextDecoder> NewDecoder() const override;
  int64_t vocabulary_size() const override { return 256; }
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_TEXT_CODEC_H_
