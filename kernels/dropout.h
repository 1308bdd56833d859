// Dropout: each element is kept with probability 1 - rate and divided by that, or becomes zero.
// Whether it is kept is a pure function of the key and of its index among all elements of a step,
// so that it does not depend on threads, micro-batches or recomputation, and the backward pass is
// the same function of the gradient.
//
// Elements are f32 or bf16, arithmetic in float, one rounding per stored element. Thread-safe on
// disjoint outputs; no allocation.
#ifndef GANTRY_KERNELS_DROPOUT_H_
#define GANTRY_KERNELS_DROPOUT_H_

#include <cstdint>

#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

// Two keys that differ anywhere give independent choices.
struct DropoutKey {
  uint64_t seed;
  uint32_t stream;  // which of a model's dropouts
  uint32_t step;
  // The index of the first element among those of the step: with more micro-batches or ranks the
  // later ones start higher.
  uint64_t first_element;
};

// y (+)= x * kept / (1 - rate). Both [rows, cols] of one type, any row strides; element [r, c] has
// index first_element + r * cols + c. y may be x unless it is added to. REQUIRES: 0 <= rate < 1.
struct DropoutArgs {
  ConstMatrixView x;
  MatrixView y;
  DropoutKey key;
  double rate;
  Accumulate accumulate;
};
void Dropout(const KernelContext& context, const DropoutArgs& args);

// Whether one element is kept, as the kernel decides.
bool DropoutKeeps(const DropoutKey& key, double rate, uint64_t element);

}  // namespace gantry

#endif  // GANTRY_KERNELS_DROPOUT_H_
