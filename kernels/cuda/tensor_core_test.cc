// The twins of tensor-core products: each lane's fragments are those of the layout that the PTX
// manual gives for mma.m16n8k16, products are exact on small integers, and copies under way are
// seen by nobody.
#include "kernels/cuda/tensor_core.cuh"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/testing/status_matchers.h"
#include "device/cuda/device_code.h"
#include "device/cuda/emulation/emulator.h"
#include "device/cuda/emulation/stream_runner.h"
#include "kernels/cuda/async_copies.cuh"

namespace gantry::cuda {
namespace {

constexpr int kPitch = 24;

struct Tiles {
  Float16 a[16 * kPitch];
  Float16 b[16 * kPitch];
};

// C[16, 16] = A B with either operand stored as it is or transposed.
template <bool kATransposed, bool kBTransposed>
__global__ void ProductKernel(const Tiles* tiles, float* c) {
  const FragmentA a = LoadA<kATransposed>(tiles->a, kPitch);
  FragmentB b[2];
  LoadB<kBTransposed>(tiles->b, kPitch, b[0], b[1]);
  float sums[2][4] = {};
  MultiplyAdd<Float16>(a, b, sums);
  MultiplyAdd<Float16>(a, b, sums);
  for (int tile = 0; tile < 2; ++tile) {
    for (int i = 0; i < 4; ++i) {
      c[(FragmentRow() + i / 2 * 8) * 16 + tile * 8 + FragmentColumn() + i % 2] = sums[tile][i];
    }
  }
}

template <bool kATransposed, bool kBTransposed>
void CheckProduct() {
  Tiles tiles;
  double a[16][16];
  double b[16][16];
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      a[i][j] = (i * 7 + j * 3) % 11 - 5;
      b[i][j] = (i * 5 + j * 2) % 13 - 6;
      tiles.a[kATransposed ? j * kPitch + i : i * kPitch + j] =
          Float16(static_cast<float>(a[i][j]));
      tiles.b[kBTransposed ? i * kPitch + j : j * kPitch + i] =
          Float16(static_cast<float>(b[i][j]));
    }
  }
  std::vector<float> c(256, -1.0F);
  ImmediateStream stream({.order = TurnOrder::kSeeded, .seed = 3});
  EXPECT_EQ(GANTRY_LAUNCH((ProductKernel<kATransposed, kBTransposed>),
                          {.grid = {}, .block = {.x = 32}}, &stream, &tiles, c.data()),
            0);
  ASSERT_THAT(stream.TakeStatus(), IsOk());
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      double sum = 0;
      for (int k = 0; k < 16; ++k) sum += a[i][k] * b[k][j];
      EXPECT_EQ(c[static_cast<size_t>(i * 16 + j)], 2 * sum) << i << ", " << j;
    }
  }
}

TEST(TensorCore, ProductsAreExactOnIntegers) {
  CheckProduct<false, false>();
  CheckProduct<false, true>();
  CheckProduct<true, false>();
  CheckProduct<true, true>();
}

__global__ void FragmentsKernel(const BFloat16* tile, FragmentA* a, FragmentB* b) {
  a[threadIdx.x] = LoadA<false>(tile, 16);
  FragmentB second;
  LoadB<true>(tile, 16, b[threadIdx.x], second);
}

// From the table of the PTX manual: element i of A's register is at row g (+ 8 for registers 1, 3),
// column 2t + i (+ 8 for registers 2, 3).
TEST(TensorCore, FragmentsAreThoseOfTheManual) {
  BFloat16 tile[256];
  for (uint16_t i = 0; i < 256; ++i) tile[i].bits = i;
  FragmentA a[32];
  FragmentB b[32];
  ImmediateStream stream({});
  EXPECT_EQ(GANTRY_LAUNCH(FragmentsKernel, {.grid = {}, .block = {.x = 32}}, &stream,
                          static_cast<const BFloat16*>(tile), static_cast<FragmentA*>(a),
                          static_cast<FragmentB*>(b)),
            0);
  ASSERT_THAT(stream.TakeStatus(), IsOk());
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t g = lane / 4;
    const uint32_t t = lane % 4;
    for (uint32_t word = 0; word < 4; ++word) {
      const uint32_t at = (g + word % 2 * 8) * 16 + 2 * t + word / 2 * 8;
      EXPECT_EQ(a[lane].r[word], at | (at + 1) << 16) << lane;
    }
    for (uint32_t word = 0; word < 2; ++word) {
      const uint32_t at = (2 * t + word * 8) * 16 + g;
      EXPECT_EQ(b[lane].r[word], at | (at + 16) << 16) << lane;
    }
  }
}

struct alignas(16) Line {
  uint32_t words[4];
};

__global__ void CopyKernel(const Line* from, Line* out) {
  GANTRY_SHARED(Line, lines, [3]);
  AsyncCopies copies;
  copies.Start(&lines[0], from, true);
  copies.EndGroup();
  copies.Start(&lines[1], from + 1, true);
  copies.Start(&lines[2], from, false);
  copies.EndGroup();
  out[0] = lines[0];
  copies.Wait<1>();
  out[1] = lines[0];
  out[2] = lines[1];
  copies.Wait<0>();
  out[3] = lines[1];
  out[4] = lines[2];
}

TEST(AsyncCopies, ArriveWhenWaitedFor) {
  const Line from[2] = {{{1, 2, 3, 4}}, {{5, 6, 7, 8}}};
  Line out[5] = {};
  ImmediateStream stream({});
  EXPECT_EQ(GANTRY_LAUNCH(CopyKernel, {.grid = {}, .block = {.x = 1}}, &stream,
                          static_cast<const Line*>(from), static_cast<Line*>(out)),
            0);
  ASSERT_THAT(stream.TakeStatus(), IsOk());
  EXPECT_EQ(out[0].words[0], 0xFFFFFFFFU);
  EXPECT_EQ(out[1].words[3], 4U);
  EXPECT_EQ(out[2].words[3], 0xFFFFFFFFU);
  EXPECT_EQ(out[3].words[3], 8U);
  EXPECT_EQ(out[4].words[0], 0U);
}

}  // namespace
}  // namespace gantry::cuda
