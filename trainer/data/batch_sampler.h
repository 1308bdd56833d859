// Which tokens a step trains on: a pure function of the seed and the sequence's number, so the data
// position of a run is one integer, and neither micro-batching nor a restart changes what is read.
//
//   const int64_t per_step = batch_size * micro_batches;
//   SampledTokens batch = sampler.Random(step * per_step + micro_batch * batch_size, batch_size);
#ifndef GANTRY_TRAINER_DATA_BATCH_SAMPLER_H_
#define GANTRY_TRAINER_DATA_BATCH_SAMPLER_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "trainer/data/token_source.h"

namespace gantry {

// Immutable. Does not own the text.
class BatchSampler {
 public:
  struct Options {
    uint64_t seed;
    int64_t sequence_length;
  };
  // Errors: kInvalidArgument for a text that holds no sequence with its next token.
  static absl::StatusOr<BatchSampler> Create(std::span<const uint8_t> text, Options options);

  int64_t sequence_length() const { return options_.sequence_length; }
  // Sequences first .. first+count-1 of an endless series, each from a random place of the text.
  // REQUIRES: first >= 0, count >= 1.
  SampledTokens Random(int64_t first, int64_t count) const;

  // REQUIRES: 0 <= first, count >= 1, first + count <= total.
  SampledTokens Evenly(EvenSequences range) const;

 private:
  BatchSampler(std::span<const uint8_t> text, Options options) : text_(text), options_(options) {}
  // Places at which a sequence can begin.
  int64_t starts() const { return static_cast<int64_t>(text_.size()) - options_.sequence_length; }
  SampledTokens Empty(int64_t count) const;
  void Append(int64_t start, SampledTokens& batch) const;

  std::span<const uint8_t> text_;
  Options options_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_BATCH_SAMPLER_H_
