// Built with -fmad=false: products and sums are rounded apart, as on the host.
#include <cstdint>

#include "base/check.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/rowwise.cuh"
#include "kernels/dropout.h"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr int kRounds = 10;

struct Words {
  uint32_t w[4];  // NOLINT: as device code has it
};

// As Philox in base/random.h.
__device__ __forceinline__ Words Philox(uint64_t key, uint64_t low, uint64_t high) {
  uint32_t c0 = static_cast<uint32_t>(low);
  uint32_t c1 = static_cast<uint32_t>(low >> 32);
  uint32_t c2 = static_cast<uint32_t>(high);
  uint32_t c3 = static_cast<uint32_t>(high >> 32);
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xd2511f53U} * c0;
    const uint64_t product1 = uint64_t{0xcd9e8d57U} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += 0x9e3779b9U;
    key1 += 0xbb67ae85U;
  }
  return {{c0, c1, c2, c3}};
}

template <typename T>
struct Drop {
  int64_t rows;
  int64_t cols;
  Rows<const T> x;
  Rows<T> y;
  uint64_t seed;
  uint64_t counter_high;
  uint64_t first_element;
  uint32_t threshold;  // a word below drops its element
  float scale;
  Accumulate accumulate;
};

template <typename T, int kPack>
__global__ void __launch_bounds__(kRowwiseThreads) DropoutKernel(Drop<T> args) {
  ForRowsAndPacks<kPack>(args.rows, args.cols, [&]<int kCount>(int64_t row, int64_t col) {
    const uint64_t element = args.first_element + static_cast<uint64_t>(row * args.cols + col);
    float values[kCount];
    float before[kCount] = {};
    LoadPack<T, kCount>(args.x[row] + col, values);
    if (args.accumulate == Accumulate::kAdd) LoadPack<T, kCount>(args.y[row] + col, before);
    // A pack of eight begins at a draw.
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const Words words =
          Philox(args.seed, element / 4 + static_cast<uint64_t>(i / 4), args.counter_high);
#pragma unroll
      for (int j = i; j < kCount && j < i + 4; ++j) {
        const uint32_t word = words.w[kCount == 1 ? element % 4 : j % 4];
        values[j] = before[j] + (word >= args.threshold ? values[j] * args.scale : 0.0F);
      }
    }
    StorePack<T, kCount>(args.y[row] + col, values);
  });
}

}  // namespace

int Dropout(CudaStream stream, const DropoutArgs& args) {
  const MatrixShape shape = ShapeOf(args.x);
  CheckMatrix(args.y, shape, args.x.dtype, "y");
  GANTRY_CHECK(args.rate >= 0.0 && args.rate < 1.0) << args.rate;
  if (shape.rows == 0 || shape.cols == 0) return 0;
  const bool aligned = PacksOfEight(args.x) && PacksOfEight(args.y) &&
                       args.key.first_element % 4 == 0 && (shape.rows == 1 || shape.cols % 4 == 0);
  const LaunchShape launch = RowwiseShape(shape.rows, shape.cols, aligned ? 8 : 1);
  int error = 0;
  WithDeviceElementType(args.x.dtype, [&]<typename T>(T*) {
    const Drop<T> drop{.rows = shape.rows,
                       .cols = shape.cols,
                       .x = RowsOf<T>(args.x),
                       .y = RowsOf<T>(args.y),
                       .seed = args.key.seed,
                       .counter_high = uint64_t{args.key.step} << 32 | args.key.stream,
                       .first_element = args.key.first_element,
                       .threshold = static_cast<uint32_t>(args.rate * 0x1p32),
                       .scale = static_cast<float>(1.0 / (1.0 - args.rate)),
                       .accumulate = args.accumulate};
    error = aligned ? GANTRY_LAUNCH((DropoutKernel<T, 8>), launch, stream, drop)
                    : GANTRY_LAUNCH((DropoutKernel<T, 1>), launch, stream, drop);
  });
  return error;
}

}  // namespace gantry::cuda
