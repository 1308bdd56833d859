#include "kernels/cuda/testing/device_run.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/testing/status_matchers.h"
#include "device/cuda/emulation/emulator.h"
#include "device/cuda/emulation/stream_runner.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

constexpr int64_t kBoundary = 64;
constexpr auto kGuard = std::byte{0x3C};

int64_t ToBoundary(const std::byte* address) {
  const auto rest = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) % kBoundary);
  return (kBoundary - rest) % kBoundary;
}

}  // namespace

DeviceMatrix::DeviceMatrix(const Options& options, std::byte fill) : options_(options) {
  const int64_t elements = options.rows * (options.cols + options.gap) + options.offset;
  storage_.assign(static_cast<size_t>(elements * SizeOf(options.dtype) + 3 * kBoundary), kGuard);
  begin_ = kBoundary + ToBoundary(storage_.data()) + options.offset * SizeOf(options.dtype);
  for (int64_t row = 0; row < options.rows; ++row) {
    for (int64_t i = 0; i < options.cols * SizeOf(options.dtype); ++i) At(row, 0)[i] = fill;
  }
}

DeviceMatrix::DeviceMatrix(const Options& options, const reference::Matrix& values)
    : DeviceMatrix(options, std::byte{0}) {
  GANTRY_CHECK(values.rows == options.rows && values.cols == options.cols);
  for (int64_t row = 0; row < options.rows; ++row) {
    for (int64_t col = 0; col < options.cols; ++col) {
      StoreElement(options.dtype, At(row, col), 0, static_cast<float>(values(row, col)));
    }
  }
}

const std::byte* DeviceMatrix::At(int64_t row, int64_t col) const {
  const int64_t index = row * (options_.cols + options_.gap) + col;
  return storage_.data() + begin_ + index * SizeOf(options_.dtype);
}
std::byte* DeviceMatrix::At(int64_t row, int64_t col) {
  return const_cast<std::byte*>(std::as_const(*this).At(row, col));
}

MatrixView DeviceMatrix::view() {
  return {.data = At(0, 0),
          .dtype = options_.dtype,
          .rows = options_.rows,
          .cols = options_.cols,
          .row_stride = options_.cols + options_.gap};
}

reference::Matrix DeviceMatrix::values() const {
  reference::Matrix matrix(options_.rows, options_.cols);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t col = 0; col < matrix.cols; ++col) {
      matrix(row, col) = LoadElement(options_.dtype, At(row, col), 0);
    }
  }
  return matrix;
}

void DeviceMatrix::ExpectIntact() const {
  const DeviceMatrix fresh(options_, std::byte{0});
  const int64_t row_bytes = options_.cols * SizeOf(options_.dtype);
  std::vector<std::byte> now(storage_.begin() + begin_ - kBoundary, storage_.end());
  for (int64_t row = 0; row < options_.rows; ++row) {
    const int64_t at = At(row, 0) - storage_.data() - begin_ + kBoundary;
    for (int64_t i = 0; i < row_bytes; ++i) now[static_cast<size_t>(at + i)] = kGuard;
  }
  for (const std::byte byte : now) {
    if (byte == kGuard) continue;
    ADD_FAILURE() << "a guard or a gap between rows was written";
    return;
  }
}

void DeviceMatrix::AppendTo(std::vector<std::byte>& bytes) const {
  for (int64_t row = 0; row < options_.rows; ++row) {
    bytes.insert(bytes.end(), At(row, 0), At(row, 0) + options_.cols * SizeOf(options_.dtype));
  }
}

DeviceBytes::DeviceBytes(int64_t bytes, std::byte fill)
    : bytes_(bytes), storage_(static_cast<size_t>(bytes + kBoundary), fill) {}

std::span<std::byte> DeviceBytes::span() {
  return {storage_.data() + ToBoundary(storage_.data()), static_cast<size_t>(bytes_)};
}

namespace {

struct Way {
  EmulatorOptions options;
  std::byte poison;
};

std::vector<std::byte> ExpectSame(std::span<const Way> ways, const DeviceKernel& kernel) {
  std::vector<std::byte> first;
  for (const Way& way : ways) {
    SCOPED_TRACE(::testing::Message()
                 << "order " << static_cast<int>(way.options.order) << ", seed " << way.options.seed
                 << ", poison " << std::to_integer<int>(way.poison));
    ImmediateStream stream(way.options);
    std::vector<std::byte> bytes = kernel({.stream = &stream, .poison = way.poison});
    EXPECT_THAT(stream.TakeStatus(), IsOk());
    if (&way == ways.data()) first = bytes;
    EXPECT_TRUE(bytes == first) << "results depend on the order of turns or on old memory";
    if (::testing::Test::HasFailure()) break;
  }
  return first;
}

constexpr Way kFirst = {{.order = TurnOrder::kAscending, .find_races = true}, std::byte{0xFF}};
constexpr Way kLast = {{.order = TurnOrder::kSeeded, .seed = 2}, std::byte{0x00}};

}  // namespace

std::vector<std::byte> ExpectSameOnEveryRun(const DeviceKernel& kernel) {
  const Way ways[] = {
      kFirst,
      {{.order = TurnOrder::kDescending, .find_races = true}, std::byte{0x5A}},
      {{.order = TurnOrder::kSeeded, .seed = 1, .find_races = true}, std::byte{0xFF}},
      kLast,
  };
  return ExpectSame(ways, kernel);
}

std::vector<std::byte> ExpectSameOnTwoRuns(const DeviceKernel& kernel) {
  const Way ways[] = {kFirst, kLast};
  return ExpectSame(ways, kernel);
}

std::span<const DType> DeviceTypes() {
  static constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  return kTypes;
}

double RoundingError(DType dtype, double factor) {
  const double half_unit = dtype == DType::kBF16  ? 0x1p-8
                           : dtype == DType::kF16 ? 0x1p-11
                                                  : 0x1p-24;
  return factor * half_unit + 1e-6;
}

}  // namespace gantry::testing
