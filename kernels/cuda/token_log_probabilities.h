// What a language model head does to its logits, block of the vocabulary by block, on a CUDA
// device: the parts of kernels/cross_entropy_head.h between its matrix products, by the same
// contract.
//
//   for each block of words: logits = x weight[block]^T (a matrix product), AddLogits(...)
//   FinishLogProbabilities(...)
//   backward, for each block: the logits again, LogitsToGradients(...), two matrix products
//
// Logits and their gradients are [tokens, words of the block], f32, bf16 or f16, any row strides
// (fastest where rows are aligned to 16 bytes; each logit is read once, and in the backward pass
// written once). Arithmetic in float; a token's sum over blocks in double. The same bits on every
// run; gradients have the bits that the host computes from the same logits. Error of a
// log-probability: about 1e-6 of the largest logit, plus 1e-6.
//
// Pointers are of device memory. Each call puts its work on the stream, does not wait, allocates
// nothing, and returns a cudaError (0: none). Targets are token ids or kIgnoreTarget; nobody checks
// them. With a vocabulary divided among devices each adds its own words, and the running sums are
// combined before FinishLogProbabilities.
#ifndef GANTRY_KERNELS_CUDA_TOKEN_LOG_PROBABILITIES_H_
#define GANTRY_KERNELS_CUDA_TOKEN_LOG_PROBABILITIES_H_

#include <cstdint>
#include <span>

#include "device/cuda/stream.h"
#include "kernels/views.h"

namespace gantry::cuda {

// sum over the words seen so far of e^(logit - maximum).
struct RunningLogits {
  double sum;
  float maximum;
};

struct AddLogitsArgs {
  ConstMatrixView logits;
  int64_t first_word;                // of the block
  Accumulate accumulate;             // kOverwrite: the first block
  std::span<const int32_t> targets;  // [tokens]
  std::span<RunningLogits> running;  // [tokens]
  std::span<float> target_logits;    // [tokens]; written where the block has the target
};
int AddLogits(CudaStream stream, const AddLogitsArgs& args);

struct FinishLogProbabilitiesArgs {
  std::span<const int32_t> targets;
  std::span<const RunningLogits> running;
  std::span<float> log_probabilities;  // in: target_logits; 0 where the target is kIgnoreTarget
  std::span<float> log_sum_exp;
};
int FinishLogProbabilities(CudaStream stream, const FinishLogProbabilitiesArgs& args);

// grad_logits[n, v] = grad[n] * ((v is the target) - e^(logits[n, v] - log_sum_exp[n])); zero where
// the target is ignored or grad[n] is zero, whatever the logits.
struct LogitsToGradientsArgs {
  ConstMatrixView logits;
  int64_t first_word;
  std::span<const int32_t> targets;
  std::span<const float> log_sum_exp;
  std::span<const float> grad_log_probabilities;
  MatrixView grad_logits;  // may be the logits where the type is the same
};
int LogitsToGradients(CudaStream stream, const LogitsToGradientsArgs& args);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_TOKEN_LOG_PROBABILITIES_H_
