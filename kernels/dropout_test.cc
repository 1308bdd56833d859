// Goal: how many elements are kept, that neighbours, steps and streams are independent, that rows
// may be computed in any pieces, and the scaled values themselves.
#include "kernels/dropout.h"

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
using testing::RandomMatrix;
using testing::TestContext;
using testing::TestMatrix;

constexpr DropoutKey kKey = {.seed = 3, .stream = 5, .step = 7, .first_element = 11};

TEST(DropoutTest, KeptElementsAreScaledAndOthersZero) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const Accumulate accumulate : {Accumulate::kOverwrite, Accumulate::kAdd}) {
      const MatrixShape shape = {.rows = 33, .cols = 45};
      TestMatrix x({.dtype = dtype, .shape = shape, .gap = 2}, RandomMatrix(shape, 1, 1.0));
      TestMatrix y({.dtype = dtype, .shape = shape, .gap = 1}, RandomMatrix(shape, 2, 1.0));
      const reference::Matrix before = y.values();
      Dropout(context.context(),
              {.x = x.view(), .y = y.view(), .key = kKey, .rate = 0.25, .accumulate = accumulate});
      reference::Matrix expected(33, 45);
      for (int64_t row = 0; row < 33; ++row) {
        for (int64_t i = 0; i < 45; ++i) {
          const auto element = kKey.first_element + static_cast<uint64_t>(row * 45 + i);
          const bool keeps = DropoutKeeps(kKey, 0.25, element);
          expected(row, i) = keeps ? x.values()(row, i) / 0.75 : 0.0;
          if (accumulate == Accumulate::kAdd) expected(row, i) += before(row, i);
        }
      }
      testing::ExpectNear(y.values(), expected, testing::RoundingOf(dtype, 1), "y");
      EXPECT_TRUE(y.GapsAreIntact());
    }
  }
}

// The share of elements kept by both keys, and by the first.
struct Shares {
  double both = 0;
  double first = 0;
};
Shares SharesOf(const DropoutKey& a, const DropoutKey& b, uint64_t shift) {
  constexpr uint64_t kCount = 100'000;
  Shares shares;
  for (uint64_t i = 0; i < kCount; ++i) {
    const bool kept = DropoutKeeps(a, 0.3, i);
    shares.first += kept ? 1.0 / kCount : 0.0;
    shares.both += kept && DropoutKeeps(b, 0.3, i + shift) ? 1.0 / kCount : 0.0;
  }
  return shares;
}

TEST(DropoutTest, ChoicesAreIndependent) {
  constexpr double kFiveSigma = 5 * 0.5 / 316;  // of 100,000 choices
  const auto expect_independent = [&](const DropoutKey& other, uint64_t shift) {
    const Shares shares = SharesOf(kKey, other, shift);
    EXPECT_NEAR(shares.first, 0.7, kFiveSigma);
    EXPECT_NEAR(shares.both, 0.49, kFiveSigma);
  };
  for (const uint64_t shift : {1, 2, 3, 4, 64, 1000}) expect_independent(kKey, shift);
  DropoutKey other = kKey;
  other.seed = 4;
  expect_independent(other, 0);
  other = kKey;
  other.stream = 6;
  expect_independent(other, 0);
  other = kKey;
  other.step = 8;
  expect_independent(other, 0);
  other = {.seed = 3, .stream = 7, .step = 5, .first_element = 11};
  expect_independent(other, 0);
}

TEST(DropoutTest, RowsInPiecesAreTheWhole) {
  const TestContext context(2);
  const MatrixShape shape = {.rows = 10, .cols = 7};
  const TestMatrix::Options options = {.dtype = DType::kF32, .shape = shape, .gap = 0};
  TestMatrix x(options, RandomMatrix(shape, 1, 1.0));
  TestMatrix whole(options);
  TestMatrix pieces(options);
  const auto run = [&](TestMatrix& y, int64_t first, int64_t rows) {
    DropoutKey key = kKey;
    key.first_element += static_cast<uint64_t>(7 * first);
    Dropout(context.context(), {.x = x.view().Rows(first, rows),
                                .y = y.view().Rows(first, rows),
                                .key = key,
                                .rate = 0.5,
                                .accumulate = Accumulate::kOverwrite});
  };
  run(whole, 0, 10);
  run(pieces, 0, 3);
  run(pieces, 3, 1);
  run(pieces, 4, 6);
  EXPECT_EQ(pieces.values().values, whole.values().values);
}

TEST(DropoutTest, ARateOfZeroKeepsEverything) {
  const TestContext context(1);
  const MatrixShape shape = {.rows = 4, .cols = 1000};
  TestMatrix x({.dtype = DType::kF32, .shape = shape, .gap = 0}, RandomMatrix(shape, 1, 1.0));
  TestMatrix y({.dtype = DType::kF32, .shape = shape, .gap = 0});
  Dropout(context.context(), {.x = x.view(),
                              .y = y.view(),
                              .key = kKey,
                              .rate = 0.0,
                              .accumulate = Accumulate::kOverwrite});
  EXPECT_EQ(y.values().values, x.values().values);
}

TEST(DropoutTest, BitsDoNotDependOnThreads) {
  testing::ExpectSameBits(testing::Targets::kBest, [&](const KernelContext& context) {
    const MatrixShape shape = {.rows = 100, .cols = 333};
    TestMatrix x({.dtype = DType::kBF16, .shape = shape, .gap = 0}, RandomMatrix(shape, 1, 1.0));
    Dropout(context, {.x = x.view(),
                      .y = x.view(),
                      .key = kKey,
                      .rate = 0.1,
                      .accumulate = Accumulate::kOverwrite});
    std::vector<std::byte> bytes;
    Append(x, bytes);
    return bytes;
  });
}

TEST(DropoutDeathTest, RatesAreBelowOne) {
  const TestContext context(1);
  TestMatrix x({.dtype = DType::kF32, .shape = {.rows = 1, .cols = 4}, .gap = 0});
  EXPECT_DEATH(Dropout(context.context(), {.x = x.view(),
                                           .y = x.view(),
                                           .key = kKey,
                                           .rate = 1.0,
                                           .accumulate = Accumulate::kOverwrite}),
               "check failed");
}

}  // namespace
}  // namespace gantry
