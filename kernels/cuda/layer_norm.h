// Layer norm over the last dimension on a CUDA device, optionally fused with the residual addition
// that precedes it:
//
//   h = x + residual                       (rounded to its type; h is x without a residual)
//   mean = mean(h),   rstd = 1 / sqrt(mean((h - mean)^2) + epsilon)
//   y = (h - mean) * rstd * weight + bias
//
// Matrices are [rows, channels] of one type, f32, bf16 or f16, any row strides (fastest where rows,
// weight and bias are aligned to 16 bytes; each is read from memory once then). Weight and bias
// have the matrices' type or f32, both the same. Statistics and sums are in float, in an order that
// the shape alone decides: the same bits on every run. Error: 1e-6 * sqrt(channels) (f32) or one
// rounding (bf16, f16), relative to the row's largest value.
//
// Views and spans are of device memory. Each call puts its work on the stream, does not wait,
// allocates nothing, and returns a cudaError (0: none).
#ifndef GANTRY_KERNELS_CUDA_LAYER_NORM_H_
#define GANTRY_KERNELS_CUDA_LAYER_NORM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "device/cuda/stream.h"
#include "kernels/views.h"

namespace gantry::cuda {

struct LayerNormForwardArgs {
  ConstMatrixView x;
  std::optional<ConstMatrixView> residual;
  std::optional<MatrixView> sum;        // h, exactly when there is a residual; may be x or residual
  ConstVectorView weight;               // [channels]
  std::optional<ConstVectorView> bias;  // [channels]
  float epsilon;
  MatrixView y;           // may be x when there is no residual
  std::span<float> mean;  // [rows], for the backward pass, as rstd
  std::span<float> rstd;
};
int LayerNormForward(CudaStream stream, const LayerNormForwardArgs& args);

//   g = weight * grad_y,   h_hat = (h - mean) * rstd
//   grad_h = rstd * (g - mean(g) - h_hat * mean(g * h_hat)) + grad_residual
//   grad_weight (+)= sum over rows of grad_y * h_hat,   grad_bias (+)= sum over rows of grad_y
struct LayerNormBackwardArgs {
  ConstMatrixView h;
  ConstVectorView weight;
  std::span<const float> mean;
  std::span<const float> rstd;
  ConstMatrixView grad_y;
  std::optional<ConstMatrixView> grad_residual;
  MatrixView grad_h;                      // may be grad_y or grad_residual
  std::optional<VectorView> grad_weight;  // f32, bf16 or f16; none when the weight is frozen
  std::optional<VectorView> grad_bias;
  Accumulate accumulate;           // of grad_weight and grad_bias
  std::span<std::byte> workspace;  // aligned to 16 bytes
};
// REQUIRES: channels <= kLayerNormChannelsMax where there is a grad_weight or a grad_bias: a block
// keeps its sums in shared memory.
int LayerNormBackward(CudaStream stream, const LayerNormBackwardArgs& args);
inline constexpr int64_t kLayerNormChannelsMax = 12288;

// Needed where there is a grad_weight or a grad_bias. At most 2176 rows of floats.
Bytes LayerNormBackwardWorkspace(MatrixShape shape);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_LAYER_NORM_H_
