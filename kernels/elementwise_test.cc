// Goal: conversions exact for every special value, element-wise operations and reductions against
// double, at sizes around the vector width (16) and the segment (16384).
#include "kernels/elementwise.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "gtest/gtest.h"
#include "kernels/convert.h"
#include "kernels/simd_targets.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry {
namespace {

using testing::Append;
using testing::RandomMatrix;
using testing::TestContext;
using testing::TestMatrix;

constexpr int64_t kSizes[] = {0, 1, 3, 15, 16, 17, 63, 65, 1000, 16384, 16385, 40000};

TestMatrix RandomVector(DType dtype, int64_t size, uint64_t stream) {
  const MatrixShape shape = {.rows = 1, .cols = size};
  return TestMatrix({.dtype = dtype, .shape = shape, .gap = 1}, RandomMatrix(shape, stream, 3.0));
}

float Stored(double value, DType dtype) {
  const float single = static_cast<float>(value);
  return dtype == DType::kF32 ? single : static_cast<float>(BFloat16(single));
}

TEST(ElementwiseTest, AddRoundsOnce) {
  const TestContext context(2);
  for (const int64_t size : kSizes) {
    for (const DType in : testing::StoredTypes()) {
      for (const DType out : testing::StoredTypes()) {
        TestMatrix a = RandomVector(in, size, 1);
        TestMatrix b = RandomVector(out, size, 2);
        TestMatrix sum = RandomVector(out, size, 3);
        Add(context.context(), {.a = a.vector(), .b = b.vector(), .sum = sum.vector()});
        const std::vector<double> a_values = a.values().values;
        const std::vector<double> b_values = b.values().values;
        const std::vector<double> sums = sum.values().values;
        for (size_t i = 0; i < sums.size(); ++i) {
          const float exact = static_cast<float>(a_values[i]) + static_cast<float>(b_values[i]);
          ASSERT_EQ(sums[i], Stored(exact, out)) << "element " << i << " of " << size;
        }
        EXPECT_TRUE(sum.GapsAreIntact());
      }
    }
  }
}

TEST(ElementwiseTest, CastMatchesTheScalarConversionForEveryExponentAndSpecialValue) {
  std::vector<float> from;
  for (uint32_t high = 0; high < 0x10000; high += 7) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      from.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  std::vector<BFloat16> to(from.size());
  const TestContext context(2);
  for (const SimdTarget target : SupportedSimdTargets()) {
    const ScopedSimdTarget scoped(target);
    Cast(context.context(), {.from = ViewOf(std::span(from)), .to = ViewOf(std::span(to))});
    for (size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(to[i].bits, FloatToBF16Bits(from[i]))
          << Name(target) << " " << std::hex << std::bit_cast<uint32_t>(from[i]);
    }
    std::vector<float> back(to.size());
    Cast(context.context(), {.from = ViewOf(std::span(to)), .to = ViewOf(std::span(back))});
    for (size_t i = 0; i < to.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(back[i]), static_cast<uint32_t>(to[i].bits) << 16);
    }
  }
}

TEST(ElementwiseTest, CastToTheSameTypeCopies) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    TestMatrix from = RandomVector(dtype, 20000, 1);
    TestMatrix to = RandomVector(dtype, 20000, 2);
    Cast(context.context(), {.from = from.vector(), .to = to.vector()});
    EXPECT_EQ(to.values().values, from.values().values);
  }
}

TEST(ElementwiseTest, CopyRowsLeavesTheGaps) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const MatrixShape shape : {MatrixShape{1, 1}, MatrixShape{70, 301}, MatrixShape{3, 0}}) {
      TestMatrix from({.dtype = dtype, .shape = shape, .gap = 2}, RandomMatrix(shape, 1, 1.0));
      TestMatrix to({.dtype = dtype, .shape = shape, .gap = 3});
      CopyRows(context.context(), {.from = from.view(), .to = to.view()});
      EXPECT_EQ(to.values().values, from.values().values);
      EXPECT_TRUE(to.GapsAreIntact());
    }
  }
}

TEST(ElementwiseTest, ScaleAxpyAndZero) {
  const TestContext context(2);
  for (const int64_t size : kSizes) {
    for (const DType dtype : testing::StoredTypes()) {
      TestMatrix x = RandomVector(dtype, size, 1);
      TestMatrix y = RandomVector(dtype, size, 2);
      const reference::Matrix before = y.values();
      const reference::Matrix input = x.values();
      Axpy(context.context(), {.alpha = 0.3f, .x = x.vector(), .y = y.vector()});
      Scale(context.context(), x.vector(), -1.7f);
      const reference::Matrix sum = y.values();
      const reference::Matrix scaled = x.values();
      for (size_t i = 0; i < before.values.size(); ++i) {
        const float product = 0.3f * static_cast<float>(input.values[i]);
        ASSERT_EQ(sum.values[i], Stored(static_cast<float>(before.values[i]) + product, dtype));
        ASSERT_EQ(scaled.values[i], Stored(static_cast<float>(input.values[i]) * -1.7f, dtype));
      }
      SetZero(context.context(), y.vector());
      EXPECT_EQ(y.values().values, std::vector<double>(static_cast<size_t>(size), 0.0));
      EXPECT_TRUE(x.GapsAreIntact());
      EXPECT_TRUE(y.GapsAreIntact());
    }
  }
}

TEST(ElementwiseTest, AddFromFloatRoundsTheSumOnce) {
  std::vector<float> from = {0.00390625f, 1.0f, -2.5f};
  std::vector<BFloat16> to = {BFloat16(1.0f), BFloat16(3.0f), BFloat16(0.5f)};
  ConvertFromFloat(from.data(), ViewOf(std::span(to)), Accumulate::kAdd);
  EXPECT_EQ(static_cast<float>(to[0]), 1.0f);  // a tie, to even
  EXPECT_EQ(static_cast<float>(to[1]), 4.0f);
  EXPECT_EQ(static_cast<float>(to[2]), -2.0f);
}

TEST(ElementwiseTest, BitsDoNotDependOnThreadsOrTarget) {
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
      TestMatrix x = RandomVector(dtype, 40001, 1);
      TestMatrix y = RandomVector(dtype, 40001, 2);
      Axpy(context, {.alpha = 0.1f, .x = x.vector(), .y = y.vector()});
      Add(context, {.a = x.vector(), .b = y.vector(), .sum = x.vector()});
      Scale(context, x.vector(), 1.1f);
      std::vector<std::byte> bytes;
      Append(x, bytes);
      Append(y, bytes);
      return bytes;
    });
  }
}

TEST(ElementwiseDeathTest, SizesMustAgree) {
  const TestContext context(1);
  std::vector<float> a(3);
  std::vector<float> b(4);
  EXPECT_DEATH(Cast(context.context(), {.from = ViewOf(std::span(a)), .to = ViewOf(std::span(b))}),
               "3 against 4");
}

}  // namespace
}  // namespace gantry
