// C[m, n] (+)= A[m, k] B[k, n] on small float tiles that sit in the first or second level cache:
// the inner products of attention. A may be strided either way (each of its elements is broadcast);
// rows of B and C are contiguous and n is a multiple of 16.
//
// Each element of C is one running sum over k in ascending order, product and sum rounded
// separately, however the tile is blocked: the same bits on every target.
//
// Include inside the foreach_target pattern, like simd-inl.h.
#ifndef GANTRY_KERNELS_TILE_GEMM_TYPES_
#define GANTRY_KERNELS_TILE_GEMM_TYPES_

#include <cstdint>

#include "kernels/views.h"

namespace gantry {

struct TileGemmShape {
  int64_t m;
  int64_t n;  // a multiple of 16
  int64_t k;
};
struct TileGemmA {
  const float* data;
  int64_t row_stride;
  int64_t column_stride;
};
struct TileGemmB {
  const float* data;
  int64_t row_stride;
};
struct TileGemmC {
  float* data;
  int64_t row_stride;
  Accumulate accumulate;
};

}  // namespace gantry

#endif  // GANTRY_KERNELS_TILE_GEMM_TYPES_

#if defined(GANTRY_KERNELS_TILE_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GANTRY_KERNELS_TILE_GEMM_INL_H_
#undef GANTRY_KERNELS_TILE_GEMM_INL_H_
#else
#define GANTRY_KERNELS_TILE_GEMM_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// Rows and columns (in V16) of C held in registers: 24 of 32 registers with AVX-512, 8 of 16
// otherwise.
constexpr int kGemmRows = kRegisters == 1 ? 6 : kRegisters == 2 ? 4 : 2;
constexpr int kGemmColumns = kRegisters == 1 ? 4 : 1;

template <int kRows, int kColumns>
HWY_INLINE void MicroGemm(int64_t k, const TileGemmA& a, const TileGemmB& b, const TileGemmC& c) {
  V16 sums[kRows][kColumns];
  GANTRY_UNROLL
  for (int i = 0; i < kRows; ++i) {
    GANTRY_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      sums[i][j] =
          c.accumulate == Accumulate::kAdd ? Load(c.data + i * c.row_stride + j * 16) : Zero();
    }
  }
  const float* a_column = a.data;
  const float* b_row = b.data;
  for (int64_t step = 0; step < k; ++step) {
    V16 b_values[kColumns];
    GANTRY_UNROLL
    for (int j = 0; j < kColumns; ++j) b_values[j] = Load(b_row + j * 16);
    GANTRY_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const V16 a_value = Set(a_column[i * a.row_stride]);
      GANTRY_UNROLL
      for (int j = 0; j < kColumns; ++j) sums[i][j] = sums[i][j] + a_value * b_values[j];
    }
    a_column += a.column_stride;
    b_row += b.row_stride;
  }
  GANTRY_UNROLL
  for (int i = 0; i < kRows; ++i) {
    GANTRY_UNROLL
    for (int j = 0; j < kColumns; ++j) Store(sums[i][j], c.data + i * c.row_stride + j * 16);
  }
}

// One stripe of `kRows` or fewer rows.
template <int kRows>
void GemmStripe(const TileGemmShape& shape, const TileGemmA& a, TileGemmB b, TileGemmC c) {
  if constexpr (kRows > 1) {
    if (shape.m < kRows) return GemmStripe<kRows - 1>(shape, a, b, c);
  }
  int64_t column = 0;
  const auto advance = [&](int64_t columns) {
    column += columns;
    b.data += columns;
    c.data += columns;
  };
  while (column + 16 * kGemmColumns <= shape.n) {
    MicroGemm<kRows, kGemmColumns>(shape.k, a, b, c);
    advance(16 * kGemmColumns);
  }
  while (column < shape.n) {
    MicroGemm<kRows, 1>(shape.k, a, b, c);
    advance(16);
  }
}

inline void TileGemm(TileGemmShape shape, TileGemmA a, TileGemmB b, TileGemmC c) {
  while (shape.m > 0) {
    GemmStripe<kGemmRows>(shape, a, b, c);
    a.data += kGemmRows * a.row_stride;
    c.data += kGemmRows * c.row_stride;
    shape.m -= kGemmRows;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
