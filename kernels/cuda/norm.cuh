// The kernels behind rms_norm.cu and layer_norm.cu. What a thread wrote it reads again without a
// barrier. Rows are read from memory once, and again from the cache.
#ifndef GANTRY_KERNELS_CUDA_NORM_CUH_
#define GANTRY_KERNELS_CUDA_NORM_CUH_

#include <cstdint>

#include "base/bytes.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/row_work.cuh"
#include "kernels/views.h"

namespace gantry::cuda {

template <typename T, typename W>
struct NormForward {
  int64_t rows;
  int64_t cols;
  float epsilon;
  Rows<const T> x;
  Rows<const T> residual;  // or null
  Rows<T> sum;             // where there is a residual
  Rows<T> y;
  const W* weight;
  const W* bias;  // or null
  float* mean;    // of centered norms
  float* rstd;
};

// kCentered: layer norm, else root-mean-square norm.
template <typename T, typename W, typename Work, bool kCentered>
__global__ void __launch_bounds__(Work::kBlockThreads) NormForwardKernel(NormForward<T, W> norm) {
  GANTRY_SHARED(float, slots, [2][Work::kSlots]);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Work::kGroups + Work::group();
  if (row >= norm.rows) return;
  const T* h = norm.x[row];
  const float inverse_cols = 1.0F / static_cast<float>(norm.cols);
  float sum = 0.0F;
  float squares = 0.0F;
  const bool adds = norm.residual.data != nullptr;
  Work::ForPacks(norm.cols, [&]<int kCount>(int64_t col) {
    float values[kCount];
    LoadPack<T, kCount>(h + col, values);
    if (adds) {
      float other[kCount];
      LoadPack<T, kCount>(norm.residual[row] + col, other);
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = ToFloat(FromFloat<T>(values[i] + other[i]));
      StorePack<T, kCount>(norm.sum[row] + col, values);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sum += values[i];
      squares += values[i] * values[i];
    }
  });
  if (adds) h = norm.sum[row];
  float mean = 0.0F;
  if constexpr (kCentered) {
    mean = Work::Sum(sum, slots[0]) * inverse_cols;
    squares = 0.0F;  // of differences to the mean: no cancellation
    Work::ForPacks(norm.cols, [&]<int kCount>(int64_t col) {
      float values[kCount];
      LoadPack<T, kCount>(h + col, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) squares += (values[i] - mean) * (values[i] - mean);
    });
  }
  const float variance = Work::Sum(squares, slots[1]) * inverse_cols;
  const float rstd = 1.0F / sqrtf(variance + norm.epsilon);
  if (Work::lane() == 0) {
    norm.rstd[row] = rstd;
    if (kCentered) norm.mean[row] = mean;
  }
  Work::ForPacks(norm.cols, [&]<int kCount>(int64_t col) {
    float values[kCount];
    float weight[kCount];
    LoadPack<T, kCount>(h + col, values);
    LoadPack<W, kCount>(norm.weight + col, weight);
    float bias[kCount] = {};
    if (norm.bias != nullptr) LoadPack<W, kCount>(norm.bias + col, bias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kCentered) {
        values[i] = (values[i] - mean) * rstd * weight[i] + bias[i];
      } else {
        values[i] = ToFloat(FromFloat<T>(values[i] * rstd)) * weight[i];
      }
    }
    StorePack<T, kCount>(norm.y[row] + col, values);
  });
}

template <typename T, typename W>
struct NormBackward {
  int64_t rows;
  int64_t cols;
  int64_t block_rows;
  Rows<const T> h;
  Rows<const T> grad_y;
  Rows<const T> grad_residual;  // or null
  Rows<T> grad_h;
  const W* weight;
  const float* mean;  // of centered norms
  const float* rstd;
  float* weight_sums;  // [blocks, cols], or null
  float* bias_sums;    // [blocks, cols], or null
};

