// The post-processors of tokenizer.json: what adds special tokens around a text's tokens, and
// takes white space out of offsets.
#ifndef GANTRY_TRAINER_TOKENIZER_POST_PROCESSOR_H_
#define GANTRY_TRAINER_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/tokenizer/encoding.h"
#include "trainer/tokenizer/json_view.h"

namespace gantry {

// The spaces that a token's text begins and ends with.
struct TokenSpaces {
  int32_t leading = 0;
  int32_t trailing = 0;
};

// `token`: as the file writes it, "Ġ" being a space.
TokenSpaces SpacesOf(std::string_view token);

// Immutable and thread-safe.
class PostProcessor {
 public:
  struct Context {
    std::string_view text;  // what the offsets are of; valid UTF-8
    EncodeOptions options;
    std::vector<TokenSpaces>& spaces;  // of each id, where TrimsOffsets and there are offsets
  };

  virtual ~PostProcessor() = default;
  virtual bool TrimsOffsets() const = 0;
  virtual void Apply(const Context& context, Encoding& encoding) const = 0;
};

// Errors: kInvalidArgument, naming the field. `ids_end`: all ids are below it.
absl::StatusOr<std::unique_ptr<PostProcessor>> ParsePostProcessor(const JsonView& json,
                                                                  int64_t ids_end);

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_POST_PROCESSOR_H_
