// Serial conversions between stored element types and float, the inner loops of Cast and of the
// matrix kernels' tile copies. Vectorised with run-time dispatch; thread-safe; no allocation.
// Rounding is to nearest, ties to even; NaN stays NaN. Source and destination may be the same
// memory only when their types are the same.
#ifndef GANTRY_KERNELS_CONVERT_H_
#define GANTRY_KERNELS_CONVERT_H_

#include "kernels/views.h"

namespace gantry {

// to[i] = from[i] as float. `to` has room for from.size elements.
void ConvertToFloat(const ConstVectorView& from, float* to);

// to[i] = round(from[i]), or round(to[i] + from[i]) with kAdd (added in float, rounded once).
void ConvertFromFloat(const float* from, const VectorView& to, Accumulate accumulate);

// Sets the elements to +0.
void FillZero(const VectorView& to);

}  // namespace gantry

#endif  // GANTRY_KERNELS_CONVERT_H_
