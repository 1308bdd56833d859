// Root-mean-square norm over the last dimension, or over each of several groups of it (the heads of
// queries and keys), optionally fused with the residual addition that
// precedes it. As in Llama: normalise in float, round to the activations' type, then multiply by
// the weight:
//
//   h = x + residual                       (rounded to its type; h is x without a residual)
//   rstd = 1 / sqrt(mean(h^2) + epsilon)
//   y = weight * round(h * rstd)
//
// Matrices are [rows, groups * channels] of one type, f32 or bf16, any row strides; the weight and
// its gradient may have another type. Sums run in float over sixteen lanes in a fixed order; within
// 1e-6 * sqrt(channels) (f32) or 2^-7 (bf16), relative to the row's largest value, of the exact
// result. Thread-safe on disjoint outputs; no allocation; bits do not depend on threads or
// instruction set.
#ifndef GANTRY_KERNELS_RMS_NORM_H_
#define GANTRY_KERNELS_RMS_NORM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

struct RmsNormForwardArgs {
  ConstMatrixView x;
  std::optional<ConstMatrixView> residual;
  std::optional<MatrixView> sum;  // h, exactly when there is a residual; may be x or the residual
  ConstVectorView weight;         // [channels]
  float epsilon;
  MatrixView y;           // may be x when there is no residual
  std::span<float> rstd;  // [rows, groups], for the backward pass
  int64_t groups = 1;     // adjacent vectors of a row, each normed by itself
};
void RmsNormForward(const KernelContext& context, const RmsNormForwardArgs& args);

// Gradients of the loss with respect to h (which is also that of x and of the residual) and to the
// weight. grad_residual is what flows into h from its other use, the residual stream:
//
//   grad_h = rstd * (weight * grad_y - h_hat * mean(weight * grad_y * h_hat)) + grad_residual
//   grad_weight (+)= sum over rows of grad_y * h_hat,   h_hat = h * rstd
//
// grad_weight is summed in float over the groups of each row in fixed blocks of rows, then over the
// blocks in order.
struct RmsNormBackwardArgs {
  ConstMatrixView h;
  ConstVectorView weight;
  std::span<const float> rstd;
  ConstMatrixView grad_y;
  std::optional<ConstMatrixView> grad_residual;
  MatrixView grad_h;                      // may be grad_y or grad_residual
  std::optional<VectorView> grad_weight;  // none when the weight is frozen
  Accumulate accumulate;                  // of grad_weight
  std::span<std::byte> workspace;         // aligned as kWorkspaceAlignment says
  int64_t groups = 1;
};
void RmsNormBackward(const KernelContext& context, const RmsNormBackwardArgs& args);

// At most 64 rows of floats; shape is [rows, channels].
Bytes RmsNormBackwardWorkspace(MatrixShape shape);

}  // namespace gantry

#endif  // GANTRY_KERNELS_RMS_NORM_H_
