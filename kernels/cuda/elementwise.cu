// One thread computes 16 bytes of the widest operand where all are aligned to that, and single
// elements otherwise and at the end.
#include <cstdint>

#include "base/dtype.h"
#include "device/cuda/device_code.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/elementwise.h"
#include "kernels/elementwise.h"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr int kBlockThreads = 256;
constexpr int64_t kBlocksMax = 1 << 20;

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct First {
  __device__ float operator()(float a, float /*b*/) const { return a; }
};
struct Product {
  float factor;
  __device__ float operator()(float a, float /*b*/) const { return a * factor; }
};
struct Zero {
  __device__ float operator()(float /*a*/, float /*b*/) const { return 0.0F; }
};
// y + alpha * x with both operations rounded, as on the host.
struct ScaledSum {
  float alpha;
  __device__ float operator()(float x, float y) const { return y + alpha * x; }
};

// out[i] = operation(a[i], b[i]).
template <typename A, typename B, typename Out, typename Operation, bool kAligned>
__global__ void __launch_bounds__(kBlockThreads)
    ElementwiseKernel(const A* a, const B* b, Out* out, int64_t size, Operation operation) {
  constexpr int kCount = kAligned ? 8 : 1;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  const int64_t runs = size / kCount;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  for (int64_t run = first; run < runs; run += stride) {
    const int64_t at = run * kCount;
    float left[kCount];
    float right[kCount];
    LoadPack<A, kCount>(a + at, left);
    LoadPack<B, kCount>(b + at, right);
#pragma unroll
    for (int i = 0; i < kCount; ++i) left[i] = operation(left[i], right[i]);
    StorePack<Out, kCount>(out + at, left);
  }
  if (first < size - runs * kCount) {
    const int64_t at = runs * kCount + first;
    out[at] = FromFloat<Out>(operation(ToFloat(a[at]), ToFloat(b[at])));
  }
}

template <typename T>
bool Aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % (8 * sizeof(T)) == 0;
}

template <typename A, typename B, typename Out, typename Operation>
int Run(CudaStream stream, const A* a, const B* b, Out* out, int64_t size, Operation operation) {
  if (size == 0) return 0;
  const bool aligned = Aligned(a) && Aligned(b) && Aligned(out);
  const int64_t threads = aligned ? (size + 7) / 8 : size;
  int64_t blocks = (threads + kBlockThreads - 1) / kBlockThreads;
  if (blocks > kBlocksMax) blocks = kBlocksMax;
  const LaunchShape shape{.grid = {.x = static_cast<uint32_t>(blocks)},
                          .block = {.x = kBlockThreads}};
  if (aligned) {
    return GANTRY_LAUNCH((ElementwiseKernel<A, B, Out, Operation, true>), shape, stream, a, b, out,
                         size, operation);
  }
  return GANTRY_LAUNCH((ElementwiseKernel<A, B, Out, Operation, false>), shape, stream, a, b, out,
                       size, operation);
}

}  // namespace

int Add(CudaStream stream, const AddArgs& args) {
  GANTRY_CHECK(args.a.size == args.sum.size && args.b.size == args.sum.size);
  int error = 0;
  WithElementType(args.a.dtype, [&](auto* a) {
    WithElementType(args.b.dtype, [&](auto* b) {
      WithElementType(args.sum.dtype, [&](auto* sum) {
        error = Run(stream, Typed(args.a, a), Typed(args.b, b), Typed(args.sum, sum), args.sum.size,
                    Sum{});
      });
    });
  });
  return error;
}

int Cast(CudaStream stream, const CastArgs& args) {
  GANTRY_CHECK_EQ(args.from.size, args.to.size);
  int error = 0;
  WithDeviceElementType(args.from.dtype, [&](auto* from) {
    WithDeviceElementType(args.to.dtype, [&](auto* to) {
      error = Run(stream, Typed(args.from, from), Typed(args.from, from), Typed(args.to, to),
                  args.to.size, First{});
    });
  });
  return error;
}

int Scale(CudaStream stream, VectorView values, float factor) {
  int error = 0;
  WithDeviceElementType(values.dtype, [&](auto* type) {
    auto* data = Typed(values, type);
    error = Run(stream, data, data, data, values.size, Product{factor});
  });
  return error;
}

int SetZero(CudaStream stream, VectorView values) {
  int error = 0;
  WithDeviceElementType(values.dtype, [&](auto* type) {
    auto* data = Typed(values, type);
    error = Run(stream, data, data, data, values.size, Zero{});
  });
  return error;
}

int Axpy(CudaStream stream, const AxpyArgs& args) {
  GANTRY_CHECK_EQ(args.x.size, args.y.size);
  int error = 0;
  WithElementType(args.x.dtype, [&](auto* x) {
    WithElementType(args.y.dtype, [&](auto* y) {
      error = Run(stream, Typed(args.x, x), Typed(args.y, y), Typed(args.y, y), args.y.size,
                  ScaledSum{args.alpha});
    });
  });
  return error;
}

}  // namespace gantry::cuda
