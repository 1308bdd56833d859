// Each block sums a share of the vector, thread by thread in strides; one block adds the shares.
#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/sum_squares.h"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr int kBlockThreads = 256;
constexpr int64_t kBlocksMax = 1024;
constexpr int64_t kBlockElements = 8 * kBlockThreads;  // that make another block worth it

__device__ __forceinline__ bool IsFinite(float value) {
  return (__float_as_uint(value) & 0x7f800000U) != 0x7f800000U;
}

// Calls use(element) for all elements of the calling thread.
template <typename T, bool kAligned, typename Use>
__device__ __forceinline__ void ForElements(const T* values, int64_t size, const Use& use) {
  constexpr int kCount = kAligned ? 8 : 1;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  const int64_t packs = size / kCount;
#pragma unroll 4
  for (int64_t pack = first; pack < packs; pack += stride) {
    float elements[kCount];
    LoadPack<T, kCount>(values + pack * kCount, elements);
#pragma unroll
    for (int i = 0; i < kCount; ++i) use(elements[i]);
  }
  const int64_t rest = packs * kCount + first;
  if (rest < size) use(ToFloat(values[rest]));
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBlockThreads)
    SquaresKernel(const T* values, int64_t size, double* shares, uint32_t* not_finite) {
  GANTRY_SHARED(double, slots, [kBlockThreads / kWarpThreads]);
  double sum = 0.0;
  bool finite = true;
  ForElements<T, kAligned>(values, size, [&](float value) {
    sum += static_cast<double>(value) * static_cast<double>(value);
    finite = finite && IsFinite(value);
  });
  sum = ReduceBlock<kBlockThreads>(sum, SumOf{}, slots);
  if (threadIdx.x == 0) shares[blockIdx.x] = sum;
  if (!finite) atomicOr(not_finite, uint32_t{1});
}

__global__ void __launch_bounds__(kBlockThreads)
    AddSharesKernel(const double* shares, int64_t count, Accumulate accumulate, double* sum) {
  GANTRY_SHARED(double, slots, [kBlockThreads / kWarpThreads]);
  double own = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += kBlockThreads) own += shares[i];
  own = ReduceBlock<kBlockThreads>(own, SumOf{}, slots);
  if (threadIdx.x == 0) *sum = accumulate == Accumulate::kAdd ? *sum + own : own;
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBlockThreads)
    NotFiniteKernel(const T* values, int64_t size, uint32_t* not_finite) {
  bool finite = true;
  ForElements<T, kAligned>(values, size, [&](float value) { finite = finite && IsFinite(value); });
  if (!finite) atomicOr(not_finite, uint32_t{1});
}

LaunchShape ShapeFor(int64_t size) {
  return {.grid = {.x = static_cast<uint32_t>(SumSquaresWorkspace(size))},
          .block = {.x = kBlockThreads}};
}

}  // namespace

int64_t SumSquaresWorkspace(int64_t size) {
  const int64_t blocks = CeilDiv(size, kBlockElements);
  return blocks < 1 ? 1 : blocks > kBlocksMax ? kBlocksMax : blocks;
}

int SumSquares(CudaStream stream, const SumSquaresArgs& args) {
  const LaunchShape shape = ShapeFor(args.values.size);
  const int64_t shares = shape.grid.x;
  GANTRY_CHECK_GE(static_cast<int64_t>(args.workspace.size()), shares);
  int error = 0;
  WithDeviceElementType(args.values.dtype, [&]<typename T>(T*) {
    const T* values = args.values.As<T>();
    error = PacksOfEight(args.values)
                ? GANTRY_LAUNCH((SquaresKernel<T, true>), shape, stream, values, args.values.size,
                                args.workspace.data(), args.not_finite)
                : GANTRY_LAUNCH((SquaresKernel<T, false>), shape, stream, values, args.values.size,
                                args.workspace.data(), args.not_finite);
  });
  if (error != 0) return error;
  const LaunchShape one{.grid = {}, .block = {.x = kBlockThreads}};
  return GANTRY_LAUNCH(AddSharesKernel, one, stream, args.workspace.data(), shares, args.accumulate,
                       args.sum);
}

int FindNotFinite(CudaStream stream, ConstVectorView values, uint32_t* not_finite) {
  const LaunchShape shape = ShapeFor(values.size);
  int error = 0;
  WithDeviceElementType(values.dtype, [&]<typename T>(T*) {
    error = PacksOfEight(values) ? GANTRY_LAUNCH((NotFiniteKernel<T, true>), shape, stream,
                                                 values.As<T>(), values.size, not_finite)
                                 : GANTRY_LAUNCH((NotFiniteKernel<T, false>), shape, stream,
                                                 values.As<T>(), values.size, not_finite);
  });
  return error;
}

}  // namespace gantry::cuda
