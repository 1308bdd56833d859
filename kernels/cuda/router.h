// The router of a mixture of experts on a CUDA device: which experts each token goes to, with what
// weight, and in what order their rows then lie.
//
//   scores = softmax over all experts, or sigmoid of each (float)
//   chosen: the `choices` experts of the largest score + choice_bias; of equals, the lowest number
//   weight = scale * score, divided by the sum of the token's chosen scores where `normalise`
//
// Logits are [tokens, experts], f32, bf16 or f16, any row stride; at most 512 experts and 32
// choices. No atomic operations: the same bits on every run. A NaN counts as the smallest score.
//
// Pointers are of device memory. Each call puts its work on the stream, does not wait, allocates
// nothing, and returns a cudaError (0: none).
#ifndef GANTRY_KERNELS_CUDA_ROUTER_H_
#define GANTRY_KERNELS_CUDA_ROUTER_H_

#include <cstdint>
#include <span>

#include "device/cuda/stream.h"
#include "kernels/views.h"

namespace gantry::cuda {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

struct RouterOptions {
  RouterScore score;
  int64_t choices;  // at most the experts
  bool normalise;
  float scale;
};

struct RouteArgs {
  RouterOptions options;
  ConstMatrixView logits;
  std::span<const float> choice_bias;  // [experts], or empty
  std::span<int32_t> experts;          // [tokens, choices], in descending order of the choice
  std::span<float> weights;            // [tokens, choices]
};
int Route(CudaStream stream, const RouteArgs& args);

// grad_logits from the gradients of the weights; the choice itself has none.
struct RouteBackwardArgs {
  RouterOptions options;
  ConstMatrixView logits;
  std::span<const int32_t> experts;
  std::span<const float> grad_weights;
  MatrixView grad_logits;  // of the logits' type; may be the logits
};
int RouteBackward(CudaStream stream, const RouteBackwardArgs& args);

// Sorts assignments (tokens times choices) by expert, keeping their order within an expert:
// offsets[e] .. offsets[e + 1] are expert e's slots, slots[a] is assignment a's, sources[s] the
// assignment of slot s. An assignment to -1 gets slot -1; sources beyond the last slot are -1.
struct GroupByExpertArgs {
  std::span<const int32_t> experts;  // [assignments], below 2^31 of them
  std::span<int32_t> offsets;        // [number of experts + 1]
  std::span<int32_t> slots;          // [assignments]
  std::span<int32_t> sources;        // [assignments]
};
// Each of the experts' blocks reads all assignments.
int GroupByExpert(CudaStream stream, const GroupByExpertArgs& args);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ROUTER_H_
