// What every kernel runs on: a team of threads, and for kernels that multiply matrices the MatMul
// object that wraps oneDNN. Plain pointers, owned by the caller, alive during each call.
//
// Results never depend on the number of threads: every kernel splits its work by shape alone and
// reduces in a fixed order.
#ifndef GANTRY_KERNELS_KERNEL_CONTEXT_H_
#define GANTRY_KERNELS_KERNEL_CONTEXT_H_

#include "base/parallel_for.h"

namespace gantry {

class MatMul;

struct KernelContext {
  ThreadTeam* team;
  MatMul* matmul;  // may be null for kernels that do not multiply matrices
};

}  // namespace gantry

#endif  // GANTRY_KERNELS_KERNEL_CONTEXT_H_
