// What .cu files are written in: CUDA C++ under nvcc, and the same names on the emulator under a
// plain C++ compiler, so that every kernel runs in tests without a GPU. Differences to plain CUDA:
//
//   GANTRY_SHARED(float, tile, [32][33]);     instead of __shared__ float tile[32][33];
//   GANTRY_DYNAMIC_SHARED(bytes);             instead of extern __shared__ ...
//   return GANTRY_LAUNCH(Kernel<T>, shape, stream, arguments...);   instead of <<< >>>
//
// A launch function returns a cudaError as int. Include this in .cu files only.
#ifndef GANTRY_DEVICE_CUDA_DEVICE_CODE_H_
#define GANTRY_DEVICE_CUDA_DEVICE_CODE_H_

#include <cstddef>
#include <cstdint>

#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define GANTRY_SHARED(type, name, extents) __shared__ type name extents

#define GANTRY_DYNAMIC_SHARED(name)                               \
  extern __shared__ __align__(1024) unsigned char name##_bytes[]; \
  std::byte* const name = reinterpret_cast<std::byte*>(name##_bytes)

namespace gantry {

template <typename... Parameters, typename... Arguments>
int LaunchKernel(const char* /*name*/, void (*kernel)(Parameters...), const LaunchShape& shape,
                 CudaStream stream, const Arguments&... arguments) {
  constexpr int64_t kWithoutAsking = 48 * 1024;
  if (shape.shared_bytes > kWithoutAsking) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return static_cast<int>(error);
  }
  const dim3 grid(shape.grid.x, shape.grid.y, shape.grid.z);
  const dim3 block(shape.block.x, shape.block.y, shape.block.z);
  kernel<<<grid, block, static_cast<size_t>(shape.shared_bytes),
           static_cast<cudaStream_t>(stream)>>>(static_cast<Parameters>(arguments)...);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace gantry

#else

#include "device/cuda/emulation/device_code.h"
#include "device/cuda/emulation/stream_runner.h"

namespace gantry {

template <typename... Parameters, typename... Arguments>
int LaunchKernel(const char* name, void (*kernel)(Parameters...), const LaunchShape& shape,
                 CudaStream stream, const Arguments&... arguments) {
  return static_cast<StreamRunner*>(stream)->Launch(
      name, shape, [=] { kernel(static_cast<Parameters>(arguments)...); });
}

}  // namespace gantry

#endif

#define GANTRY_LAUNCH(kernel, shape, stream, ...) \
  ::gantry::LaunchKernel(#kernel, kernel, shape, stream, __VA_ARGS__)

#endif  // GANTRY_DEVICE_CUDA_DEVICE_CODE_H_
