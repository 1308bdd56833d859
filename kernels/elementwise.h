// Element-by-element operations and full reductions on vectors (Flat() makes one of a contiguous
// matrix). Element types f32 and bf16, arithmetic in float, one rounding per stored element.
// Parallel over segments of kSegmentElements; bits do not depend on threads or instruction set.
// Thread-safe on disjoint outputs; no allocation. Outputs may be the same memory as inputs of the
// same type; partial overlap is not allowed.
#ifndef GANTRY_KERNELS_ELEMENTWISE_H_
#define GANTRY_KERNELS_ELEMENTWISE_H_

#include <cstdint>
#include <span>

#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

// The fixed unit of work and of partial sums.
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

// partials[s] = sum of squares of segment s (elements s * kSegmentElements and on; the last may be
// shorter), in double: squares are exact and cannot overflow. Infinities and NaN show in the
// partial. REQUIRES: partials has SegmentCount(values.size) elements.
constexpr int64_t SegmentCount(int64_t size) {
  return (size + kSegmentElements - 1) / kSegmentElements;
}
void SumSquares(const KernelContext& context, ConstVectorView values, std::span<double> partials);

// True when no element is infinite or NaN.
bool AllFinite(const KernelContext& context, ConstVectorView values);

}  // namespace gantry

#endif  // GANTRY_KERNELS_ELEMENTWISE_H_
