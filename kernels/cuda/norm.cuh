// The kernels behind rms_norm.cu and layer_norm.cu. What a thread wrote it reads again without a
// barrier. Rows are read from memory once, and again from the cache.
#ifndef GANTRY_KERNELS_CUDA_NORM_CUH_
#define GANTRY_KERNELS_CUDA_NORM_CUH_

#include <cstdint>

#include "device/cuda/device_code.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/row_work.cuh"

namespace gantry::cuda {

// Vectors to be normed: `groups` side by side in each row of a matrix.
template <typename T>
struct NormRows {
  T* data;  // may be null: not there
  int64_t stride;
  int64_t cols;     // of a vector
  uint32_t groups;  // of a row

  __device__ T* operator[](int64_t vector) const {
    if (groups == 1) return data + vector * stride;
    const auto number = static_cast<uint32_t>(vector);
    return data + number / groups * stride + number % groups * cols;
  }
};

template <typename T, typename W>
struct NormForward {
  int64_t rows;  // vectors
  int64_t cols;
  float epsilon;
  NormRows<const T> x;
  NormRows<const T> residual;  // or null
  NormRows<T> sum;             // where there is a residual
  NormRows<T> y;
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
  const bool adds = norm.residual.data != nullptr;
  const T* residual = adds ? norm.residual[row] : nullptr;
  T* sum_row = adds ? norm.sum[row] : nullptr;
  T* y = norm.y[row];
  const float inverse_cols = 1.0F / static_cast<float>(norm.cols);
  float sum = 0.0F;
  float squares = 0.0F;
  Work::ForPacks(norm.cols, [&]<int kCount>(int64_t col) {
    float values[kCount];
    LoadPack<T, kCount>(h + col, values);
    if (adds) {
      float other[kCount];
      LoadPack<T, kCount>(residual + col, other);
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = ToFloat(FromFloat<T>(values[i] + other[i]));
      StorePack<T, kCount>(sum_row + col, values);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sum += values[i];
      squares += values[i] * values[i];
    }
  });
  if (adds) h = sum_row;
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
    StorePack<T, kCount>(y + col, values);
  });
}

template <typename T, typename W>
struct NormBackward {
  int64_t rows;  // vectors
  int64_t cols;
  int64_t block_rows;
  NormRows<const T> h;
  NormRows<const T> grad_y;
  NormRows<const T> grad_residual;  // or null
  NormRows<T> grad_h;
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
    const T* h_row = norm.h[row];
    const T* grad_y = norm.grad_y[row];
    const T* residual = norm.grad_residual.data != nullptr ? norm.grad_residual[row] : nullptr;
    T* grad_h = norm.grad_h[row];
    const float rstd = norm.rstd[row];
    const float mean = kCentered ? norm.mean[row] : 0.0F;
    float along = 0.0F;  // weight * grad_y * h_hat
    float plain = 0.0F;  // weight * grad_y
    Work::ForPacks(cols, [&]<int kCount>(int64_t col) {
      float h[kCount];
      float grad[kCount];
      float weight[kCount];
      LoadPack<T, kCount>(h_row + col, h);
      LoadPack<T, kCount>(grad_y + col, grad);
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
      LoadPack<T, kCount>(h_row + col, h);
      LoadPack<T, kCount>(grad_y + col, grad);
      LoadPack<W, kCount>(norm.weight + col, weight);
      float other[kCount] = {};
      if (residual != nullptr) LoadPack<T, kCount>(residual + col, other);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float h_hat = (h[i] - mean) * rstd;
        if (has_weight) weight_sums[col + i] += grad[i] * h_hat;
        if (has_bias) bias_sums[col + i] += grad[i];
        h[i] = rstd * (grad[i] * weight[i] - plain - h_hat * along) + other[i];
      }
      StorePack<T, kCount>(grad_h + col, h);
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

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_NORM_CUH_
