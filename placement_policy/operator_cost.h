// What one micro-batch costs in each operator of a model: floating-point operations, and bytes of
// activations. Formulae, in tokens T, sequences B of length L (T = B x L), bytes b of an activation
// element. A multiplication and an addition are two operations. Norms, rotations, activation
// functions and residual additions are left out: they move memory, and are below 1 % of a layer.
//
// Operations
//   A product with a [m, k] matrix:  forward 2 T m k, gradient of the input the same, gradient of
//   the weight the same. An expert's matrix meets T x experts_per_token / experts rows.
//   Attention: P = B L (L + 1) / 2 pairs of query and key (fewer with a window), two products of
//   them: 2 P (query_width + attended_width). Backward: five products instead of two, 2.5 times
//   that, because the scores are computed again (FlashAttention-2, arXiv 2307.08691, section 2.3).
//   Head: its logits are never stored, so its backward pass computes them again: 2 T m k more.
// Saved for the backward pass, per token (what the operators of trainer/nn save; for GPT-2 the
// 34 s b h of Korthikanti et al., arXiv 2205.05198, section 4, without the two dropout masks and
// without the scores that flash attention does not keep):
//   QueryKeyValue      width + query + key + value; the same again of query and key when they are
//                      normalized; latent attention: the narrow vectors, before and after their
//                      norms
//   Attention          attended width; 4 bytes per head (log of the sum of exponentials)
//   AttentionOutput    width (the residual stream in the middle of the layer)
//   MlpUp              width + 2 ffn_width (GPT-2: one ffn_width, before the activation function)
//   MlpDown            ffn_width
//   Router             width; 4 bytes per expert, 8 per chosen expert
//   Experts            experts_per_token x (2 width + 3 expert_width)
//   SharedExperts      3 times their width
//   FinalNorm          width
//   Head               8 bytes
//   Each norm keeps 4 bytes more per row (GPT-2: 8).
// The residual stream, b x width, is what an embedding or a layer hands on.
//
// While the backward pass is in an operator, the gradients of its output and of its input are alive
// beside what is saved, and that of the residual stream; the gradient of an activation function's
// input takes the place of that input. tests/integration compares all this with what the engine
// records of its own model.
#ifndef GANTRY_PLACEMENT_POLICY_OPERATOR_COST_H_
#define GANTRY_PLACEMENT_POLICY_OPERATOR_COST_H_

#include <cstdint>

#include "base/dtype.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/model_structure.h"

namespace gantry {

struct MicroBatchShape {
  int64_t sequences = 1;
  int64_t length = 1;
  DType dtype = DType::kBF16;  // of activations

  int64_t tokens() const { return sequences * length; }
};
inline constexpr int64_t kMicroBatchTokensMax = int64_t{1} << 24;

struct OperatorCost {
  double forward_flops = 0.0;
  double input_gradient_flops = 0.0;  // with what the backward pass computes again
  double weight_gradient_flops = 0.0;
  double tensor_rows = 0.0;     // rows that each matrix multiplies: tokens, fewer for an expert
  int64_t saved_bytes = 0;      // made here, kept for the backward pass
  int64_t read_next_bytes = 0;  // of these, what the next operator reads
  int64_t stream_bytes = 0;     // of the residual stream, when this operator hands it on
  int64_t forward_bytes = 0;    // beside these, alive during the forward pass only
  int64_t backward_bytes = 0;   // gradients and workspaces alive during the backward pass
};

// REQUIRES: shape.Validate() is OK, `op` is of `structure`, StructureOf(shape), and sequences,
// length >= 1, tokens() <= kMicroBatchTokensMax.
OperatorCost CostOf(const ModelShape& shape, const ModelStructure& structure,
                    const ModelOperator& op, const MicroBatchShape& micro_batch);

// Pairs of a query and a key that it sees, in one sequence. 0 for `window`: no window.
double AttentionPairs(int64_t length, int64_t window);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_OPERATOR_COST_H_
