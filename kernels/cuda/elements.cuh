// Elements and runs of elements in device code: conversions to float and back (round to nearest,
// ties to even, as base/dtype.h; a NaN becomes some NaN), and loads and stores of up to 16 bytes.
// Included by .cu files.
#ifndef GANTRY_KERNELS_CUDA_ELEMENTS_CUH_
#define GANTRY_KERNELS_CUDA_ELEMENTS_CUH_

#include <cstdint>
#include <optional>

#include "base/check.h"
#include "base/dtype.h"
#include "device/cuda/device_code.h"
#include "kernels/views.h"

namespace gantry::cuda {

__device__ __forceinline__ float ToFloat(float value) { return value; }
__device__ __forceinline__ float ToFloat(BFloat16 value) { return BF16BitsToFloat(value.bits); }
__device__ __forceinline__ float ToFloat(Float16 value) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#else
  return F16BitsToFloat(value.bits);
#endif
}

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
template <>
__device__ __forceinline__ Float16 FromFloat<Float16>(float value) {
#if defined(__CUDA_ARCH__)
  Float16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#else
  return Float16(value);
#endif
}

// `kCount` consecutive elements that move at once, at most 16 bytes an instruction.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
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

// A matrix as device code takes it.
template <typename T>
struct Rows {
  T* data;  // may be null: not there
  int64_t stride;

  __device__ T* operator[](int64_t row) const { return data + row * stride; }
};

// Whether packs of eight can be loaded from the start of every row.
template <typename Byte>
bool PacksOfEight(const BasicMatrixView<Byte>& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 &&
         (view.rows <= 1 || view.row_stride % 8 == 0);
}
template <typename Byte>
bool PacksOfEight(const BasicVectorView<Byte>& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}

// As WithElementType, for kernels that also take f16.
template <typename Function>
void WithDeviceElementType(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kBF16:
      return function(static_cast<BFloat16*>(nullptr));
    case DType::kF16:
      return function(static_cast<Float16*>(nullptr));
    case DType::kF32:
      break;
  }
  function(static_cast<float*>(nullptr));
}

// Calls function(T*, W*) with null pointers of the types of activations and weights.
// REQUIRES: the weight is f32 or of the activations' type.
template <typename Function>
void WithActivationAndWeight(DType activations, DType weight, const Function& function) {
  GANTRY_CHECK(weight == DType::kF32 || weight == activations)
      << "weight " << weight << ", activations " << activations;
  WithDeviceElementType(activations, [&]<typename T>(T* type) {
    if (weight == DType::kF32) return function(type, static_cast<float*>(nullptr));
    function(type, type);
  });
}

template <typename T, typename Byte>
auto RowsOf(const BasicMatrixView<Byte>& view) {
  using Element = typename BasicMatrixView<Byte>::template Element<T>;
  return Rows<Element>{.data = view.template Row<T>(0), .stride = view.row_stride};
}
template <typename T, typename Byte>
auto RowsOf(const std::optional<BasicMatrixView<Byte>>& view) {
  using Element = typename BasicMatrixView<Byte>::template Element<T>;
  return view.has_value() ? RowsOf<T>(*view) : Rows<Element>{.data = nullptr, .stride = 0};
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
