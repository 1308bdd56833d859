// Goal: each operation against the same float arithmetic done one element at a time, at sizes
// around the vector width, in place and added.
#include "kernels/columns.h"

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

constexpr MatrixShape kShapes[] = {{1, 1}, {3, 15}, {4, 16}, {5, 17}, {70, 300}, {2, 0}};

float Stored(float value, DType dtype) {
  return dtype == DType::kF32 ? value : static_cast<float>(BFloat16(value));
}

std::vector<float> Factors(int64_t cols) {
  const reference::Matrix values = RandomMatrix({.rows = 1, .cols = cols}, 9, 1.0);
  return {values.values.begin(), values.values.end()};
}

TEST(ColumnsTest, ScaleColumns) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const MatrixShape shape : kShapes) {
      for (const Accumulate accumulate : {Accumulate::kOverwrite, Accumulate::kAdd}) {
        TestMatrix x({.dtype = dtype, .shape = shape, .gap = 2}, RandomMatrix(shape, 1, 1.0));
        TestMatrix y({.dtype = dtype, .shape = shape, .gap = 1}, RandomMatrix(shape, 2, 1.0));
        const reference::Matrix before = y.values();
        const std::vector<float> factors = Factors(shape.cols);
        ScaleColumns(context.context(), {.x = x.view(),
                                         .factors = factors,
                                         .y = y.view(),
                                         .accumulate = accumulate,
                                         .scale = 1.5F,
                                         .offset = -0.5F});
        const reference::Matrix from = x.values();
        const reference::Matrix after = y.values();
        for (int64_t r = 0; r < shape.rows; ++r) {
          for (int64_t i = 0; i < shape.cols; ++i) {
            const float factor = 1.5F * factors[static_cast<size_t>(i)] + -0.5F;
            const float product = static_cast<float>(from(r, i)) * factor;
            const float sum = static_cast<float>(before(r, i)) + product;
            ASSERT_EQ(after(r, i), Stored(accumulate == Accumulate::kAdd ? sum : product, dtype));
          }
        }
        EXPECT_TRUE(y.GapsAreIntact());
      }
    }
  }
}

TEST(ColumnsTest, AddToRowsAndMultiplyElements) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const MatrixShape shape : kShapes) {
      const MatrixShape row = {.rows = 1, .cols = shape.cols};
      TestMatrix values({.dtype = dtype, .shape = row, .gap = 0}, RandomMatrix(row, 1, 1.0));
      TestMatrix y({.dtype = dtype, .shape = shape, .gap = 1}, RandomMatrix(shape, 2, 1.0));
      TestMatrix product({.dtype = dtype, .shape = shape, .gap = 3});
      const reference::Matrix before = y.values();
      AddToRows(context.context(), {.values = values.vector(), .factor = -0.5f, .y = y.view()});
      MultiplyElements(context.context(), {.a = y.view(), .b = y.view(), .y = product.view()});
      const reference::Matrix added = values.values();
      const reference::Matrix after = y.values();
      const reference::Matrix squares = product.values();
      for (int64_t r = 0; r < shape.rows; ++r) {
        for (int64_t i = 0; i < shape.cols; ++i) {
          const float part = -0.5f * static_cast<float>(added(0, i));
          ASSERT_EQ(after(r, i), Stored(static_cast<float>(before(r, i)) + part, dtype));
          const auto value = static_cast<float>(after(r, i));
          ASSERT_EQ(squares(r, i), Stored(value * value, dtype));
        }
      }
      EXPECT_TRUE(y.GapsAreIntact() && product.GapsAreIntact());
    }
  }
}

TEST(ColumnsTest, BitsDoNotDependOnThreadsOrTargetAlsoInPlace) {
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
      const MatrixShape shape = {.rows = 100, .cols = 333};
      TestMatrix x({.dtype = dtype, .shape = shape, .gap = 1}, RandomMatrix(shape, 1, 1.0));
      const std::vector<float> factors = Factors(shape.cols);
      ScaleColumns(
          context,
          {.x = x.view(), .factors = factors, .y = x.view(), .accumulate = Accumulate::kAdd});
      AddToRows(context,
                {.values = x.view().RowView(0), .factor = 0.3f, .y = x.view().Rows(1, 99)});
      MultiplyElements(context, {.a = x.view(), .b = x.view(), .y = x.view()});
      std::vector<std::byte> bytes;
      Append(x, bytes);
      return bytes;
    });
  }
}

}  // namespace
}  // namespace gantry
