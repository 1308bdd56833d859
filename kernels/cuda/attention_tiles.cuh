// Tiles of rows in shared memory, and the products of a warp's sixteen rows with a tile: what the
// attention kernels are made of. Included by .cu files.
#ifndef GANTRY_KERNELS_CUDA_ATTENTION_TILES_CUH_
#define GANTRY_KERNELS_CUDA_ATTENTION_TILES_CUH_

#include <cstdint>

#include "device/cuda/device_code.h"
#include "kernels/cuda/async_copies.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace gantry::cuda {

inline constexpr int kStripRows = 16;  // of one warp
inline constexpr int kOwnRows = 64;    // of a block: four strips
inline constexpr float kLog2E = 1.44269504088896341F;

// Rows of elements between which eight stay free, so that the rows of an 8x8 matrix lie in
// different banks.
template <int kDim>
inline constexpr int kPitch = kDim + 8;

// Starts copying rows [0, rows) and columns [0, cols) of `from`, and zeros for the rest of kRows
// and kDim, by kThreads threads.
template <int kRows, int kDim, int kThreads, typename T>
__device__ __forceinline__ void StartTile(AsyncCopies& copies, T* to, const Rows<const T>& from,
                                          int rows, int cols) {
  constexpr int kChunks = kDim / 8;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks;
    const int col = i % kChunks * 8;
    const bool inside = row < rows && col < cols;
    copies.Start(to + row * kPitch<kDim> + col, inside ? from[row] + col : from.data, inside);
  }
}

// Copies rows [0, rows) and columns [0, cols) of a tile to global memory, 16 bytes a thread.
template <int kRows, int kDim, int kThreads, typename T>
__device__ __forceinline__ void StoreTile(const T* from, int pitch, const Rows<T>& to, int rows,
                                          int cols) {
  constexpr int kChunks = kDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks;
    const int col = i % kChunks * 8;
    if (row >= rows || col >= cols) continue;
    *reinterpret_cast<Pack<T, 8>*>(to[row] + col) =
        *reinterpret_cast<const Pack<T, 8>*>(from + row * pitch + col);
  }
}

// sums += a strip of kDepth columns times the transposed tile of 8 kTiles rows.
template <int kDepth, int kTiles, typename T>
__device__ __forceinline__ void AddScores(const T* strip, const T* tile, float (&sums)[kTiles][4]) {
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    const FragmentA a = LoadA<false>(strip + k, kPitch<kDepth>);
    FragmentB b[kTiles];
#pragma unroll
    for (int j = 0; j < kTiles; j += 2) {
      LoadB<false>(tile + j * 8 * kPitch<kDepth> + k, kPitch<kDepth>, b[j], b[j + 1]);
    }
    MultiplyAdd<T>(a, b, sums);
  }
}

// sums += the kSteps * 16 columns in `a` times as many rows of a tile of rows of kDim, of which the
// columns from `tile` on, 8 kTiles of them.
template <int kDim, int kSteps, int kTiles, typename T>
__device__ __forceinline__ void AddWeighted(const FragmentA (&a)[kSteps], const T* tile,
                                            float (&sums)[kTiles][4]) {
  constexpr int kAtOnce = kTiles % 8 == 0 ? 8 : 6;
  static_assert(kTiles % kAtOnce == 0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int first = 0; first < kTiles; first += kAtOnce) {
      FragmentB b[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; j += 2) {
        LoadB<true>(tile + step * 16 * kPitch<kDim> + (first + j) * 8, kPitch<kDim>, b[j],
                    b[j + 1]);
      }
      MultiplyAdd<T>(a[step], b, reinterpret_cast<float(&)[kAtOnce][4]>(sums[first]));
    }
  }
}

// The fragments of A that the sums, rounded, are.
template <typename T, int kTiles>
__device__ __forceinline__ void FragmentsOf(const float (&sums)[kTiles][4],
                                            FragmentA (&a)[kTiles / 2]) {
#pragma unroll
  for (int i = 0; i < kTiles / 2; ++i) a[i] = FragmentOf<T>(sums[2 * i], sums[2 * i + 1]);
}

// Writes the sums times a factor for each of the lane's two rows to a strip of a tile.
template <int kTiles, typename T>
__device__ __forceinline__ void StoreStrip(const float (&sums)[kTiles][4], float upper, float lower,
                                           T* strip, int pitch) {
  T* to = strip + FragmentRow() * pitch + FragmentColumn();
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    *reinterpret_cast<uint32_t*>(to + j * 8) = PackPair<T>(sums[j][0] * upper, sums[j][1] * upper);
    *reinterpret_cast<uint32_t*>(to + j * 8 + 8 * pitch) =
        PackPair<T>(sums[j][2] * lower, sums[j][3] * lower);
  }
}

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ATTENTION_TILES_CUH_
