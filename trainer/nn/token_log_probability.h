// The language model head: per-token log-probabilities of targets, without the logits ever being
// stored whole. It is where a backward pass starts: a loss is a scalar function of the
// log-probabilities and hands back its derivative by each of them, so one head serves them all.
//
//   GANTRY_RETURN_IF_ERROR(TokenLogProbability(tape, hidden, head, tokens));
//   loss = CrossEntropy({.log_probabilities = ..., .grad_log_probabilities = ...});
//   GANTRY_RETURN_IF_ERROR(tape.Backward());
//
// Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_TOKEN_LOG_PROBABILITY_H_
#define GANTRY_TRAINER_NN_TOKEN_LOG_PROBABILITY_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/views.h"
#include "trainer/autograd/parameter_lease.h"
#include "trainer/autograd/tape.h"

namespace gantry {

struct HeadWeight {
  Parameter parameter;  // an lm_head, or the embedding table (tied)
  MatrixShape shape;    // [vocabulary, width]
};

// One element per row of the hidden states; all stay until the tape's Backward is done.
struct ScoredTokens {
  std::span<const int32_t> targets;    // token ids, or kIgnoreTarget: no score, no gradient
  std::span<float> log_probabilities;  // written; 0 where ignored
  // The loss's derivatives, filled in by the caller before Backward. Not read in evaluation.
  std::span<const float> grad_log_probabilities;
};

// log softmax(hidden weight^T) at the targets; the backward pass computes the logits again. Saves
// the hidden states and one float a token. Log-probabilities are float whatever the compute type.
// In a dry run nothing is written. Errors: those of the store, the arena and the multiplication.
absl::Status TokenLogProbability(Tape& tape, const Var& hidden, const HeadWeight& weight,
                                 const ScoredTokens& tokens);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_TOKEN_LOG_PROBABILITY_H_
