// GELU and the addition of a bias, element by element, on a CUDA device:
//
//   exact   y = x/2 (1 + erf(x / sqrt(2)))
//   tanh    y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))        (GPT-2's)
//
// Matrices are of one type, f32, bf16 or f16, any row strides (fastest where rows are aligned to 16
// bytes, each element read and written once); the bias has the matrices' type or f32. Arithmetic in
// float, one rounding: within 1e-6 (f32) or one rounding, relative to the largest value, of the
// exact result. Outputs may be the same memory as inputs, element for element.
//
// Views are of device memory. Each call puts its work on the stream, does not wait, and returns a
// cudaError (0: none).
#ifndef GANTRY_KERNELS_CUDA_GELU_H_
#define GANTRY_KERNELS_CUDA_GELU_H_

#include <cstdint>
#include <optional>

#include "device/cuda/stream.h"
#include "kernels/gelu.h"
#include "kernels/views.h"

namespace gantry::cuda {

// y = x + bias, for every row. The bias's gradient is ColumnSums of that of y.
struct AddBiasArgs {
  ConstMatrixView x;
  ConstVectorView bias;  // [x.cols]
  MatrixView y;
};
int AddBias(CudaStream stream, const AddBiasArgs& args);

// y = gelu(x + bias).
struct GeluForwardArgs {
  GeluForm form;
  ConstMatrixView x;
  std::optional<ConstVectorView> bias;  // [x.cols]
  MatrixView y;
};
int GeluForward(CudaStream stream, const GeluForwardArgs& args);

// grad_x = grad_y * gelu'(x + bias).
struct GeluBackwardArgs {
  GeluForm form;
  ConstMatrixView x;
  std::optional<ConstVectorView> bias;
  ConstMatrixView grad_y;
  MatrixView grad_x;
};
int GeluBackward(CudaStream stream, const GeluBackwardArgs& args);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_GELU_H_
