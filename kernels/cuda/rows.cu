#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/rowwise.cuh"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr int kBackwardThreads = 128;

template <typename T>
struct Move {
  Rows<const T> from;
  Rows<T> to;
  const int32_t* indices;
  int64_t rows;  // indices
  int64_t cols;
  int32_t divisor;
  bool scatters;
};

template <typename T, int kPack>
__global__ void __launch_bounds__(kRowwiseThreads) MoveKernel(Move<T> args) {
  ForRowsAndPacks<kPack>(args.rows, args.cols, [&]<int kCount>(int64_t row, int64_t col) {
    const int32_t index = args.indices[row];
    Pack<T, kCount> pack{};
    if (args.scatters) {
      if (index < 0) return;
      pack = *reinterpret_cast<const Pack<T, kCount>*>(args.from[row] + col);
      *reinterpret_cast<Pack<T, kCount>*>(args.to[index] + col) = pack;
      return;
    }
    if (index >= 0) {
      pack = *reinterpret_cast<const Pack<T, kCount>*>(args.from[index / args.divisor] + col);
    }
    *reinterpret_cast<Pack<T, kCount>*>(args.to[row] + col) = pack;
  });
}

template <typename T>
int RunMove(CudaStream stream, const Move<T>& move, bool aligned) {
  if (move.rows == 0 || move.cols == 0) return 0;
  const LaunchShape launch = RowwiseShape(move.rows, move.cols, aligned ? 8 : 1);
  return aligned ? GANTRY_LAUNCH((MoveKernel<T, 8>), launch, stream, move)
                 : GANTRY_LAUNCH((MoveKernel<T, 1>), launch, stream, move);
}

template <typename T>
struct Combine {
  Rows<const T> from;
  Rows<T> to;
  const int32_t* indices;
  const float* weights;  // or null
  int64_t terms;
  int64_t rows;
  int64_t cols;
};

template <typename T, int kPack>
__global__ void __launch_bounds__(kRowwiseThreads) CombineKernel(Combine<T> args) {
  ForRowsAndPacks<kPack>(args.rows, args.cols, [&]<int kCount>(int64_t row, int64_t col) {
    float sum[kCount] = {};
    for (int64_t term = row * args.terms; term < (row + 1) * args.terms; ++term) {
      const int32_t index = args.indices[term];
      if (index < 0) continue;
      const float weight = args.weights != nullptr ? args.weights[term] : 1.0F;
      float values[kCount];
      LoadPack<T, kCount>(args.from[index] + col, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[i] += weight * values[i];
    }
    StorePack<T, kCount>(args.to[row] + col, sum);
  });
}

template <typename T>
struct CombineBackward {
  Rows<const T> from;
  Rows<const T> grad_to;
  Rows<T> grad_from;
  const int32_t* indices;
  const float* weights;
  float* grad_weights;
  int64_t terms;
  int64_t count;  // rows times terms
  int64_t cols;
};

// A warp to a term.
template <typename T, int kCount>
__global__ void __launch_bounds__(kBackwardThreads) CombineBackwardKernel(CombineBackward<T> args) {
  const int64_t term = static_cast<int64_t>(blockIdx.x) * (kBackwardThreads / kWarpThreads) +
                       threadIdx.x / kWarpThreads;
  if (term >= args.count) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int32_t index = args.indices[term];
  float dot = 0.0F;
  if (index >= 0) {
    const T* grad = args.grad_to[term / args.terms];
    const T* from = args.from[index];
    T* to = args.grad_from[index];
    const float weight = args.weights[term];
    const auto add = [&]<int kAtOnce>(int64_t col) {
      float grads[kAtOnce];
      float values[kAtOnce];
      LoadPack<T, kAtOnce>(grad + col, grads);
      LoadPack<T, kAtOnce>(from + col, values);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        dot += grads[i] * values[i];
        grads[i] *= weight;
      }
      StorePack<T, kAtOnce>(to + col, grads);
    };
    const int64_t whole = args.cols / kCount * kCount;
    for (int64_t col = lane * kCount; col < whole; col += kWarpThreads * kCount) {
      add.template operator()<kCount>(col);
    }
    if (whole + lane < args.cols) add.template operator()<1>(whole + lane);
  }
  dot = ReduceWarp(dot, SumOf{});
  if (lane == 0) args.grad_weights[term] = dot;
}

}  // namespace

