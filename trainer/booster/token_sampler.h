// Chooses the next token from a model's logits: greedily, or at random by softmax of logits over
// temperature, restricted to the most likely tokens. The random number is a pure function of seed
// and position, so a text repeats with its seed.
#ifndef GANTRY_TRAINER_BOOSTER_TOKEN_SAMPLER_H_
#define GANTRY_TRAINER_BOOSTER_TOKEN_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gantry {

struct SamplingOptions {
  double temperature = 1.0;  // 0: the most likely token, the first of equals
  int64_t top_k = 0;         // only the k most likely; 0: all
  double top_p = 1.0;        // only the fewest most likely that together reach this probability
  // Divides the logits of tokens that are in the text where they are positive, and multiplies them
  // where they are negative; 1: leaves them.
  double repetition_penalty = 1.0;
  uint64_t seed = 0;
};

// The tokens that are in a text. Thread-compatible.
class SeenTokens {
 public:
  // REQUIRES: no token is negative, as in Add.
  explicit SeenTokens(std::span<const int32_t> tokens);
  void Add(int32_t token);
  // Applies SamplingOptions::repetition_penalty. REQUIRES: a logit for each token.
  void Penalize(std::span<float> logits, double penalty) const;

 private:
  std::vector<bool> seen_;       // by token
  std::vector<int32_t> tokens_;  // each once
};

// Errors: kInvalidArgument for a temperature that is negative or not finite, a negative top_k, a
// top_p outside (0, 1], or a repetition penalty that is not finite and positive.
absl::Status ValidateSampling(const SamplingOptions& options);

// The token at `position` (the number of tokens before it). top_k is applied before top_p, and both
// break ties for the lower token. Errors: kInvalidArgument when no logit is finite or one is NaN.
// REQUIRES: valid options, at least one logit.
absl::StatusOr<int32_t> SampleToken(std::span<const float> logits, const SamplingOptions& options,
                                    int64_t position);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_TOKEN_SAMPLER_H_
