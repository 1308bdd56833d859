// What a trainer reads: an endless series of equally long sequences of tokens, addressed by number.
// Sequence n is the same whenever and however it is asked for, so the data position of a run is one
// integer, and neither micro-batching nor a restart changes what is read.
//
//   const int64_t per_step = batch_size * micro_batches;
//   GANTRY_ASSIGN_OR_RETURN(SampledTokens batch,
//                           source.Read(step * per_step + micro_batch * batch_size, batch_size));
//
// A loss is divided by the scored tokens of the whole step, not of one batch: read all of a step's
// batches and add up their scored_tokens before the first backward pass.
#ifndef GANTRY_TRAINER_DATA_TOKEN_SOURCE_H_
#define GANTRY_TRAINER_DATA_TOKEN_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gantry {

// [sequences, length], row-major; a target is the token behind the one it stands at.
struct SampledTokens {
  int64_t sequences;
  int64_t length;
  std::vector<int32_t> tokens;   // [sequences * length]
  std::vector<int32_t> targets;  // likewise: a token, or kIgnoreTarget (no loss there)
  // Where documents begin in `tokens`, ascending: attention must not look past the beginning of its
  // document, and positions count from there. The first of each sequence begins at its first token;
  // padding at the end of a sequence is a document of its own, of which nothing is scored. Empty:
  // each sequence is one document.
  std::vector<int32_t> documents;
  int64_t scored_tokens;  // targets other than kIgnoreTarget
};

// Sequences first .. first+count-1 of `total` that lie evenly over all there is, the same for any
// seed: for evaluation.
struct EvenSequences {
  int64_t first;
  int64_t count;
  int64_t total;
};

// Immutable: any thread may read, and several at once. Reading may block on a file.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual int64_t sequence_length() const = 0;
  // Sequences until every document has been read once; the next ones read them again in another
  // order. 0 for a source that draws from random places and so has no epochs.
  virtual int64_t sequences_per_epoch() const = 0;
  // Of one epoch, or 0 likewise.
  virtual int64_t scored_tokens_per_epoch() const = 0;
  // Identifies the data and how it becomes sequences, so that a resumed run can tell that they are
  // the same.
  virtual const std::string& fingerprint() const = 0;

  // Sequences first .. first+count-1. REQUIRES: first >= 0, count >= 1. Errors: those of reading;
  // kDataLoss for a file that is no longer what it was.
  virtual absl::StatusOr<SampledTokens> Read(int64_t first, int64_t count) const = 0;
  // REQUIRES: 0 <= first, count >= 1, first + count <= total. Errors: as Read.
  virtual absl::StatusOr<SampledTokens> ReadEvenly(EvenSequences range) const = 0;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_TOKEN_SOURCE_H_
