// Element-by-element operations on vectors (Flat() makes one of a contiguous
// matrix), and copies of matrices. Element types f32 and bf16, arithmetic in float, one rounding
// per stored element. Parallel over segments of kSegmentElements; bits do not depend on threads or
// instruction set. Thread-safe on disjoint outputs; no allocation. Outputs may be the same memory
// as inputs of the same type; partial overlap is not allowed.
#ifndef GANTRY_KERNELS_ELEMENTWISE_H_
#define GANTRY_KERNELS_ELEMENTWISE_H_

#include <cstdint>

#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

// The fixed unit of work.
inline constexpr int64_t kSegmentElements = 16384;

// sum[i] = a[i] + b[i]. REQUIRES: equal sizes; types may differ.
struct AddArgs {
  ConstVectorView a;
  ConstVectorView b;
  VectorView sum;
};
void Add(const KernelContext& context, const AddArgs& args);

// to[i] = from[i], converted. REQUIRES: equal sizes.
struct CastArgs {
  ConstVectorView from;
  VectorView to;
};
void Cast(const KernelContext& context, const CastArgs& args);

// to[row, i] = from[row, i], bit by bit: the same shape and type, any row strides.
struct CopyRowsArgs {
  ConstMatrixView from;
  MatrixView to;
};
void CopyRows(const KernelContext& context, const CopyRowsArgs& args);

// values[i] *= factor.
void Scale(const KernelContext& context, VectorView values, float factor);

// values[i] = 0.
void SetZero(const KernelContext& context, VectorView values);

// y[i] += alpha * x[i]. REQUIRES: equal sizes; types may differ.
struct AxpyArgs {
  float alpha;
  ConstVectorView x;
  VectorView y;
};
void Axpy(const KernelContext& context, const AxpyArgs& args);

}  // namespace gantry

#endif  // GANTRY_KERNELS_ELEMENTWISE_H_
