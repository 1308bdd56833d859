// SwiGLU, the gated activation of Llama's feed-forward layer:
//
//   forward   activated = silu(gate) * up,   silu(x) = x / (1 + e^-x)
//   backward  grad_up   = grad * silu(gate)
//             grad_gate = grad * up * s * (1 + gate * (1 - s)),   s = 1 / (1 + e^-gate)
//
// All matrices are [tokens, channels], f32 or bf16, all of one type, any row strides (gate and up
// may be halves of one fused activation). Arithmetic in float, one rounding per stored element:
// within 1e-6 (f32) or 2^-8 (bf16), relative, of the exact value. Outputs may be the same memory
// as inputs, element for element. Thread-safe on disjoint outputs; no allocation; bits do not
// depend on threads or instruction set.
#ifndef GANTRY_KERNELS_SWIGLU_H_
#define GANTRY_KERNELS_SWIGLU_H_

#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

struct SwiGluForwardArgs {
  ConstMatrixView gate;
  ConstMatrixView up;
  MatrixView activated;
};
void SwiGluForward(const KernelContext& context, const SwiGluForwardArgs& args);

struct SwiGluBackwardArgs {
  ConstMatrixView gate;
  ConstMatrixView up;
  ConstMatrixView grad_activated;
  MatrixView grad_gate;
  MatrixView grad_up;
};
void SwiGluBackward(const KernelContext& context, const SwiGluBackwardArgs& args);

}  // namespace gantry

#endif  // GANTRY_KERNELS_SWIGLU_H_