int GatherRows(CudaStream stream, const GatherRowsArgs& args) {
  const auto rows = static_cast<int64_t>(args.indices.size());
  CheckMatrix(args.to, {.rows = rows, .cols = args.from.cols}, args.from.dtype, "to");
  GANTRY_CHECK_GT(args.divisor, 0);
  int error = 0;
  WithDeviceElementType(args.from.dtype, [&]<typename T>(T*) {
    error = RunMove<T>(stream,
                       {.from = RowsOf<T>(args.from),
                        .to = RowsOf<T>(args.to),
                        .indices = args.indices.data(),
                        .rows = rows,
                        .cols = args.from.cols,
                        .divisor = args.divisor,
                        .scatters = false},
                       PacksOfEight(args.from) && PacksOfEight(args.to));
  });
  return error;
}

int ScatterRows(CudaStream stream, const ScatterRowsArgs& args) {
  const auto rows = static_cast<int64_t>(args.indices.size());
  CheckMatrix(args.from, {.rows = rows, .cols = args.to.cols}, args.to.dtype, "from");
  int error = 0;
  WithDeviceElementType(args.from.dtype, [&]<typename T>(T*) {
    error = RunMove<T>(stream,
                       {.from = RowsOf<T>(args.from),
                        .to = RowsOf<T>(args.to),
                        .indices = args.indices.data(),
                        .rows = rows,
                        .cols = args.from.cols,
                        .divisor = 1,
                        .scatters = true},
                       PacksOfEight(args.from) && PacksOfEight(args.to));
  });
  return error;
}

int CombineRows(CudaStream stream, const CombineRowsArgs& args) {
  CheckMatrix(args.to, {.rows = args.to.rows, .cols = args.from.cols}, args.from.dtype, "to");
  GANTRY_CHECK(args.terms > 0 &&
               static_cast<int64_t>(args.indices.size()) == args.to.rows * args.terms);
  GANTRY_CHECK(args.weights.empty() || args.weights.size() == args.indices.size());
  if (args.to.rows == 0 || args.to.cols == 0) return 0;
  const bool aligned = PacksOfEight(args.from) && PacksOfEight(args.to);
  const LaunchShape launch = RowwiseShape(args.to.rows, args.to.cols, aligned ? 8 : 1);
  int error = 0;
  WithDeviceElementType(args.from.dtype, [&]<typename T>(T*) {
    const Combine<T> combine{.from = RowsOf<T>(args.from),
                             .to = RowsOf<T>(args.to),
                             .indices = args.indices.data(),
                             .weights = args.weights.empty() ? nullptr : args.weights.data(),
                             .terms = args.terms,
                             .rows = args.to.rows,
                             .cols = args.to.cols};
    error = aligned ? GANTRY_LAUNCH((CombineKernel<T, 8>), launch, stream, combine)
                    : GANTRY_LAUNCH((CombineKernel<T, 1>), launch, stream, combine);
  });
  return error;
}

int CombineRowsBackward(CudaStream stream, const CombineRowsBackwardArgs& args) {
  const auto count = static_cast<int64_t>(args.indices.size());
  GANTRY_CHECK(args.terms > 0 && count == args.grad_to.rows * args.terms);
  GANTRY_CHECK(args.weights.size() == args.indices.size() &&
               args.grad_weights.size() == args.indices.size());
  CheckMatrix(args.grad_from, ShapeOf(args.from), args.from.dtype, "grad_from");
  CheckMatrix(args.grad_to, {.rows = args.grad_to.rows, .cols = args.from.cols}, args.from.dtype,
              "grad_to");
  if (count == 0) return 0;
  const bool aligned =
      PacksOfEight(args.from) && PacksOfEight(args.grad_to) && PacksOfEight(args.grad_from);
  const LaunchShape launch{
      .grid = {.x = static_cast<uint32_t>(CeilDiv(count, kBackwardThreads / kWarpThreads))},
      .block = {.x = kBackwardThreads}};
  int error = 0;
  WithDeviceElementType(args.from.dtype, [&]<typename T>(T*) {
    const CombineBackward<T> backward{.from = RowsOf<T>(args.from),
                                      .grad_to = RowsOf<T>(args.grad_to),
                                      .grad_from = RowsOf<T>(args.grad_from),
                                      .indices = args.indices.data(),
                                      .weights = args.weights.data(),
                                      .grad_weights = args.grad_weights.data(),
                                      .terms = args.terms,
                                      .count = count,
                                      .cols = args.from.cols};
    error = aligned ? GANTRY_LAUNCH((CombineBackwardKernel<T, 8>), launch, stream, backward)
                    : GANTRY_LAUNCH((CombineBackwardKernel<T, 1>), launch, stream, backward);
  });
  return error;
}

}  // namespace gantry::cuda
