// Goal: the register-blocked product and the float primitives under it, on every instruction set:
// the product equals a plain loop bit for bit, the exponential is within 2 units in the last place,
// and reductions use the documented order.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tile_gemm_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"
#include "kernels/tile_gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

void CallTileGemm(const TileGemmShape& shape, const TileGemmA& a, const TileGemmB& b,
                  const TileGemmC& c) {
  TileGemm(shape, a, b, c);
}

void CallExp(std::span<const float> in, std::span<float> out) {
  const int64_t size = static_cast<int64_t>(in.size());
  for (int64_t i = 0; i < size; i += 16) {
    StoreFirst(Exp(LoadFirst(in.data() + i, size - i)), out.data() + i, size - i);
  }
}

float CallSum(std::span<const float> in) {
  return SumChunks(static_cast<int64_t>(in.size()),
                   [&](int64_t i, int64_t count) { return LoadFirst(in.data() + i, count); });
}

float CallMaxOfFirst(std::span<const float, 16> in, int64_t count) {
  return MaxLanes(KeepFirst(Load(in.data()), count, -1e30f));
}

int64_t CompiledTarget() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(CallTileGemm);
HWY_EXPORT(CallExp);
HWY_EXPORT(CallSum);
HWY_EXPORT(CallMaxOfFirst);
HWY_EXPORT(CompiledTarget);

namespace {

constexpr uint64_t kSeed = 11;

std::vector<float> RandomFloats(int64_t count, uint64_t stream) {
  const Random random({.seed = kSeed, .stream = stream});
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.Normal(i));
  return values;
}

template <typename Body>
void ForEachTarget(const Body& body) {
  for (const SimdTarget target : SupportedSimdTargets()) {
    SCOPED_TRACE(Name(target));
    const ScopedSimdTarget scoped(target);
    body();
  }
}

TEST(TileGemmTest, EqualsThePlainLoopBitForBit) {
  constexpr int64_t kStride = 100;
  const std::vector<float> a = RandomFloats(kStride * kStride, 1);
  const std::vector<float> b = RandomFloats(kStride * kStride, 2);
  const std::vector<float> before = RandomFloats(kStride * kStride, 3);
  for (const int64_t m : {1, 2, 5, 6, 7, 13, 64}) {
    for (const int64_t n : {16, 48, 64, 80, 96}) {
      for (const int64_t k : {0, 1, 17}) {
        for (const bool add : {false, true}) {
          for (const bool transposed : {false, true}) {
            const int64_t row = transposed ? 1 : kStride;
            const int64_t column = transposed ? kStride : 1;
            std::vector<float> expected = before;
            for (int64_t i = 0; i < m; ++i) {
              for (int64_t j = 0; j < n; ++j) {
                float& sum = expected[static_cast<size_t>(i * kStride + j)];
                if (!add) sum = 0;
                for (int64_t s = 0; s < k; ++s) {
                  const float product = a[static_cast<size_t>(i * row + s * column)] *
                                        b[static_cast<size_t>(s * kStride + j)];
                  sum += product;
                }
              }
            }
            ForEachTarget([&] {
              std::vector<float> c = before;
              const Accumulate accumulate = add ? Accumulate::kAdd : Accumulate::kOverwrite;
              HWY_DYNAMIC_DISPATCH(CallTileGemm)
              ({.m = m, .n = n, .k = k},
               {.data = a.data(), .row_stride = row, .column_stride = column},
               {.data = b.data(), .row_stride = kStride},
               {.data = c.data(), .row_stride = kStride, .accumulate = accumulate});
              EXPECT_TRUE(c == expected) << m << " " << n << " " << k << " " << transposed;
            });
          }
        }
      }
    }
  }
}

// Units in the last place between two positive floats.
int64_t UlpDistance(float a, float b) {
  return std::abs(static_cast<int64_t>(std::bit_cast<int32_t>(a)) - std::bit_cast<int32_t>(b));
}

TEST(SimdTest, ExpIsWithinTwoUlps) {
  std::vector<float> in;
  for (double x = -87.29; x < 88.72; x += 0.00137) in.push_back(static_cast<float>(x));
  std::vector<float> out(in.size());
  ForEachTarget([&] {
    HWY_DYNAMIC_DISPATCH(CallExp)(in, out);
    for (size_t i = 0; i < in.size(); ++i) {
      const float expected = static_cast<float>(std::exp(static_cast<double>(in[i])));
      ASSERT_LE(UlpDistance(out[i], expected), 2) << "exp(" << in[i] << ") = " << out[i];
    }
  });
}

TEST(SimdTest, ExpOfSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> in = {-infinity, -1e30f, -87.4f, 88.8f, 1e30f, infinity, 0.0f, -0.0f};
  const std::vector<float> expected = {0, 0, 0, infinity, infinity, infinity, 1, 1};
  ForEachTarget([&] {
    std::vector<float> out(in.size());
    HWY_DYNAMIC_DISPATCH(CallExp)(in, out);
    EXPECT_EQ(out, expected);
    const std::vector<float> nan = {std::numeric_limits<float>::quiet_NaN()};
    HWY_DYNAMIC_DISPATCH(CallExp)(nan, out);
    EXPECT_TRUE(std::isnan(out[0]));
  });
}

TEST(SimdTest, SumsInTheDocumentedOrder) {
  for (const int64_t size : {0, 1, 15, 16, 17, 63, 64, 65, 200}) {
    const std::vector<float> in = RandomFloats(size, 4);
    float lanes[4][16] = {};
    int64_t i = 0;
    for (; i < size / 64 * 64; ++i) lanes[i / 16 % 4][i % 16] += in[static_cast<size_t>(i)];
    for (; i < size; ++i) lanes[0][i % 16] += in[static_cast<size_t>(i)];
    float total[16];
    for (int j = 0; j < 16; ++j) {
      total[j] = (lanes[0][j] + lanes[1][j]) + (lanes[2][j] + lanes[3][j]);
    }
    for (int width = 8; width > 0; width /= 2) {
      for (int j = 0; j < width; ++j) total[j] += total[j + width];
    }
    ForEachTarget([&] { EXPECT_EQ(HWY_DYNAMIC_DISPATCH(CallSum)(in), total[0]) << size; });
  }
}

TEST(SimdTest, KeepFirstHidesLaterLanes) {
  std::vector<float> in(16);
  for (int i = 0; i < 16; ++i) in[static_cast<size_t>(i)] = static_cast<float>(i);
  ForEachTarget([&] {
    for (int64_t count = 1; count <= 17; ++count) {
      const float expected = static_cast<float>(count < 16 ? count - 1 : 15);
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(CallMaxOfFirst)(std::span<const float, 16>(in), count),
                expected);
    }
  });
}

TEST(SimdTest, EachTargetRunsItsOwnCode) {
  const std::vector<SimdTarget> targets = SupportedSimdTargets();
  ASSERT_FALSE(targets.empty());
  for (const SimdTarget target : targets) {
    const ScopedSimdTarget scoped(target);
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(CompiledTarget)(), static_cast<int64_t>(target));
  }
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(CompiledTarget)(), static_cast<int64_t>(targets.front()));
}

}  // namespace
}  // namespace gantry
#endif  // HWY_ONCE
