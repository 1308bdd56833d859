// GELU, the activation of GPT-2's feed-forward layer, exactly or as its approximation by tanh:
//
//   kExact   x * Phi(x),  Phi(x) = erfc(-x / sqrt 2) / 2
//   kTanh    x * (1 + tanh u) / 2,  u = sqrt(2 / pi) * (x + 0.044715 x^3)
//
// Matrices are [tokens, channels], f32 or bf16, all of one type, any row strides. Arithmetic in
// float, one rounding per stored element: within 1e-6 (f32) or 2^-8 (bf16) of the exact value,
// relative to the larger of it and 1. Outputs may be the same memory as inputs, element for
// element. Thread-safe on disjoint outputs; no allocation; bits do not depend on threads or
// instruction set.
#ifndef GANTRY_KERNELS_GELU_H_
#define GANTRY_KERNELS_GELU_H_

#include <cstdint>

#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

enum class GeluForm : uint8_t { kExact, kTanh };

struct GeluForwardArgs {
  GeluForm form;
  ConstMatrixView x;
  MatrixView activated;
};
void GeluForward(const KernelContext& context, const GeluForwardArgs& args);

// grad_x = grad_activated * the derivative at x.
struct GeluBackwardArgs {
  GeluForm form;
  ConstMatrixView x;
  ConstMatrixView grad_activated;
  MatrixView grad_x;
};
void GeluBackward(const KernelContext& context, const GeluBackwardArgs& args);

}  // namespace gantry

#endif  // GANTRY_KERNELS_GELU_H_
