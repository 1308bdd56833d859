// The bytes of a text as a TokenSource: every byte is a token and every token is scored; sequences
// come from random places, so there are no epochs.
#ifndef GANTRY_TRAINER_DATA_BYTE_TOKEN_SOURCE_H_
#define GANTRY_TRAINER_DATA_BYTE_TOKEN_SOURCE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "trainer/data/batch_sampler.h"
#include "trainer/data/token_source.h"

namespace gantry {

// Immutable and thread-safe. The sampler's text outlives it.
class ByteTokenSource final : public TokenSource {
 public:
  // `fingerprint` is that of the corpus.
  ByteTokenSource(BatchSampler sampler, std::string fingerprint)
      : sampler_(sampler), fingerprint_(std::move(fingerprint)) {}

  int64_t sequence_length() const override { return sampler_.sequence_length(); }
  int64_t sequences_per_epoch() const override { return 0; }
  int64_t scored_tokens_per_epoch() const override { return 0; }
  const std::string& fingerprint() const override { return fingerprint_; }
  absl::StatusOr<SampledTokens> Read(int64_t first, int64_t count) const override;
  absl::StatusOr<SampledTokens> ReadEvenly(EvenSequences range) const override;

 private:
  BatchSampler sampler_;
  std::string fingerprint_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_BYTE_TOKEN_SOURCE_H_
