// Sums within 1e-14, relative, of the sum in long double; flags exact; the same bits on every run.
#include "kernels/cuda/sum_squares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

struct Result {
  double sum;
  uint32_t not_finite;
};

Result SumOnDevice(DeviceMatrix& values, Accumulate accumulate) {
  Result result{};
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    const VectorView vector = values.vector();
    const int64_t shares = cuda::SumSquaresWorkspace(vector.size);
    DeviceBytes workspace(shares * 8, run.poison);
    result = {.sum = 3.0, .not_finite = 0};
    EXPECT_EQ(cuda::SumSquares(run.stream,
                               {.values = vector,
                                .accumulate = accumulate,
                                .sum = &result.sum,
                                .not_finite = &result.not_finite,
                                .workspace = {reinterpret_cast<double*>(workspace.span().data()),
                                              static_cast<size_t>(shares)}}),
              0);
    uint32_t alone = 0;
    EXPECT_EQ(cuda::FindNotFinite(run.stream, vector, &alone), 0);
    EXPECT_EQ(alone, result.not_finite);
    values.ExpectIntact();
    const auto bytes = std::as_bytes(std::span(&result.sum, 1));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
  return result;
}

TEST(CudaSumSquares, SumsInDouble) {
  for (const DType dtype : DeviceTypes()) {
    for (const int64_t size : {0, 1, 7, 8, 9, 2047, 2048, 2049, 17 * 2048 + 5}) {
      for (const int64_t offset : {0, 3}) {
        SCOPED_TRACE(::testing::Message() << dtype << ", " << size << " at " << offset);
        const MatrixShape shape{.rows = 1, .cols = size};
        DeviceMatrix values({.dtype = dtype, .rows = 1, .cols = size, .offset = offset},
                            RandomMatrix(shape, static_cast<uint64_t>(size), 3.0));
        long double exact = 0;
        for (const double value : values.values().values) exact += value * value;
        const auto expected = static_cast<double>(exact);
        const Result result = SumOnDevice(values, Accumulate::kOverwrite);
        EXPECT_NEAR(result.sum, expected, 1e-14 * expected);
        EXPECT_EQ(result.not_finite, 0u);
        EXPECT_NEAR(SumOnDevice(values, Accumulate::kAdd).sum, expected + 3,
                    1e-14 * (expected + 3));
        if (HasFailure()) return;
      }
    }
  }
}

// Also the first and last elements, and the largest finite ones.
TEST(CudaSumSquares, FindsOneElementThatIsNotFinite) {
  constexpr int64_t kSize = 5003;
  for (const DType dtype : DeviceTypes()) {
    for (const int64_t at : {int64_t{-1}, int64_t{0}, int64_t{2500}, kSize - 1}) {
      for (const double bad :
           {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
            std::numeric_limits<double>::quiet_NaN()}) {
        reference::Matrix values(1, kSize);
        for (double& value : values.values) value = dtype == DType::kF16 ? 65504.0 : 1e38;
        if (at >= 0) values(0, at) = bad;
        DeviceMatrix stored({.dtype = dtype, .rows = 1, .cols = kSize}, values);
        const Result result = SumOnDevice(stored, Accumulate::kOverwrite);
        EXPECT_EQ(result.not_finite, at >= 0 ? 1u : 0u) << dtype << " at " << at;
        EXPECT_EQ(std::isfinite(result.sum), at < 0) << dtype << " at " << at;
      }
    }
  }
}

}  // namespace
}  // namespace gantry::testing
