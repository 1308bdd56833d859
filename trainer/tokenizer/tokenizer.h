// Text to token ids and back, as a Hugging Face tokenizer.json says: the ids, offsets and decoded
// texts of the reference implementation (PyPI `tokenizers`), bit for bit.
//
// Taken: BPE models (byte-level, and SentencePiece's with byte_fallback), with the normalizers,
// pre-tokenizers, post-processors and decoders that README.md lists. Every other kind is refused
// when the file is read, by a line that names it.
//
// Immutable after creation and thread-safe: any number of threads may call the const methods. Each
// call borrows working memory (buffers, a cache of words) that the tokenizer keeps between calls,
// one set for each call that runs at the same time.
//
//   PosixFileCalls files;
//   GANTRY_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(files, "model/"));
//   GANTRY_ASSIGN_OR_RETURN(const Encoding encoding, tokenizer->Encode("Hello", {}));
#ifndef GANTRY_TRAINER_TOKENIZER_TOKENIZER_H_
#define GANTRY_TRAINER_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "trainer/tokenizer/encoding.h"

namespace gantry {

class DecodeStream;
class TokenizerPipeline;

class Tokenizer {
 public:
  // Reads tokenizer.json: `path` is the file, or the folder that holds it. Blocks.
  // Errors: those of ReadFileToString and of Parse, with the file's path.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(FileCalls& files, const std::string& path);
  // From the file's text. Time and memory are proportional to its size.
  // Errors: kInvalidArgument (a field is missing or malformed, ids clash, an unsupported kind).
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(std::string_view json);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of a text. Bytes that are no UTF-8 count as U+FFFD, one for each longest piece that
  // could begin a character, as in Python's bytes.decode("utf-8", "replace"). A special token's
  // text inside the input gives its id, whatever the options.
  // Errors: kInvalidArgument (over 1 GiB), kResourceExhausted (the file's regular expression
  // needs more steps or stack than it may), kInvalidArgument (a character has no token, and the
  // file names an unknown token that does not exist).
  absl::StatusOr<Encoding> Encode(std::string_view text, EncodeOptions options) const;

  // The text of some ids: valid UTF-8, U+FFFD for what is none. Ids without a token give nothing.
  std::string Decode(std::span<const int32_t> ids, DecodeOptions options) const;

  // The id of a token's text as the file writes it ("Ġthe", "▁the", "<s>"), if there is one.
  std::optional<int32_t> TokenId(std::string_view text) const;
  // The token as the file writes it (an added one that is marked `normalized`, normalized); empty
  // when `id` has none. Valid as long as the tokenizer.
  std::string_view TokenText(int32_t id) const;
  // Whether Decode can skip `id`: an added token that the file marks as special.
  bool IsSpecial(int32_t id) const;
  // The special tokens' ids, ascending.
  std::span<const int32_t> special_ids() const;
  // The largest id + 1, added tokens included. Ids below it may be without a token.
  int64_t vocabulary_size() const;

  // For StreamingDecoder.
  const TokenizerPipeline& pipeline() const { return *pipeline_; }

 private:
  explicit Tokenizer(std::unique_ptr<TokenizerPipeline> pipeline);

  const std::unique_ptr<TokenizerPipeline> pipeline_;
};

// Decodes ids one at a time and hands out text as soon as it is final: never a part of a character,
// and all parts together equal Decode of all ids. One thread at a time; the tokenizer must outlive
// it.
class StreamingDecoder {
 public:
  StreamingDecoder(const Tokenizer& tokenizer, DecodeOptions options);
  ~StreamingDecoder();
  StreamingDecoder(StreamingDecoder&&) noexcept;
  StreamingDecoder& operator=(StreamingDecoder&&) = delete;

  // The text that `id` makes final; often empty within a character of several tokens. A decoder
  // with byte fallback is sure of bytes only when another token follows them.
  std::string Next(int32_t id);
  // The rest, with U+FFFD for an unfinished character. Afterwards the decoder is as new.
  std::string Finish();

 private:
  const TokenizerPipeline& pipeline_;
  const DecodeOptions options_;
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_TOKENIZER_H_
