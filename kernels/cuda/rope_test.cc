// Rotation on the device: bit for bit what the host computes (halves; f32, bf16), pairs the same
// numbers in another place, f16 within a rounding of the reference.
#include "kernels/cuda/rope.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/rope.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

constexpr int64_t kPositions = 50;

struct Case {
  int64_t rows;
  int64_t heads;
  int64_t head_dim;
  int64_t gap;
  int64_t offset;
  int64_t tokens;
  int64_t position_offset;
};
constexpr Case kCases[] = {
    {0, 1, 4, 0, 0, 1, 0},  {1, 1, 2, 0, 0, 1, 49},    {14, 3, 16, 8, 8, 7, 3},
    {6, 5, 32, 0, 0, 6, 0}, {5, 2, 48, 1, 0, 50, 0},   {7, 3, 10, 2, 1, 4, 5},
    {3, 9, 64, 0, 0, 3, 0}, {300, 1, 16, 0, 0, 50, 0}, {4, 2, 8, 0, 0, 4, 0}};

// head by head: [first half, second half] <-> pairs.
reference::Matrix Interleaved(const reference::Matrix& heads, int64_t head_dim) {
  reference::Matrix out = heads;
  for (int64_t row = 0; row < heads.rows; ++row) {
    for (int64_t col = 0; col < heads.cols; ++col) {
      const int64_t in_head = col % head_dim;
      const int64_t to = 2 * (in_head % (head_dim / 2)) + in_head / (head_dim / 2);
      out(row, col - in_head + to) = heads(row, col);
    }
  }
  return out;
}

struct Device {
  const RopeTable* table;
  Case shape;
  std::span<const int32_t> positions;
};

reference::Matrix Rotate(const Device& device, DType dtype, cuda::RopeLayout layout,
                         RopeDirection direction, const reference::Matrix& values) {
  const Case& c = device.shape;
  reference::Matrix result;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    DeviceMatrix heads({.dtype = dtype,
                        .rows = c.rows,
                        .cols = c.heads * c.head_dim,
                        .gap = c.gap,
                        .offset = c.offset},
                       values);
    EXPECT_EQ(cuda::ApplyRope(run.stream, {.heads = heads.view(),
                                           .head_dim = c.head_dim,
                                           .layout = layout,
                                           .direction = direction,
                                           .cos = device.table->cos(0),
                                           .sin = device.table->sin(0),
                                           .positions = device.positions,
                                           .tokens_per_sequence = c.tokens,
                                           .position_offset = c.position_offset}),
              0);
    heads.ExpectIntact();
    result = heads.values();
    std::vector<std::byte> bytes;
    heads.AppendTo(bytes);
    return bytes;
  });
  return result;
}

void Check(const Case& c, DType dtype, RopeDirection direction) {
  SCOPED_TRACE(::testing::Message()
               << c.rows << " rows, " << c.heads << " heads of " << c.head_dim << ", " << dtype);
  const RopeTable table(
      {.positions = kPositions, .frequencies = RopeFrequencies(10000.0, c.head_dim)});
  const MatrixShape shape{.rows = c.rows, .cols = c.heads * c.head_dim};
  const reference::Matrix values = RandomMatrix(shape, 1, 1.0);
  DeviceMatrix host({.dtype = dtype, .rows = c.rows, .cols = shape.cols}, values);
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < c.rows; ++row) {
    positions.push_back(static_cast<int32_t>(c.position_offset + row % c.tokens));
  }
  const Device plain{.table = &table, .shape = c, .positions = {}};
  const Device listed{.table = &table, .shape = c, .positions = positions};
  const reference::Matrix halves =
      Rotate(plain, dtype, cuda::RopeLayout::kHalves, direction, values);
  EXPECT_EQ(halves.values,
            Rotate(listed, dtype, cuda::RopeLayout::kHalves, direction, values).values);
  EXPECT_EQ(
      Interleaved(halves, c.head_dim).values,
      Rotate(listed, dtype, cuda::RopeLayout::kPairs, direction, Interleaved(values, c.head_dim))
          .values);
  if (dtype == DType::kF16) {
    const double sign = direction == RopeDirection::kForward ? 1.0 : -1.0;
    ExpectNear(halves,
               reference::Rope(host.values(),
                               {.head_dim = c.head_dim,
                                .tokens_per_sequence = c.tokens,
                                .position_offset = c.position_offset,
                                .theta = 10000.0},
                               sign),
               {.absolute = 0, .relative = RoundingError(dtype, 1)}, "rotated");
    return;
  }
  const TestContext context(1);
  ApplyRope(context.context(), {.heads = host.view(),
                                .table = &table,
                                .tokens_per_sequence = c.tokens,
                                .position_offset = c.position_offset,
                                .direction = direction});
  EXPECT_EQ(halves.values, host.values().values);
}

TEST(CudaRope, BitsAreThoseOfTheHost) {
  for (const Case& c : kCases) {
    for (const DType dtype : DeviceTypes()) {
      Check(c, dtype, c.rows % 2 == 0 ? RopeDirection::kForward : RopeDirection::kInverse);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
