// Examples as token ids, and which of them are scored: what the model shall learn to write.
//
// A conversation is rendered by the model's chat template and tokenised once, as a whole, without
// the tokens that the tokenizer would add (the template writes its own, so there is one BOS or
// none). Scored is what the template marks with {% generation %}; where it marks nothing, each
// assistant turn from behind its generation prompt to its end, found by rendering the messages
// before it: that needs a template that writes the beginning of a conversation the same whatever
// follows, and one that does not is refused.
//
// A prompt with its completion, and plain text, are tokenised as the tokenizer does it by default,
// with one BOS at most, and end with EOS. Scored are the completion with EOS, or all of it.
//
// A token belongs to what it begins in: one that begins in a prompt and ends in a completion is not
// scored. The first token of a document is never scored, as nothing predicts it.
#ifndef GANTRY_TRAINER_DATA_EXAMPLE_ENCODER_H_
#define GANTRY_TRAINER_DATA_EXAMPLE_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/chat_template/chat_template.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/data/example.h"
#include "trainer/tokenizer/encoding.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {

struct EncodedExample {
  std::string text;                // what was tokenised
  std::vector<int32_t> tokens;     // at least 2
  std::vector<uint8_t> scored;     // for each token, whether it is a target; the first is not
  std::vector<TextRange> offsets;  // for each token, its bytes of the text; EOS has none

  int64_t scored_tokens() const;
  // Cuts the end off, beyond so many tokens. Whether there was anything to cut.
  bool Truncate(int64_t tokens_max);
};

enum class ScoredTurns : uint8_t {
  kAll,   // of the assistant
  kLast,  // only the last one: for templates that drop what was thought in earlier ones
};

// Immutable and thread-safe.
class ExampleEncoder {
 public:
  struct Options {
    const Tokenizer* tokenizer;                   // outlives the encoder
    const ChatTemplate* chat_template = nullptr;  // likewise; null: conversations are refused
    // The texts of these tokens, which templates see as bos_token and eos_token.
    std::string bos_token = {};
    std::string eos_token = {};  // empty: nothing is added behind text and completions
    CivilTime now = {};          // what templates see
    ScoredTurns scored_turns = ScoredTurns::kAll;
  };
  // Errors: kInvalidArgument for a token that the tokenizer does not have.
  static absl::StatusOr<ExampleEncoder> Create(const Options& options);

  // Errors: kInvalidArgument for a conversation without an assistant turn, one that the template
  // refuses or does not begin in the same way whatever follows, and for nothing to score; those of
  // the template and the tokenizer.
  absl::StatusOr<EncodedExample> Encode(const Example& example) const;

 private:
  explicit ExampleEncoder(const Options& options) : options_(options) {}

  absl::StatusOr<EncodedExample> EncodeMessages(const Example& example) const;
  absl::StatusOr<EncodedExample> EncodeText(std::string_view text, size_t scored_from) const;
  absl::StatusOr<std::vector<ByteSpan>> TurnSpans(const Example& example,
                                                  const std::string& text) const;
  absl::StatusOr<RenderedChat> Render(const Example& example, size_t messages,
                                      bool add_generation_prompt) const;
  // The end of a turn: behind its EOS, without the line end that templates write there.
  size_t TurnEnd(std::string_view text, ByteSpan turn) const;

  Options options_;
  std::optional<int32_t> bos_;
  std::optional<int32_t> eos_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_EXAMPLE_ENCODER_H_
