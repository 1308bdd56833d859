// Layer norm over the last dimension, optionally fused with the residual addition that precedes it:
//
//   h = x + residual                       (rounded to its type; h is x without a residual)
//   rstd = 1 / sqrt(mean((h - mean(h))^2) + epsilon)
//   y = weight * (h - mean(h)) * rstd + bias
//
// Matrices are [rows, channels] of one type, f32 or bf16, any row strides; weight, bias and their
// gradients may have another type. The variance is summed in a second pass, around the mean. Sums
// run in float over sixteen lanes in a fixed order, y is rounded once; within 2e-6 * sqrt(channels)
// (f32) or 2^-7 (bf16), relative to the row's largest value, of the exact result. Thread-safe on
// disjoint outputs; no allocation; bits do not depend on threads or instruction set.
#ifndef GANTRY_KERNELS_LAYER_NORM_H_
#define GANTRY_KERNELS_LAYER_NORM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

// Of each row, for the backward pass.
struct LayerNormStatistics {
  std::span<float> mean;
  std::span<float> rstd;
};

struct LayerNormForwardArgs {
  ConstMatrixView x;
  std::optional<ConstMatrixView> residual;
  std::optional<MatrixView> sum;  // h, exactly when there is a residual; may be x or the residual
  ConstVectorView weight;         // [channels]
  ConstVectorView bias;           // [channels]
  float epsilon;
  MatrixView y;  // may be x when there is no residual
  LayerNormStatistics statistics;
};
void LayerNormForward(const KernelContext& context, const LayerNormForwardArgs& args);

// Gradients of the loss with respect to h (which is also that of x and of the residual), the weight
// and the bias. grad_residual is what flows into h from its other use, the residual stream:
//
//   g = weight * grad_y,   h_hat = (h - mean) * rstd
//   grad_h = rstd * (g - mean(g) - h_hat * mean(g * h_hat)) + grad_residual
//   grad_weight (+)= sum over rows of grad_y * h_hat,   grad_bias (+)= sum over rows of grad_y
//
// Both sums run in float over fixed blocks of rows, then over the blocks in order.
struct LayerNormBackwardArgs {
  struct ParameterGradient {
    VectorView gradient;
    Accumulate accumulate;
  };
  ConstMatrixView h;
  ConstVectorView weight;
  LayerNormStatistics statistics;
  ConstMatrixView grad_y;
  std::optional<ConstMatrixView> grad_residual;
  MatrixView grad_h;                             // may be grad_y or grad_residual
  std::optional<ParameterGradient> grad_weight;  // none when the weight is frozen
  std::optional<ParameterGradient> grad_bias;
  std::span<std::byte> workspace;  // aligned as kWorkspaceAlignment says
};
void LayerNormBackward(const KernelContext& context, const LayerNormBackwardArgs& args);

// At most 128 rows of floats.
Bytes LayerNormBackwardWorkspace(MatrixShape shape);

}  // namespace gantry

#endif  // GANTRY_KERNELS_LAYER_NORM_H_
