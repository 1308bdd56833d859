// Chooses the next token from a model's logits: greedily, or at random by softmax of logits over
// temperature, restricted to the most likely tokens. The random number is a pure function of seed
// and position, so a text repeats with its seed.
#ifndef GANTRY_TRAINER_BOOSTER_TOKEN_SAMPLER_H_
#define GANTRY_TRAINER_BOOSTER_TOKEN_SAMPLER_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gantry {

struct SamplingOptions {
  double temperature = 1.0;  // 0: the most likely token, the first of equals
  int64_t top_k = 0;         // only the k most likely; 0: all
  double top_p = 1.0;        // only the fewest most likely that together reach this probability
  uint64_t seed = 0;
};

// Errors: kInvalidArgument for a temperature that is negative or not finite, a negative top_k or a
// top_p outside (0, 1].
absl::Status ValidateSampling(const SamplingOptions& options);

// The token at `position` (the number of tokens before it). top_k is applied before top_p, and both
// break ties for the lower token. Errors: kInvalidArgument when no logit is finite or one is NaN.
// REQUIRES: valid options, at least one logit.
absl::StatusOr<int32_t> SampleToken(std::span<const float> logits, const SamplingOptions& options,
                                    int64_t position);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_TOKEN_SAMPLER_H_
