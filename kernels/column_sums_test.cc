// Goal: column sums against double around the sizes of blocks, added and overwritten, and the fill
// that is their transpose.
#include "kernels/column_sums.h"

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
using testing::TestContext;
using testing::TestMatrix;
using testing::TestWorkspace;

constexpr MatrixShape kShapes[] = {{1, 1},   {3, 3},    {17, 17},   {63, 100},
                                   {64, 64}, {65, 130}, {200, 768}, {4200, 5}};

TEST(ColumnSumsTest, MatchesReference) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const MatrixShape shape : kShapes) {
      for (const Accumulate accumulate : {Accumulate::kOverwrite, Accumulate::kAdd}) {
        TestMatrix matrix({.dtype = dtype, .shape = shape, .gap = 2}, RandomMatrix(shape, 1, 1.0));
        const MatrixShape row = {.rows = 1, .cols = shape.cols};
        TestMatrix sums({.dtype = DType::kF32, .shape = row, .gap = 1}, RandomMatrix(row, 2, 1.0));
        reference::Matrix expected(1, shape.cols);
        if (accumulate == Accumulate::kAdd) expected = sums.values();
        const reference::Matrix values = matrix.values();
        for (int64_t r = 0; r < shape.rows; ++r) {
          for (int64_t i = 0; i < shape.cols; ++i) expected(0, i) += values(r, i);
        }
        const TestWorkspace workspace(ColumnSumsWorkspace(shape));
        ColumnSums(context.context(), {.matrix = matrix.view(),
                                       .sums = sums.vector(),
                                       .accumulate = accumulate,
                                       .workspace = workspace.span()});
        ExpectNear(sums.values(), expected, {.absolute = 1e-5, .relative = 1e-5}, "sums");
        EXPECT_TRUE(sums.GapsAreIntact());
      }
    }
  }
}

TEST(ColumnSumsTest, NoRowsSumToZero) {
  const TestContext context(1);
  const MatrixShape row = {.rows = 1, .cols = 5};
  TestMatrix matrix({.dtype = DType::kF32, .shape = row, .gap = 0});
  TestMatrix sums({.dtype = DType::kF32, .shape = row, .gap = 0}, RandomMatrix(row, 2, 1.0));
  const reference::Matrix before = sums.values();
  ColumnSumsArgs args = {.matrix = matrix.view().Rows(0, 0),
                         .sums = sums.vector(),
                         .accumulate = Accumulate::kAdd,
                         .workspace = {}};
  ColumnSums(context.context(), args);
  EXPECT_EQ(sums.values().values, before.values);
  args.accumulate = Accumulate::kOverwrite;
  ColumnSums(context.context(), args);
  EXPECT_EQ(sums.values().values, std::vector<double>(5, 0.0));
}

TEST(ColumnSumsTest, BitsDoNotDependOnThreadsOrTarget) {
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
      const MatrixShape shape = {.rows = 300, .cols = 1333};
      TestMatrix matrix({.dtype = dtype, .shape = shape, .gap = 2}, RandomMatrix(shape, 1, 1.0));
      TestMatrix sums({.dtype = dtype, .shape = {.rows = 1, .cols = shape.cols}, .gap = 0});
      const TestWorkspace workspace(ColumnSumsWorkspace(shape));
      ColumnSums(context, {.matrix = matrix.view(),
                           .sums = sums.vector(),
                           .accumulate = Accumulate::kOverwrite,
                           .workspace = workspace.span()});
      std::vector<std::byte> bytes;
      Append(sums, bytes);
      return bytes;
    });
  }
}

TEST(FillRowsTest, EveryRowIsTheVector) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const MatrixShape shape : kShapes) {
      const MatrixShape row = {.rows = 1, .cols = shape.cols};
      TestMatrix values({.dtype = DType::kBF16, .shape = row, .gap = 0}, RandomMatrix(row, 1, 1.0));
      TestMatrix rows({.dtype = dtype, .shape = shape, .gap = 3});
      FillRows(context.context(), {.row_values = values.vector(), .rows = rows.view()});
      const reference::Matrix expected = values.values();
      const reference::Matrix filled = rows.values();
      for (int64_t r = 0; r < shape.rows; ++r) {
        for (int64_t i = 0; i < shape.cols; ++i) ASSERT_EQ(filled(r, i), expected(0, i));
      }
      EXPECT_TRUE(rows.GapsAreIntact());
    }
  }
}

}  // namespace
}  // namespace gantry
