// What operators run on: who holds the parameters (and the activations' memory), the kernels'
// threads and matrix multiplication, and the type of activations. Plain pointers, owned by the
// caller, which keeps them alive while any tape over the context lives.
#ifndef GANTRY_TRAINER_AUTOGRAD_EXECUTION_CONTEXT_H_
#define GANTRY_TRAINER_AUTOGRAD_EXECUTION_CONTEXT_H_

#include "base/dtype.h"
#include "gemini/parameter_store.h"
#include "kernels/kernel_context.h"

namespace gantry {

struct ExecutionContext {
  ParameterStore* store;
  KernelContext kernels;
  DType compute_dtype;  // of activations and their gradients: kF32 or kBF16
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_AUTOGRAD_EXECUTION_CONTEXT_H_
