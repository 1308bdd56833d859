// The language model head fused with what is done to its logits: per-token log-probabilities of the
// targets, and the gradient that flows back from them, without ever holding the [tokens,
// vocabulary] logits. Losses (cross-entropy, DPO, GRPO, ...) are scalar functions of the
// log-probabilities and hand back their derivative by each of them.
//
//   logits = x weight^T,   log_probability[n] = logits[n, target[n]] - log sum_v e^logits[n, v]
//
// x is [tokens, channels], weight [vocabulary, channels] (a tied embedding table or an lm_head of
// its own), f32 or bf16, any row strides. targets[n] is a token id, or kIgnoreTarget: then the
// log-probability is reported as 0 and no gradient flows.
//
// Both passes go through the vocabulary in blocks; the backward pass computes each block's logits
// again. Logits are float whatever the inputs' type; their gradient is rounded to x's type before
// the two products that use it. grad_x is summed in float over the blocks and rounded once.
//
// Error: log-probabilities about 1e-6 of the largest logit (f32), plus the matrix product's. Bits
// do not depend on the number of threads. Allocates nothing itself (see matmul.h). Thread-safe on
// disjoint outputs.
#ifndef GANTRY_KERNELS_CROSS_ENTROPY_HEAD_H_
#define GANTRY_KERNELS_CROSS_ENTROPY_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

inline constexpr int32_t kIgnoreTarget = -1;

struct HeadShape {
  int64_t tokens;
  int64_t channels;
  int64_t vocabulary;
};

struct TokenLogProbabilitiesArgs {
  ConstMatrixView x;
  ConstMatrixView weight;
  std::span<const int32_t> targets;    // [tokens]
  std::span<float> log_probabilities;  // [tokens]
  std::span<float> log_sum_exp;        // [tokens], for the backward pass
  std::span<std::byte> workspace;      // aligned as kWorkspaceAlignment says
};
// Errors: those of MatMul::Run.
absl::Status TokenLogProbabilities(const KernelContext& context,
                                   const TokenLogProbabilitiesArgs& args);
// At most 8 MiB for a block of logits plus 16 bytes a token.
Bytes TokenLogProbabilitiesWorkspace(const HeadShape& shape);

struct TokenLogProbabilitiesBackwardArgs {
  ConstMatrixView x;
  ConstMatrixView weight;
  std::span<const int32_t> targets;
  std::span<const float> log_sum_exp;
  std::span<const float> grad_log_probabilities;  // [tokens]; ignored where the target is
  MatrixView grad_x;                              // overwritten; may not be x
  std::optional<MatrixView> grad_weight;          // none when the head is frozen
  Accumulate accumulate;                          // of grad_weight
  std::span<std::byte> workspace;
};
// Errors: those of MatMul::Run.
absl::Status TokenLogProbabilitiesBackward(const KernelContext& context,
                                           const TokenLogProbabilitiesBackwardArgs& args);
// The sum of: the gradient of one block of logits, 2 (bf16) or 4 bytes times the tokens times a
// block of 256 to 2048 words, chosen so that it stays at 8 Mi elements up to 32 Ki tokens; for
// bf16, 8 MiB of float logits; where grad_x is bf16, its float sum, 4 * tokens * channels bytes.
struct HeadBackwardTypes {
  DType x;
  DType grad_x;
};
Bytes TokenLogProbabilitiesBackwardWorkspace(const HeadShape& shape,
                                             const HeadBackwardTypes& types);

// loss = -scale * sum over valid tokens of log_probabilities; summed in double in token order.
struct CrossEntropyArgs {
  std::span<const float> log_probabilities;
  std::span<const int32_t> targets;
  double scale;                             // 1 / valid tokens of the whole batch, for a mean
  std::span<float> grad_log_probabilities;  // [tokens] or empty: -scale, 0 for ignored tokens
};
struct CrossEntropyResult {
  double loss;
  int64_t valid_tokens;
};
CrossEntropyResult CrossEntropy(const CrossEntropyArgs& args);

}  // namespace gantry

#endif  // GANTRY_KERNELS_CROSS_ENTROPY_HEAD_H_