// Shared memory: kGroups times the columns times (1 where weight_sums, 1 where bias_sums) floats.
template <typename T, typename W, typename Work, bool kCentered>
__global__ void __launch_bounds__(Work::kBlockThreads) NormBackwardKernel(NormBackward<T, W> norm) {
  GANTRY_SHARED(float, slots, [2][2][Work::kSlots]);
  GANTRY_DYNAMIC_SHARED(sums_memory);
  auto* sums = reinterpret_cast<float*>(sums_memory);
  const int64_t cols = norm.cols;
  const bool has_weight = norm.weight_sums != nullptr;
  const bool has_bias = norm.bias_sums != nullptr;
  float* weight_sums = sums + Work::group() * cols;
  float* bias_sums = sums + ((has_weight ? Work::kGroups : 0) + Work::group()) * cols;
  Work::ForPacks(cols, [&]<int kCount>(int64_t col) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (has_weight) weight_sums[col + i] = 0.0F;
      if (has_bias) bias_sums[col + i] = 0.0F;
    }
  });
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * norm.block_rows;
  int64_t end = begin + norm.block_rows;
  if (end > norm.rows) end = norm.rows;
  int turn = 0;  // a barrier a row is enough when rows take turns with two sets of slots
  for (int64_t row = begin + Work::group(); row < end; row += Work::kGroups, turn ^= 1) {
    const float rstd = norm.rstd[row];
    const float mean = kCentered ? norm.mean[row] : 0.0F;
    float along = 0.0F;  // weight * grad_y * h_hat
    float plain = 0.0F;  // weight * grad_y
    Work::ForPacks(cols, [&]<int kCount>(int64_t col) {
      float h[kCount];
      float grad[kCount];
      float weight[kCount];
      LoadPack<T, kCount>(norm.h[row] + col, h);
      LoadPack<T, kCount>(norm.grad_y[row] + col, grad);
      LoadPack<W, kCount>(norm.weight + col, weight);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float scaled = grad[i] * weight[i];
        along += scaled * ((h[i] - mean) * rstd);
        plain += scaled;
      }
    });
    along = Work::Sum(along, slots[turn][0]) / static_cast<float>(cols);
    plain = kCentered ? Work::Sum(plain, slots[turn][1]) / static_cast<float>(cols) : 0.0F;
    Work::ForPacks(cols, [&]<int kCount>(int64_t col) {
      float h[kCount];
      float grad[kCount];
      float weight[kCount];
      LoadPack<T, kCount>(norm.h[row] + col, h);
      LoadPack<T, kCount>(norm.grad_y[row] + col, grad);
      LoadPack<W, kCount>(norm.weight + col, weight);
      float other[kCount] = {};
      if (norm.grad_residual.data != nullptr) {
        LoadPack<T, kCount>(norm.grad_residual[row] + col, other);
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float h_hat = (h[i] - mean) * rstd;
        if (has_weight) weight_sums[col + i] += grad[i] * h_hat;
        if (has_bias) bias_sums[col + i] += grad[i];
        h[i] = rstd * (grad[i] * weight[i] - plain - h_hat * along) + other[i];
      }
      StorePack<T, kCount>(norm.grad_h[row] + col, h);
    });
  }
  if (!has_weight && !has_bias) return;
  if constexpr (Work::kGroups > 1) __syncthreads();
  for (int which = 0; which < 2; ++which) {
    float* out = which == 0 ? norm.weight_sums : norm.bias_sums;
    if (out == nullptr) continue;
    const float* from = sums + (which == 1 && has_weight ? Work::kGroups * cols : 0);
    out += static_cast<int64_t>(blockIdx.x) * cols;
    // Where one group holds the sums, each thread reads the columns that it wrote.
    const int64_t first = Work::kGroups > 1 ? int64_t{threadIdx.x} : int64_t{0};
    if constexpr (Work::kGroups > 1) {
      for (int64_t col = first; col < cols; col += Work::kBlockThreads) {
        float sum = from[col];
#pragma unroll
        for (int group = 1; group < Work::kGroups; ++group) sum += from[group * cols + col];
        out[col] = sum;
      }
    } else {
      Work::ForPacks(cols, [&]<int kCount>(int64_t col) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) out[col + i] = from[col + i];
      });
    }
  }
}

// Calls launch(RowWork) with the one for such rows.
template <typename Launch>
int WithRowWork(int64_t cols, bool aligned, const Launch& launch) {
  if (!aligned) return launch(RowWork<kBlockRowThreads, 1>{});
  if (cols > kWarpColumnsMax) return launch(RowWork<kBlockRowThreads, 8>{});
  return launch(RowWork<kWarpThreads, 8>{});
}

// How the backward pass divides rows among blocks, each of which writes one row of sums.
struct NormBlocks {
  int64_t blocks;
  int64_t rows_each;
};
inline NormBlocks NormBackwardBlocks(MatrixShape shape) {
  const int64_t blocks_max = shape.cols > kWarpColumnsMax ? 512 : 1024;
  int64_t rows_each = CeilDiv(shape.rows, blocks_max);
  if (rows_each < 8) rows_each = 8;
  return {.blocks = CeilDiv(shape.rows, rows_each), .rows_each = rows_each};
}
// Of the rows of sums (`sums` to a block) and of adding them.
inline Bytes NormBackwardWorkspace(MatrixShape shape, int64_t sums) {
  const MatrixShape partial{.rows = NormBackwardBlocks(shape).blocks, .cols = shape.cols};
  return Bytes(sums * partial.rows * partial.cols * 4) + ColumnSumsWorkspace(partial);
}

template <bool kCentered, typename T, typename W>
int LaunchNormForward(CudaStream stream, const NormForward<T, W>& norm, bool aligned) {
  return WithRowWork(norm.cols, aligned, [&]<typename Work>(Work) {
    const LaunchShape shape{.grid = {.x = static_cast<uint32_t>(CeilDiv(norm.rows, Work::kGroups))},
                            .block = {.x = Work::kBlockThreads}};
    return GANTRY_LAUNCH((NormForwardKernel<T, W, Work, kCentered>), shape, stream, norm);
  });
}

template <bool kCentered, typename T, typename W>
int LaunchNormBackward(CudaStream stream, const NormBackward<T, W>& norm, bool aligned) {
  return WithRowWork(norm.cols, aligned, [&]<typename Work>(Work) {
    const int64_t sums =
        (norm.weight_sums != nullptr ? 1 : 0) + (norm.bias_sums != nullptr ? 1 : 0);
    const LaunchShape shape{
        .grid = {.x = static_cast<uint32_t>(CeilDiv(norm.rows, norm.block_rows))},
        .block = {.x = Work::kBlockThreads},
        .shared_bytes = sums * Work::kGroups * norm.cols * 4};
    return GANTRY_LAUNCH((NormBackwardKernel<T, W, Work, kCentered>), shape, stream, norm);
  });
}

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_NORM_CUH_
