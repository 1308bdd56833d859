// A block sums a share of the rows of some columns: its threads stand in eight rows of 32, each
// adding every eighth row; then the eight are added in order. Where there are many rows, the
// shares' sums are rows of a matrix that is summed in the same way.
#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr int kLanes = 32;    // of columns
constexpr int kRowLanes = 8;  // of rows
constexpr int64_t kRowsAtOnce = 256;
constexpr int64_t kShareRows = 64;
constexpr int64_t kSharesMax = 128;

struct Extents {
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  int64_t share_rows;
};

template <typename T, typename Sum, int kCount>
__global__ void __launch_bounds__(kLanes* kRowLanes)
    ColumnSumsKernel(const T* values, Extents extents, Sum* sums, Accumulate accumulate) {
  GANTRY_SHARED(float, partial, [kRowLanes][kLanes * kCount]);
  const int64_t block_col = static_cast<int64_t>(blockIdx.x) * (kLanes * kCount);
  const int64_t col = block_col + threadIdx.x * kCount;
  const int64_t begin = blockIdx.y * extents.share_rows;
  int64_t end = begin + extents.share_rows;
  if (end > extents.rows) end = extents.rows;
  float own[kCount] = {};
  if (col + kCount <= extents.cols) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kRowLanes) {
      float loaded[kCount];
      LoadPack<T, kCount>(values + row * extents.row_stride + col, loaded);
#pragma unroll
      for (int i = 0; i < kCount; ++i) own[i] += loaded[i];
    }
  } else {
    for (int64_t row = begin + threadIdx.y; row < end; row += kRowLanes) {
      for (int i = 0; col + i < extents.cols; ++i) {
        own[i] += ToFloat(values[row * extents.row_stride + col + i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) partial[threadIdx.y][threadIdx.x * kCount + i] = own[i];
  __syncthreads();
  sums += blockIdx.y * extents.cols;
  for (int i = static_cast<int>(threadIdx.y * kLanes + threadIdx.x); i < kLanes * kCount;
       i += kLanes * kRowLanes) {
    if (block_col + i >= extents.cols) break;
    float sum = partial[0][i];
#pragma unroll
    for (int lane = 1; lane < kRowLanes; ++lane) sum += partial[lane][i];
    Sum& to = sums[block_col + i];
    to = FromFloat<Sum>(accumulate == Accumulate::kAdd ? ToFloat(to) + sum : sum);
  }
}

template <typename T, typename Sum>
int Launch(CudaStream stream, const ConstMatrixView& values, int64_t shares, Sum* sums,
           Accumulate accumulate) {
  const Extents extents{.rows = values.rows,
                        .cols = values.cols,
                        .row_stride = values.row_stride,
                        .share_rows = CeilDiv(values.rows, shares)};
  const bool aligned = PacksOfEight(values);
  const int64_t block_cols = kLanes * (aligned ? 8 : 1);
  const LaunchShape shape{.grid = {.x = static_cast<uint32_t>(CeilDiv(values.cols, block_cols)),
                                   .y = static_cast<uint32_t>(shares)},
                          .block = {.x = kLanes, .y = kRowLanes}};
  const T* data = values.Row<T>(0);
  return aligned ? GANTRY_LAUNCH((ColumnSumsKernel<T, Sum, 8>), shape, stream, data, extents, sums,
                                 accumulate)
                 : GANTRY_LAUNCH((ColumnSumsKernel<T, Sum, 1>), shape, stream, data, extents, sums,
                                 accumulate);
}

int64_t SharesOf(int64_t rows) {
  if (rows <= kRowsAtOnce) return 1;
  const int64_t shares = CeilDiv(rows, kShareRows);
  return shares < kSharesMax ? shares : kSharesMax;
}

}  // namespace

Bytes ColumnSumsWorkspace(MatrixShape shape) {
  const int64_t shares = SharesOf(shape.rows);
  return Bytes(shares > 1 ? shares * shape.cols * 4 : 0);
}

int ColumnSums(CudaStream stream, const ColumnSumsArgs& args) {
  GANTRY_CHECK_EQ(args.values.cols, args.sums.size);
  const Bytes needed = ColumnSumsWorkspace(ShapeOf(args.values));
  GANTRY_CHECK_GE(static_cast<int64_t>(args.workspace.size()), needed.count());
  if (args.values.cols == 0) return 0;
  ConstMatrixView values = args.values;
  int error = 0;
  const int64_t shares = SharesOf(values.rows);
  if (shares > 1) {
    auto* partial = reinterpret_cast<float*>(args.workspace.data());
    WithDeviceElementType(values.dtype, [&]<typename T>(T*) {
      error = Launch<T>(stream, values, shares, partial, Accumulate::kOverwrite);
    });
    if (error != 0) return error;
    values = {.data = args.workspace.data(),
              .dtype = DType::kF32,
              .rows = shares,
              .cols = values.cols,
              .row_stride = values.cols};
  }
  WithDeviceElementType(values.dtype, [&]<typename T>(T*) {
    WithDeviceElementType(args.sums.dtype, [&]<typename Sum>(Sum*) {
      error = Launch<T>(stream, values, 1, args.sums.As<Sum>(), args.accumulate);
    });
  });
  return error;
}

}  // namespace gantry::cuda
