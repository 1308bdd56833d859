// A batch of a TokenSource as models take it. Owns the tokens; movable.
#ifndef GANTRY_TRAINER_BOOSTER_TRAINING_BATCH_H_
#define GANTRY_TRAINER_BOOSTER_TRAINING_BATCH_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/data/token_source.h"
#include "trainer/models/decoder.h"

namespace gantry {

class TrainingBatch {
 public:
  explicit TrainingBatch(SampledTokens sampled)
      : sampled_(std::move(sampled)),
        documents_(sampled_.documents.begin(), sampled_.documents.end()) {}

  int64_t scored_tokens() const { return sampled_.scored_tokens; }
  // Valid until the batch is moved or destroyed.
  TokenBatch view() const {
    return {.sequences = sampled_.sequences,
            .length = sampled_.length,
            .tokens = sampled_.tokens,
            .targets = sampled_.targets,
            .documents = documents_};
  }

 private:
  SampledTokens sampled_;
  std::vector<int32_t> documents_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_TRAINING_BATCH_H_
