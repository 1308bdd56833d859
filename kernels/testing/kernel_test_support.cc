#include "kernels/testing/kernel_test_support.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "kernels/kernel_context.h"
#include "kernels/matmul.h"
#include "kernels/simd_targets.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

namespace gantry::testing {
namespace {

constexpr float kCanary = 12345.0f;

void SetElement(std::byte* to, DType dtype, double value) {
  if (dtype == DType::kF32) {
    const float stored = static_cast<float>(value);
    std::memcpy(to, &stored, sizeof(stored));
  } else {
    const uint16_t stored = FloatToBF16Bits(static_cast<float>(value));
    std::memcpy(to, &stored, sizeof(stored));
  }
}

double GetElement(const std::byte* from, DType dtype) {
  if (dtype == DType::kF32) {
    float stored = 0;
    std::memcpy(&stored, from, sizeof(stored));
    return stored;
  }
  uint16_t stored = 0;
  std::memcpy(&stored, from, sizeof(stored));
  return BF16BitsToFloat(stored);
}

reference::Matrix AllNaN(MatrixShape shape) {
  reference::Matrix matrix(shape.rows, shape.cols);
  std::fill(matrix.values.begin(), matrix.values.end(), std::numeric_limits<double>::quiet_NaN());
  return matrix;
}

}  // namespace

reference::Matrix RandomMatrix(MatrixShape shape, uint64_t stream, double scale) {
  const Random random({.seed = kSeed, .stream = stream});
  reference::Matrix matrix(shape.rows, shape.cols);
  for (size_t i = 0; i < matrix.values.size(); ++i) matrix.values[i] = scale * random.Normal(i);
  return matrix;
}

TestMatrix::TestMatrix(const Options& options) : TestMatrix(options, AllNaN(options.shape)) {}

TestMatrix::TestMatrix(const Options& options, const reference::Matrix& values)
    : options_(options) {
  GANTRY_CHECK(values.rows == options.shape.rows && values.cols == options.shape.cols)
      << values.rows << ", " << values.cols;
  const int64_t stride = options.shape.cols + options.gap;
  const int64_t size = SizeOf(options.dtype);
  memory_.resize(static_cast<size_t>(options.shape.rows * stride * size));
  for (int64_t i = 0; i < options.shape.rows * stride; ++i) {
    const int64_t row = i / stride;
    const int64_t col = i % stride;
    SetElement(memory_.data() + i * size, options.dtype,
               col < options.shape.cols ? values(row, col) : kCanary);
  }
}

MatrixView TestMatrix::view() {
  return {.data = memory_.data(),
          .dtype = options_.dtype,
          .rows = options_.shape.rows,
          .cols = options_.shape.cols,
          .row_stride = options_.shape.cols + options_.gap};
}

reference::Matrix TestMatrix::values() const {
  reference::Matrix matrix(options_.shape.rows, options_.shape.cols);
  const int64_t stride = options_.shape.cols + options_.gap;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t col = 0; col < matrix.cols; ++col) {
      const int64_t offset = (row * stride + col) * SizeOf(options_.dtype);
      matrix(row, col) = GetElement(memory_.data() + offset, options_.dtype);
    }
  }
  return matrix;
}

bool TestMatrix::GapsAreIntact() const {
  const TestMatrix fresh(options_, values());
  return fresh.memory_ == memory_;
}

void ExpectNear(const reference::Matrix& actual, const reference::Matrix& expected,
                const Tolerance& tolerance, const std::string& what) {
  ASSERT_EQ(actual.rows, expected.rows) << what;
  ASSERT_EQ(actual.cols, expected.cols) << what;
  double largest = 0;
  for (const double value : expected.values) largest = std::max(largest, std::abs(value));
  const double allowed = tolerance.absolute + tolerance.relative * largest;
  for (int64_t row = 0; row < actual.rows; ++row) {
    for (int64_t col = 0; col < actual.cols; ++col) {
      const double error = std::abs(actual(row, col) - expected(row, col));
      ASSERT_LE(error, allowed) << what << " at [" << row << ", " << col
                                << "]: " << actual(row, col) << ", expected " << expected(row, col);
    }
  }
}

Tolerance RoundingOf(DType dtype, double factor) {
  return {.absolute = 0, .relative = factor * (dtype == DType::kF32 ? 1e-6 : 1.0 / 256)};
}

TestContext::TestContext(int threads, MatMul::Options options) {
  auto team = ThreadTeam::Create({.threads = threads});
  GANTRY_CHECK_OK(team.status());
  team_ = *std::move(team);
  auto matmul = MatMul::Create(options);
  GANTRY_CHECK_OK(matmul.status());
  matmul_ = *std::move(matmul);
  context_ = {.team = team_.get(), .matmul = matmul_.get()};
}

TestWorkspace::TestWorkspace(Bytes bytes)
    : memory_(static_cast<size_t>(bytes.count() + kWorkspaceAlignment), std::byte{0xff}) {
  void* start = memory_.data();
  size_t space = memory_.size();
  std::align(static_cast<size_t>(kWorkspaceAlignment), static_cast<size_t>(bytes.count()), start,
             space);
  span_ = {static_cast<std::byte*>(start), static_cast<size_t>(bytes.count())};
}

namespace {

// Runs `kernel` with several team sizes; the bytes must be `first`, which is set by the first run.
void ExpectSameBitsForTeams(const KernelRun& kernel, std::vector<std::byte>& first,
                            std::string_view what) {
  for (const int threads : {1, 2, 3}) {
    const TestContext context(threads);
    std::vector<std::byte> bytes = kernel(context.context());
    EXPECT_FALSE(bytes.empty());
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads << " threads, " << what;
  }
}

}  // namespace

void ExpectSameBits(Targets targets, const KernelRun& kernel) {
  std::vector<std::byte> first;
  ExpectSameBitsForTeams(kernel, first, "best target");
  if (targets == Targets::kBest) return;
  for (const SimdTarget target : SupportedSimdTargets()) {
    const ScopedSimdTarget scoped(target);
    ExpectSameBitsForTeams(kernel, first, Name(target));
  }
}

void Append(const TestMatrix& matrix, std::vector<std::byte>& bytes) {
  bytes.insert(bytes.end(), matrix.bytes().begin(), matrix.bytes().end());
}

void Append(std::span<const float> values, std::vector<std::byte>& bytes) {
  const auto raw = std::as_bytes(values);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

std::vector<DType> StoredTypes() { return {DType::kF32, DType::kBF16}; }

}  // namespace gantry::testing
