// A text as the tokens of a model's tokenizer, as a TokenSource: sequences come from random places
// of it, and every token is scored, so there are no epochs.
#ifndef GANTRY_TRAINER_DATA_TOKEN_TEXT_SOURCE_H_
#define GANTRY_TRAINER_DATA_TOKEN_TEXT_SOURCE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/token_source.h"

namespace gantry {

// Immutable and thread-safe. Owns the tokens.
class TokenTextSource final : public TokenSource {
 public:
  struct Options {
    int64_t sequence_length;
    uint64_t seed;
    std::string fingerprint;  // of the text and the tokenizer
  };
  // Errors: kInvalidArgument for tokens that make no sequence with its next one.
  static absl::StatusOr<TokenTextSource> Create(std::vector<int32_t> tokens, Options options);

  int64_t sequence_length() const override { return options_.sequence_length; }
  int64_t sequences_per_epoch() const override { return 0; }
  int64_t scored_tokens_per_epoch() const override { return 0; }
  const std::string& fingerprint() const override { return options_.fingerprint; }
  absl::StatusOr<SampledTokens> Read(int64_t first, int64_t count) const override;
  absl::StatusOr<SampledTokens> ReadEvenly(EvenSequences range) const override;

 private:
  TokenTextSource(std::vector<int32_t> tokens, Options options)
      : tokens_(std::move(tokens)), options_(std::move(options)) {}
  // Places at which a sequence can begin.
  int64_t starts() const { return static_cast<int64_t>(tokens_.size()) - options_.sequence_length; }
  void Append(int64_t start, SampledTokens& batch) const;

  std::vector<int32_t> tokens_;
  Options options_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_TOKEN_TEXT_SOURCE_H_
