// Goal: rotations against double, the inverse undoes them, positions wrap per sequence.
#include "kernels/rope.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "gtest/gtest.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry {
namespace {

using testing::Append;
using testing::ExpectNear;
using testing::RandomMatrix;
using testing::RoundingOf;
using testing::TestContext;
using testing::TestMatrix;

TEST(RopeTest, MatchesReferenceBothWays) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const int64_t head_dim : {2, 6, 32, 34, 64, 128}) {
      const std::vector<double> frequencies = RopeFrequencies(10000, head_dim);
      const RopeTable table({.positions = 60, .frequencies = frequencies});
      const MatrixShape shape = {.rows = 38, .cols = 3 * head_dim};
      const reference::RopeShape reference_shape = {
          .head_dim = head_dim, .tokens_per_sequence = 19, .position_offset = 41, .theta = 10000};
      for (const RopeDirection direction : {RopeDirection::kForward, RopeDirection::kInverse}) {
        TestMatrix heads({.dtype = dtype, .shape = shape, .gap = 5}, RandomMatrix(shape, 1, 1.0));
        const double sign = direction == RopeDirection::kForward ? 1 : -1;
        const reference::Matrix expected = reference::Rope(heads.values(), reference_shape, sign);
        ApplyRope(context.context(), {.heads = heads.view(),
                                      .table = &table,
                                      .tokens_per_sequence = 19,
                                      .position_offset = 41,
                                      .direction = direction});
        ExpectNear(heads.values(), expected, RoundingOf(dtype, 1), "heads");
        EXPECT_TRUE(heads.GapsAreIntact());
      }
    }
  }
}

TEST(RopeTest, PositionsMayBeGivenRowByRow) {
  const TestContext context(2);
  const std::vector<double> frequencies = RopeFrequencies(10000, 6);
  const RopeTable table({.positions = 60, .frequencies = frequencies, .magnitude = 1.5});
  const MatrixShape shape = {.rows = 38, .cols = 18};
  TestMatrix heads({.dtype = DType::kF32, .shape = shape, .gap = 5}, RandomMatrix(shape, 1, 1.0));
  std::vector<int32_t> positions;
  reference::Matrix expected(38, 18);
  for (int64_t row = 0; row < 38; ++row) {
    positions.push_back(static_cast<int32_t>(row * 7 % 60));
    reference::Matrix one(1, 18);
    for (int64_t i = 0; i < 18; ++i) one(0, i) = 1.5 * heads.values()(row, i);
    const reference::Matrix turned = reference::Rope(one,
                                                     {.head_dim = 6,
                                                      .tokens_per_sequence = 1,
                                                      .position_offset = positions.back(),
                                                      .theta = 10000},
                                                     1);
    for (int64_t i = 0; i < 18; ++i) expected(row, i) = turned(0, i);
  }
  ApplyRope(context.context(), {.heads = heads.view(),
                                .table = &table,
                                .tokens_per_sequence = 1,
                                .position_offset = 0,
                                .direction = RopeDirection::kForward,
                                .positions = positions});
  ExpectNear(heads.values(), expected, RoundingOf(DType::kF32, 1), "heads");
  EXPECT_TRUE(heads.GapsAreIntact());
}

TEST(RopeTest, LargePositionsKeepTheirPrecision) {
  const std::vector<double> frequencies = RopeFrequencies(500000, 4);
  const RopeTable table({.positions = 131072, .frequencies = frequencies});
  EXPECT_EQ(table.head_dim(), 4);
  EXPECT_FLOAT_EQ(table.cos(131071)[0], static_cast<float>(std::cos(131071.0)));
  EXPECT_FLOAT_EQ(table.sin(131071)[1],
                  static_cast<float>(std::sin(131071.0 / std::sqrt(500000.0))));
}

TEST(RopeTest, BitsDoNotDependOnThreadsOrTarget) {
  const std::vector<double> frequencies = RopeFrequencies(10000, 50);
  const RopeTable table({.positions = 100, .frequencies = frequencies});
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
      const MatrixShape shape = {.rows = 100, .cols = 150};
      TestMatrix heads({.dtype = dtype, .shape = shape, .gap = 1}, RandomMatrix(shape, 1, 1.0));
      ApplyRope(context, {.heads = heads.view(),
                          .table = &table,
                          .tokens_per_sequence = 100,
                          .position_offset = 0,
                          .direction = RopeDirection::kForward});
      std::vector<std::byte> bytes;
      Append(heads, bytes);
      return bytes;
    });
  }
}

TEST(RopeDeathTest, PositionsMustBeInTheTable) {
  const TestContext context(1);
  const std::vector<double> frequencies = RopeFrequencies(10000, 4);
  const RopeTable table({.positions = 10, .frequencies = frequencies});
  TestMatrix heads({.dtype = DType::kF32, .shape = {.rows = 4, .cols = 4}, .gap = 0});
  EXPECT_DEATH(ApplyRope(context.context(), {.heads = heads.view(),
                                             .table = &table,
                                             .tokens_per_sequence = 4,
                                             .position_offset = 7,
                                             .direction = RopeDirection::kForward}),
               "11 against 10");
  const std::vector<int32_t> positions = {1, 2, 10, 3};
  EXPECT_DEATH(ApplyRope(context.context(), {.heads = heads.view(),
                                             .table = &table,
                                             .tokens_per_sequence = 4,
                                             .position_offset = 0,
                                             .direction = RopeDirection::kForward,
                                             .positions = positions}),
               "10 against 10");
}

}  // namespace
}  // namespace gantry
