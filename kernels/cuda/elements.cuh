// Elements and runs of elements in device code: conversions to float and back (round to nearest,
// ties to even, as base/dtype.h), and 16-byte loads and stores. Included by .cu files.
#ifndef GANTRY_KERNELS_CUDA_ELEMENTS_CUH_
#define GANTRY_KERNELS_CUDA_ELEMENTS_CUH_

#include <cstdint>

#include "base/dtype.h"
#include "device/cuda/device_code.h"
#include "kernels/views.h"

namespace gantry::cuda {

__device__ __forceinline__ float ToFloat(float value) { return value; }
__device__ __forceinline__ float ToFloat(BFloat16 value) { return BF16BitsToFloat(value.bits); }

template <typename T>
__device__ __forceinline__ T FromFloat(float value);
template <>
__device__ __forceinline__ float FromFloat<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ BFloat16 FromFloat<BFloat16>(float value) {
  return BFloat16(value);
}

// `kCount` consecutive elements that move at once.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];  // NOLINT: as device code has it
};

template <typename T, int kCount>
__device__ __forceinline__ void LoadPack(const T* from, float (&values)[kCount]) {
  const auto pack = *reinterpret_cast<const Pack<T, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = ToFloat(pack.values[i]);
}
template <typename T, int kCount>
__device__ __forceinline__ void StorePack(T* to, const float (&values)[kCount]) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) pack.values[i] = FromFloat<T>(values[i]);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

// The view's data as elements of the type that WithElementType gives.
template <typename T>
const T* Typed(const ConstVectorView& view, T* /*type*/) {
  return view.As<T>();
}
template <typename T>
T* Typed(const VectorView& view, T* /*type*/) {
  return view.As<T>();
}

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ELEMENTS_CUH_
