#include <cstdint>
#include <limits>

#include "base/bytes.h"
#include "base/check.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/rowwise.cuh"
#include "kernels/embedding.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

namespace gantry::cuda {
namespace {

constexpr int kSortThreads = 256;
constexpr int kTileTokens = 1024;
constexpr int kSegmentThreads = 128;

template <typename Table, typename Out, int kPack>
__global__ void __launch_bounds__(kRowwiseThreads)
    GatherKernel(const int32_t* tokens, int64_t count, Rows<const Table> table, int64_t cols,
                 Rows<Out> embedded) {
  ForRowsAndPacks<kPack>(count, cols, [&]<int kCount>(int64_t row, int64_t col) {
    float values[kCount];
    LoadPack<Table, kCount>(table[tokens[row]] + col, values);
    StorePack<Out, kCount>(embedded[row] + col, values);
  });
}

// Positions sorted by token, then position, and their tokens. A position's place is the number of
// positions before it in that order.
__global__ void __launch_bounds__(kSortThreads)
    SortKernel(const int32_t* tokens, int64_t count, int32_t* order, int32_t* sorted) {
  GANTRY_SHARED(int32_t, tile, [kTileTokens]);
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
  const int32_t token = own < count ? tokens[own] : 0;
  int32_t place = 0;
  for (int64_t begin = 0; begin < count; begin += kTileTokens) {
    __syncthreads();  // the tile before is no longer read
    for (int i = static_cast<int>(threadIdx.x); i < kTileTokens; i += kSortThreads) {
      tile[i] = begin + i < count ? tokens[begin + i] : std::numeric_limits<int32_t>::max();
    }
    __syncthreads();
    const int64_t own_in_tile = own - begin;
#pragma unroll 16
    for (int i = 0; i < kTileTokens; ++i) {
      place += tile[i] < token || (tile[i] == token && i < own_in_tile) ? 1 : 0;
    }
  }
  if (own >= count) return;
  order[place] = static_cast<int32_t>(own);
  sorted[place] = token;
}

// The first index above `begin` whose token is another.
__device__ __forceinline__ int64_t SegmentEnd(const int32_t* sorted, int64_t begin, int64_t count) {
  const int32_t token = sorted[begin];
  int64_t end = begin + 1;
  if (end == count || sorted[end] != token) return end;
  int64_t last = count;  // the end is in (end, last]
  while (end < last) {
    const int64_t middle = end + (last - end) / 2;
    if (sorted[middle] == token) {
      end = middle + 1;
    } else {
      last = middle;
    }
  }
  return end;
}

// A block has some columns of one place in the order; it works where a token's segment begins.
template <typename Grad, typename Table, int kCount>
__global__ void __launch_bounds__(kSegmentThreads)
    SegmentKernel(const int32_t* order, const int32_t* sorted, int64_t count,
                  Rows<const Grad> grads, int64_t cols, Rows<Table> table) {
  const int64_t begin = blockIdx.x;
  const int64_t col = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kCount;
  const int32_t token = sorted[begin];
  if (col >= cols || (begin > 0 && sorted[begin - 1] == token)) return;
  const int64_t end = SegmentEnd(sorted, begin, count);
  Table* to = table[token] + col;
  if (col + kCount <= cols) {
    float sum[kCount] = {};
#pragma unroll 4
    for (int64_t i = begin; i < end; ++i) {
      float values[kCount];
      LoadPack<Grad, kCount>(grads[order[i]] + col, values);
#pragma unroll
      for (int j = 0; j < kCount; ++j) sum[j] += values[j];
    }
    float old[kCount];
    LoadPack<Table, kCount>(to, old);
#pragma unroll
    for (int j = 0; j < kCount; ++j) old[j] += sum[j];
    StorePack<Table, kCount>(to, old);
    return;
  }
  for (int64_t j = 0; col + j < cols; ++j) {
    float sum = 0.0F;
    for (int64_t i = begin; i < end; ++i) sum += ToFloat(grads[order[i]][col + j]);
    to[j] = FromFloat<Table>(ToFloat(to[j]) + sum);
  }
}

// Fewer threads where the rows are short.
LaunchShape SegmentShape(int64_t count, int64_t packs) {
  int64_t threads = 32;
  while (threads < packs && threads < kSegmentThreads) threads *= 2;
  return {.grid = {.x = static_cast<uint32_t>(count),
                   .y = static_cast<uint32_t>(CeilDiv(packs, threads))},
          .block = {.x = static_cast<uint32_t>(threads)}};
}

int Zero(CudaStream stream, const MatrixView& table) {
  if (table.row_stride == table.cols) return SetZero(stream, table.Flat());
  for (int64_t row = 0; row < table.rows; ++row) {
    const int error = SetZero(stream, table.RowView(row));
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace

int EmbeddingForward(CudaStream stream, const EmbeddingForwardArgs& args) {
  const auto count = static_cast<int64_t>(args.tokens.size());
  CheckMatrix(args.embedded, {.rows = count, .cols = args.table.cols}, args.embedded.dtype,
              "embedded");
  if (count == 0 || args.table.cols == 0) return 0;
  const bool aligned = PacksOfEight(args.table) && PacksOfEight(args.embedded);
  const LaunchShape launch = RowwiseShape(count, args.table.cols, aligned ? 8 : 1);
  int error = 0;
  WithDeviceElementType(args.table.dtype, [&]<typename Table>(Table*) {
    WithDeviceElementType(args.embedded.dtype, [&]<typename Out>(Out*) {
      const auto table = RowsOf<Table>(args.table);
      const auto embedded = RowsOf<Out>(args.embedded);
      error = aligned ? GANTRY_LAUNCH((GatherKernel<Table, Out, 8>), launch, stream,
                                      args.tokens.data(), count, table, args.table.cols, embedded)
                      : GANTRY_LAUNCH((GatherKernel<Table, Out, 1>), launch, stream,
                                      args.tokens.data(), count, table, args.table.cols, embedded);
    });
  });
  return error;
}

int EmbeddingBackward(CudaStream stream, const EmbeddingBackwardArgs& args) {
  const auto count = static_cast<int64_t>(args.tokens.size());
  const int64_t cols = args.grad_table.cols;
  GANTRY_CHECK_LT(count, std::numeric_limits<int32_t>::max());
  CheckMatrix(args.grad_embedded, {.rows = count, .cols = cols}, args.grad_embedded.dtype,
              "grad_embedded");
  int error = args.accumulate == Accumulate::kOverwrite ? Zero(stream, args.grad_table) : 0;
  if (error != 0 || count == 0 || cols == 0) return error;
  WorkspaceCursor cursor(args.workspace);
  auto* order = cursor.Take<int32_t>(count);
  auto* sorted = cursor.Take<int32_t>(count);
  const LaunchShape sort{.grid = {.x = static_cast<uint32_t>(CeilDiv(count, kSortThreads))},
                         .block = {.x = kSortThreads}};
  error = GANTRY_LAUNCH(SortKernel, sort, stream, args.tokens.data(), count, order, sorted);
  if (error != 0) return error;
  const bool aligned = PacksOfEight(args.grad_embedded) && PacksOfEight(args.grad_table);
  const LaunchShape launch = SegmentShape(count, CeilDiv(cols, aligned ? 8 : 1));
  WithDeviceElementType(args.grad_embedded.dtype, [&]<typename Grad>(Grad*) {
    WithDeviceElementType(args.grad_table.dtype, [&]<typename Table>(Table*) {
      const auto grads = RowsOf<Grad>(args.grad_embedded);
      const auto table = RowsOf<Table>(args.grad_table);
      error = aligned ? GANTRY_LAUNCH((SegmentKernel<Grad, Table, 8>), launch, stream, order,
                                      sorted, count, grads, cols, table)
                      : GANTRY_LAUNCH((SegmentKernel<Grad, Table, 1>), launch, stream, order,
                                      sorted, count, grads, cols, table);
    });
  });
  return error;
}

}  // namespace gantry::cuda
