// Column sums against sums in double, within one rounding of the stored type and 1e-6 of the sum of
// magnitudes.
#include "kernels/cuda/column_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

struct Case {
  int64_t rows;
  int64_t cols;
  int64_t gap;
  int64_t offset;
};

void Check(const Case& c, DType from, DType to, Accumulate accumulate) {
  SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.cols << " gap " << c.gap << " at "
                                    << c.offset << ", " << from << " to " << to);
  const MatrixShape shape{.rows = c.rows, .cols = c.cols};
  DeviceMatrix values(
      {.dtype = from, .rows = c.rows, .cols = c.cols, .gap = c.gap, .offset = c.offset},
      RandomMatrix(shape, 1, 1.0));
  const reference::Matrix before = RandomMatrix({.rows = 1, .cols = c.cols}, 2, 1.0);
  reference::Matrix result;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    const DeviceMatrix::Options options{.dtype = to, .rows = 1, .cols = c.cols, .offset = c.offset};
    DeviceMatrix sums = accumulate == Accumulate::kAdd ? DeviceMatrix(options, before)
                                                       : DeviceMatrix(options, run.poison);
    DeviceBytes workspace(cuda::ColumnSumsWorkspace(shape).count(), run.poison);
    EXPECT_EQ(cuda::ColumnSums(run.stream, {.values = values.view(),
                                            .sums = sums.vector(),
                                            .accumulate = accumulate,
                                            .workspace = workspace.span()}),
              0);
    sums.ExpectIntact();
    result = sums.values();
    std::vector<std::byte> bytes;
    sums.AppendTo(bytes);
    return bytes;
  });
  const reference::Matrix stored = values.values();
  const reference::Matrix old =
      DeviceMatrix({.dtype = to, .rows = 1, .cols = c.cols}, before).values();
  for (int64_t col = 0; col < c.cols; ++col) {
    double sum = accumulate == Accumulate::kAdd ? old(0, col) : 0.0;
    double magnitudes = std::abs(sum);
    for (int64_t row = 0; row < c.rows; ++row) {
      sum += stored(row, col);
      magnitudes += std::abs(stored(row, col));
    }
    ASSERT_NEAR(result(0, col), sum, RoundingError(to, 1) * std::abs(sum) + 1e-6 * magnitudes)
        << "column " << col;
  }
}

TEST(CudaColumnSums, AreThoseInDouble) {
  for (const Case& c : {Case{0, 5, 0, 0}, Case{1, 1, 0, 0}, Case{7, 8, 0, 0}, Case{8, 263, 1, 1},
                        Case{9, 264, 8, 0}, Case{256, 40, 0, 8}, Case{257, 33, 7, 0},
                        Case{300, 256, 0, 3}, Case{1000, 24, 0, 0}}) {
    for (const DType from : DeviceTypes()) {
      for (const DType to : {DType::kF32, from}) {
        Check(c, from, to, c.rows % 2 == 0 ? Accumulate::kOverwrite : Accumulate::kAdd);
        if (HasFailure()) return;
      }
    }
  }
}

// More rows than shares of 64: each share has more.
TEST(CudaColumnSums, ManyRows) {
  Check({.rows = 128 * 64 + 5, .cols = 11, .gap = 0, .offset = 0}, DType::kBF16, DType::kF32,
        Accumulate::kOverwrite);
}

}  // namespace
}  // namespace gantry::testing
