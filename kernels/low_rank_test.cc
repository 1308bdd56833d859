// Goal: norms and merged weights against double, around the block of 128 rows, with and without
// magnitudes, for adapters of another type than the weight.
#include "kernels/low_rank.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/testing/status_matchers.h"
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
using testing::TestWorkspace;

constexpr float kScale = 0.75f;
constexpr int64_t kRank = 3;

struct Problem {
  Problem(MatrixShape shape_in, DType weight_dtype, DType adapter_dtype)
      : shape(shape_in),
        weight({.dtype = weight_dtype, .shape = shape, .gap = 2}, RandomMatrix(shape, 1, 1.0)),
        a(Make({kRank, shape.cols}, 2, adapter_dtype)),
        b(Make({shape.rows, kRank}, 3, adapter_dtype)),
        magnitude(Make({1, shape.rows}, 4, adapter_dtype)) {}

  static TestMatrix Make(MatrixShape shape, uint64_t stream, DType dtype) {
    return TestMatrix({.dtype = dtype, .shape = shape, .gap = 0}, RandomMatrix(shape, stream, 1.0));
  }
  LowRankChange change() { return {.a = a.view(), .b = b.view(), .scale = kScale}; }
  reference::Matrix Changed() const {
    reference::Matrix changed = weight.values();
    const reference::Matrix product = reference::Product(b.values(), a.values());
    for (size_t i = 0; i < changed.values.size(); ++i) {
      changed.values[i] += kScale * product.values[i];
    }
    return changed;
  }

  MatrixShape shape;
  TestMatrix weight;
  TestMatrix a;
  TestMatrix b;
  TestMatrix magnitude;
};

reference::Matrix NormsOf(const reference::Matrix& matrix) {
  reference::Matrix norms(1, matrix.rows);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t i = 0; i < matrix.cols; ++i) norms(0, r) += matrix(r, i) * matrix(r, i);
    norms(0, r) = std::sqrt(norms(0, r));
  }
  return norms;
}

constexpr MatrixShape kShapes[] = {{1, 1}, {5, 17}, {127, 20}, {128, 16}, {300, 33}};

TEST(LowRankTest, NormsAndMergedWeights) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const DType adapter_dtype : testing::StoredTypes()) {
      for (const MatrixShape shape : kShapes) {
        Problem problem(shape, dtype, adapter_dtype);
        const reference::Matrix changed = problem.Changed();
        const reference::Matrix norms = NormsOf(changed);
        const TestWorkspace workspace(LowRankWorkspace(shape));
        std::vector<float> actual(static_cast<size_t>(shape.rows));
        ASSERT_THAT(RowNorms(context.context(), {.weight = problem.weight.view(),
                                                 .change = problem.change(),
                                                 .norms = actual,
                                                 .workspace = workspace.span()}),
                    IsOk());
        for (size_t i = 0; i < actual.size(); ++i) {
          ASSERT_NEAR(actual[i], norms.values[i], 1e-5 * norms.values[i] + 1e-6) << i;
        }
        Problem scaled = problem;
        reference::Matrix expected = changed;
        for (int64_t r = 0; r < shape.rows; ++r) {
          for (int64_t i = 0; i < shape.cols; ++i) {
            expected(r, i) *= problem.magnitude.values()(0, r) / norms(0, r);
          }
        }
        ASSERT_THAT(MergeLowRank(context.context(), {.weight = scaled.weight.view(),
                                                     .change = scaled.change(),
                                                     .magnitude = scaled.magnitude.vector(),
                                                     .workspace = workspace.span()}),
                    IsOk());
        ExpectNear(scaled.weight.values(), expected, RoundingOf(dtype, 3), "with magnitudes");
        ASSERT_THAT(MergeLowRank(context.context(), {.weight = problem.weight.view(),
                                                     .change = problem.change(),
                                                     .magnitude = std::nullopt,
                                                     .workspace = workspace.span()}),
                    IsOk());
        ExpectNear(problem.weight.values(), changed, RoundingOf(dtype, 1), "merged");
        EXPECT_TRUE(problem.weight.GapsAreIntact() && scaled.weight.GapsAreIntact());
      }
    }
  }
}

TEST(LowRankTest, BitsDoNotDependOnThreads) {
  testing::ExpectSameBits(testing::Targets::kBest, [&](const KernelContext& context) {
    Problem problem({.rows = 200, .cols = 70}, DType::kBF16, DType::kBF16);
    const TestWorkspace workspace(LowRankWorkspace(problem.shape));
    EXPECT_THAT(MergeLowRank(context, {.weight = problem.weight.view(),
                                       .change = problem.change(),
                                       .magnitude = problem.magnitude.vector(),
                                       .workspace = workspace.span()}),
                IsOk());
    std::vector<std::byte> bytes;
    Append(problem.weight, bytes);
    return bytes;
  });
}

}  // namespace
}  // namespace gantry
