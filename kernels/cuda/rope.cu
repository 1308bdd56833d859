// Built with -fmad=false: products and sums are rounded apart, as on the host. A thread turns a
// pack of pairs.
#include <cstdint>

#include "base/check.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/rowwise.cuh"
#include "kernels/rope.h"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

template <typename T>
struct Rotation {
  int64_t rows;
  int64_t pairs;  // in a row
  uint32_t half;  // of a head
  Rows<T> heads;
  const float* cos;
  const float* sin;
  const int32_t* positions;  // or null
  int64_t tokens_per_sequence;
  int64_t position_offset;
  float sign;
};

template <int kCount>
__device__ __forceinline__ void Turn(const float (&cos)[kCount], const float (&sin)[kCount],
                                     float sign, float (&x)[kCount], float (&y)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float s = sin[i] * sign;
    const float first = x[i] * cos[i] - y[i] * s;
    y[i] = y[i] * cos[i] + x[i] * s;
    x[i] = first;
  }
}

template <typename T, RopeLayout kLayout, int kPack>
__global__ void __launch_bounds__(kRowwiseThreads) RopeKernel(Rotation<T> args) {
  ForRowsAndPacks<kPack>(args.rows, args.pairs, [&]<int kCount>(int64_t row, int64_t pair) {
    const uint32_t head = static_cast<uint32_t>(pair) / args.half;
    const uint32_t in_head = static_cast<uint32_t>(pair) % args.half;
    const int64_t position = args.positions != nullptr
                                 ? args.positions[row]
                                 : args.position_offset + row % args.tokens_per_sequence;
    float cos[kCount];
    float sin[kCount];
    LoadPack<float, kCount>(args.cos + position * args.half + in_head, cos);
    LoadPack<float, kCount>(args.sin + position * args.half + in_head, sin);
    T* data = args.heads[row] + static_cast<int64_t>(head) * 2 * args.half;
    float x[kCount];
    float y[kCount];
    if constexpr (kLayout == RopeLayout::kHalves) {
      LoadPack<T, kCount>(data + in_head, x);
      LoadPack<T, kCount>(data + args.half + in_head, y);
      Turn<kCount>(cos, sin, args.sign, x, y);
      StorePack<T, kCount>(data + in_head, x);
      StorePack<T, kCount>(data + args.half + in_head, y);
    } else {
      float both[2 * kCount];
      auto& low = reinterpret_cast<float(&)[kCount]>(both[0]);
      auto& high = reinterpret_cast<float(&)[kCount]>(both[kCount]);
      LoadPack<T, kCount>(data + 2 * in_head, low);
      LoadPack<T, kCount>(data + 2 * in_head + kCount, high);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        x[i] = both[2 * i];
        y[i] = both[2 * i + 1];
      }
      Turn<kCount>(cos, sin, args.sign, x, y);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        both[2 * i] = x[i];
        both[2 * i + 1] = y[i];
      }
      StorePack<T, kCount>(data + 2 * in_head, low);
      StorePack<T, kCount>(data + 2 * in_head + kCount, high);
    }
  });
}

template <RopeLayout kLayout>
int Run(CudaStream stream, const RopeArgs& args) {
  const int64_t half = args.head_dim / 2;
  const int64_t pairs = args.heads.cols / 2;
  const auto aligned_table = [](const float* table) {
    return reinterpret_cast<uintptr_t>(table) % 16 == 0;
  };
  const bool aligned = half % 8 == 0 && PacksOfEight(args.heads) && aligned_table(args.cos) &&
                       aligned_table(args.sin);
  const LaunchShape launch = RowwiseShape(args.heads.rows, pairs, aligned ? 8 : 1);
  int error = 0;
  WithDeviceElementType(args.heads.dtype, [&]<typename T>(T*) {
    const Rotation<T> rotation{
        .rows = args.heads.rows,
        .pairs = pairs,
        .half = static_cast<uint32_t>(half),
        .heads = RowsOf<T>(args.heads),
        .cos = args.cos,
        .sin = args.sin,
        .positions = args.positions.empty() ? nullptr : args.positions.data(),
        .tokens_per_sequence = args.tokens_per_sequence,
        .position_offset = args.position_offset,
        .sign = args.direction == RopeDirection::kForward ? 1.0F : -1.0F};
    error = aligned ? GANTRY_LAUNCH((RopeKernel<T, kLayout, 8>), launch, stream, rotation)
                    : GANTRY_LAUNCH((RopeKernel<T, kLayout, 1>), launch, stream, rotation);
  });
  return error;
}

}  // namespace

int ApplyRope(CudaStream stream, const RopeArgs& args) {
  GANTRY_CHECK(args.head_dim > 0 && args.head_dim % 2 == 0) << "head_dim " << args.head_dim;
  GANTRY_CHECK(args.heads.cols % args.head_dim == 0 && args.heads.cols < (int64_t{1} << 31))
      << args.heads.cols << " columns, head_dim " << args.head_dim;
  GANTRY_CHECK(args.positions.empty() ||
               static_cast<int64_t>(args.positions.size()) == args.heads.rows);
  if (args.heads.rows == 0 || args.heads.cols == 0) return 0;
  return args.layout == RopeLayout::kHalves ? Run<RopeLayout::kHalves>(stream, args)
                                            : Run<RopeLayout::kPairs>(stream, args);
}

}  // namespace gantry::cuda
