// Products of small matrices by a warp on tensor cores (mma.sync m16n8k16, compute capability 8.0
// and later), 16-bit elements and float sums, behind functions that have twins for the emulator
// with the same layout of fragments among lanes. Lane 4 g + t has, of
//
//   A [16, 16]  rows g and g + 8, columns 2t, 2t + 1 and those eight further
//   B [16, 8]   column g, rows 2t, 2t + 1 and those eight further
//   C [16, 8]   c[0], c[1]: row g, columns 2t, 2t + 1;  c[2], c[3]: row g + 8
//
// Tiles lie in shared memory, rows `pitch` elements apart, 16-byte aligned. All lanes of a warp
// call these functions together. The twin adds in ascending order of k and rounds each sum; a GPU's
// order and roundings inside one 16-element product are its own.
#ifndef GANTRY_KERNELS_CUDA_TENSOR_CORE_CUH_
#define GANTRY_KERNELS_CUDA_TENSOR_CORE_CUH_

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/dtype.h"
#include "device/cuda/device_code.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"

namespace gantry::cuda {

struct FragmentA {
  uint32_t r[4];  // NOLINT: as device code has it
};
struct FragmentB {
  uint32_t r[2];  // NOLINT
};

// Rows g and g + 8, columns 2t and 2t + 1.
__device__ __forceinline__ int FragmentRow() {
  return static_cast<int>(threadIdx.x) % kWarpThreads / 4;
}
__device__ __forceinline__ int FragmentColumn() { return static_cast<int>(threadIdx.x) % 4 * 2; }

// Two floats rounded to elements, the first in the low half.
template <typename T>
__device__ __forceinline__ uint32_t PackPair(float low, float high) {
#if defined(__CUDA_ARCH__)
  uint32_t bits;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  }
  return bits;
#else
  return FromFloat<T>(low).bits | static_cast<uint32_t>(FromFloat<T>(high).bits) << 16;
#endif
}

// A, and its left half of columns, from the accumulators of two neighbouring C: their values,
// rounded.
template <typename T>
__device__ __forceinline__ FragmentA FragmentOf(const float (&left)[4], const float (&right)[4]) {
  return {{PackPair<T>(left[0], left[1]), PackPair<T>(left[2], left[3]),
           PackPair<T>(right[0], right[1]), PackPair<T>(right[2], right[3])}};
}

#if defined(__CUDA_ARCH__)

// Loads four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
template <bool kTransposed>
__device__ __forceinline__ void LoadMatrices(const void* row, uint32_t (&to)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
}

#endif

// A[m, k] = tile[m, k], or tile[k, m] where kTransposed.
template <bool kTransposed, typename T>
__device__ __forceinline__ FragmentA LoadA(const T* tile, int pitch) {
  FragmentA a;
#if defined(__CUDA_ARCH__)
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int by_eight = lane / 8 % 2 * 8;
  const int by_sixteen = lane / 16 * 8;
  const T* row = kTransposed ? tile + (lane % 8 + by_sixteen) * pitch + by_eight
                             : tile + (lane % 8 + by_eight) * pitch + by_sixteen;
  LoadMatrices<kTransposed>(row, a.r);
#else
  const auto at = [&](int m, int k) -> uint32_t {
    return (kTransposed ? tile[k * pitch + m] : tile[m * pitch + k]).bits;
  };
  for (int i = 0; i < 4; ++i) {
    const int m = FragmentRow() + i % 2 * 8;
    const int k = FragmentColumn() + i / 2 * 8;
    a.r[i] = at(m, k) | at(m, k + 1) << 16;
  }
#endif
  return a;
}

// Two B side by side, 16 columns: B[k, n] = tile[n, k], or tile[k, n] where kTransposed.
template <bool kTransposed, typename T>
__device__ __forceinline__ void LoadB(const T* tile, int pitch, FragmentB& first,
                                      FragmentB& second) {
#if defined(__CUDA_ARCH__)
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int by_eight = lane / 8 % 2 * 8;
  const int by_sixteen = lane / 16 * 8;
  const T* row = kTransposed ? tile + (lane % 8 + by_eight) * pitch + by_sixteen
                             : tile + (lane % 8 + by_sixteen) * pitch + by_eight;
  uint32_t r[4];
  LoadMatrices<kTransposed>(row, r);
  first = {{r[0], r[1]}};
  second = {{r[2], r[3]}};
#else
  const auto at = [&](int k, int n) -> uint32_t {
    return (kTransposed ? tile[k * pitch + n] : tile[n * pitch + k]).bits;
  };
  for (int i = 0; i < 2; ++i) {
    const int k = FragmentColumn() + i * 8;
    const int n = FragmentRow();
    first.r[i] = at(k, n) | at(k + 1, n) << 16;
    second.r[i] = at(k, n + 8) | at(k + 1, n + 8) << 16;
  }
#endif
}

// c[j] += a b[j] for kTiles (at most 8) neighbouring tiles of C.
template <typename T, int kTiles>
__device__ __forceinline__ void MultiplyAdd(const FragmentA& a, const FragmentB (&b)[kTiles],
                                            float (&c)[kTiles][4]) {
#if defined(__CUDA_ARCH__)
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
          : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b[j].r[0]), "r"(b[j].r[1]));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
          : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b[j].r[0]), "r"(b[j].r[1]));
    }
  }
#elif !defined(__CUDACC__)
  struct Given {
    FragmentA a;
    FragmentB b[kTiles];
  } given;
  given.a = a;
  for (int j = 0; j < kTiles; ++j) given.b[j] = b[j];
  const auto& all =
      Emulator::Current().Exchange("mma.sync", kWholeWarp, std::as_bytes(std::span(&given, 1)));
  const auto element = [&](int lane, int word, int half) {
    uint16_t bits;
    std::memcpy(&bits, all.lanes[static_cast<size_t>(lane)].data() + 4 * word + 2 * half, 2);
    T value;
    value.bits = bits;
    return ToFloat(value);
  };
  const int row = FragmentRow();
  const int col = FragmentColumn();
  for (int k = 0; k < 16; ++k) {
    const int owner = k % 8 / 2;
    const float upper = element(4 * row + owner, k / 8 * 2, k % 2);
    const float lower = element(4 * row + owner, k / 8 * 2 + 1, k % 2);
    for (int j = 0; j < kTiles; ++j) {
      const float left = element(4 * col + owner, 4 + 2 * j + k / 8, k % 2);
      const float right = element(4 * (col + 1) + owner, 4 + 2 * j + k / 8, k % 2);
      c[j][0] += upper * left;
      c[j][1] += upper * right;
      c[j][2] += lower * left;
      c[j][3] += lower * right;
    }
  }
#endif
}

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_TENSOR_CORE_CUH_
