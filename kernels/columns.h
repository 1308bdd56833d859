// Operations with one number for each column of a matrix. Elements are f32 or bf16, any row
// strides, arithmetic in float, one rounding per stored element. Outputs may be the same memory as
// inputs, element for element. Parallel over rows; bits do not depend on threads or instruction
// set. Thread-safe on disjoint outputs; no allocation.
#ifndef GANTRY_KERNELS_COLUMNS_H_
#define GANTRY_KERNELS_COLUMNS_H_

#include <span>

#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

// y[r, c] (+)= x[r, c] * (scale * factors[c] + offset). One type.
struct ScaleColumnsArgs {
  ConstMatrixView x;
  std::span<const float> factors;
  MatrixView y;
  Accumulate accumulate;
  float scale = 1.0F;
  float offset = 0.0F;
};
void ScaleColumns(const KernelContext& context, const ScaleColumnsArgs& args);

// y[r, c] += factor * values[c].
struct AddToRowsArgs {
  ConstVectorView values;
  float factor;
  MatrixView y;
};
void AddToRows(const KernelContext& context, const AddToRowsArgs& args);

// y[r, c] = a[r, c] * b[r, c]. One type.
struct MultiplyElementsArgs {
  ConstMatrixView a;
  ConstMatrixView b;
  MatrixView y;
};
void MultiplyElements(const KernelContext& context, const MultiplyElementsArgs& args);

}  // namespace gantry

#endif  // GANTRY_KERNELS_COLUMNS_H_
