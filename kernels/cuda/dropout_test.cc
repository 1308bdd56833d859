// Dropout on the device: bit for bit what the host computes (f32, bf16); f16 keeps the elements
// that DropoutKeeps says, scaled and rounded once.
#include "kernels/cuda/dropout.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/dropout.h"
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
  uint64_t first_element;
};
constexpr Case kCases[] = {{0, 3, 0, 0, 0},
                           {1, 1, 0, 0, 0},
                           {1, 7, 0, 0, 1},
                           {1, 515, 0, 0, 3},
                           {1, 515, 0, 1, 3},
                           {5, 40, 8, 8, 12},
                           {3, 42, 6, 0, 4},
                           {9, 268, 4, 0, 8},
                           {300, 8, 0, 0, 4},
                           {2, 2051, 5, 0, 0},
                           {3, 100, 4, 0, 0xffffffffffffff00ULL}};

void Check(const Case& c, DType dtype, double rate, Accumulate accumulate) {
  SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.cols << " from " << c.first_element
                                    << ", " << dtype << ", rate " << rate);
  const MatrixShape shape{.rows = c.rows, .cols = c.cols};
  const DeviceMatrix::Options options{
      .dtype = dtype, .rows = c.rows, .cols = c.cols, .gap = c.gap, .offset = c.offset};
  DeviceMatrix x(options, RandomMatrix(shape, 1, 1.0));
  const DeviceMatrix before(options, RandomMatrix(shape, 2, 1.0));
  const DropoutKey key{.seed = 0x123456789abcdefULL,
                       .stream = 0x98765432U,
                       .step = 0xfedcba98U,
                       .first_element = c.first_element};
  const auto compute = [&](std::byte poison, const auto& dropout) {
    DeviceMatrix y = accumulate == Accumulate::kAdd ? before : DeviceMatrix(options, poison);
    dropout(DropoutArgs{
        .x = x.view(), .y = y.view(), .key = key, .rate = rate, .accumulate = accumulate});
    y.ExpectIntact();
    return y;
  };
  reference::Matrix result;
  const std::vector<std::byte> device = ExpectSameOnEveryRun([&](const DeviceRun& run) {
    const DeviceMatrix y = compute(run.poison, [&](const DropoutArgs& args) {
      EXPECT_EQ(cuda::Dropout(run.stream, args), 0);
    });
    result = y.values();
    std::vector<std::byte> bytes;
    y.AppendTo(bytes);
    return bytes;
  });
  if (dtype == DType::kF16) {
    const auto scale = static_cast<float>(1.0 / (1.0 - rate));
    const reference::Matrix values = x.values();
    const reference::Matrix old = before.values();
    for (int64_t i = 0; i < c.rows * c.cols; ++i) {
      const int64_t row = i / c.cols;
      const int64_t col = i % c.cols;
      const bool kept = DropoutKeeps(key, rate, c.first_element + static_cast<uint64_t>(i));
      const float value = kept ? static_cast<float>(values(row, col)) * scale : 0.0F;
      const float sum =
          accumulate == Accumulate::kAdd ? static_cast<float>(old(row, col)) + value : value;
      ASSERT_EQ(result(row, col), static_cast<double>(static_cast<float>(Float16(sum)))) << i;
    }
    return;
  }
  const TestContext host(1);
  std::vector<std::byte> expected;
  compute(std::byte{0xFF}, [&](const DropoutArgs& args) {
    Dropout(host.context(), args);
  }).AppendTo(expected);
  EXPECT_TRUE(device == expected);
}

TEST(CudaDropout, BitsAreThoseOfTheHost) {
  for (const Case& c : kCases) {
    for (const DType dtype : DeviceTypes()) {
      Check(c, dtype, 0.1, Accumulate::kOverwrite);
      Check(c, dtype, 0.999, Accumulate::kAdd);
      if (HasFailure()) return;
    }
    Check(c, DType::kF32, 0.0, Accumulate::kOverwrite);
  }
}

}  // namespace
}  // namespace gantry::testing
