// The exponential that the host's kernels use (kernels/simd-inl.h), operation by operation: the
// same bits there and here, in sources that are compiled with -fmad=false. Included by .cu files.
#ifndef GANTRY_KERNELS_CUDA_EXP_CUH_
#define GANTRY_KERNELS_CUDA_EXP_CUH_

#include <cstdint>

#include "device/cuda/device_code.h"

namespace gantry::cuda {

// e^x within 2 units in the last place. Below -87.3 zero, above 88.722 infinity, NaN stays NaN.
__device__ __forceinline__ float HostExp(float x) {
  constexpr float kLow = -87.3F;
  constexpr float kHigh = 88.722F;
  float clamped = x < kLow ? kLow : x;
  clamped = clamped > kHigh ? kHigh : clamped;
  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits of the mantissa.
  constexpr float kMagic = 12582912.0F;
  const float shifted = clamped * 1.44269504088896341F + kMagic;
  const float n = shifted - kMagic;
  const float r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = (p * (r * r) + r) + 1.0F;
  // Multiplies by 2^n through the exponent field; p is in [0.70, 1.42] and n in [-126, 128].
  float y = __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
  y = x < kLow ? 0.0F : y;
  y = x > kHigh ? __uint_as_float(0x7f800000U) : y;
  return x == x ? y : x;
}

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_EXP_CUH_
