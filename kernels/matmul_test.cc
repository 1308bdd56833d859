// Goal: every layout, type and path of MatMul against a product in double. Sizes straddle the tile
// edges (256 x 384, halved to 64 x 128) and the panel depth (1024).
#include "kernels/matmul.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/strings.h"
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

struct Case {
  int64_t m;
  int64_t n;
  int64_t k;
  DType in = DType::kF32;
  DType out = DType::kF32;
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  Accumulate accumulate = Accumulate::kOverwrite;
};

std::string Describe(const Case& c) {
  return StrCat(c.m, "x", c.n, "x", c.k, " ", c.in, "->", c.out,
                c.transpose_a == Transpose::kYes ? " A^T" : "",
                c.transpose_b == Transpose::kYes ? " B^T" : "",
                c.accumulate == Accumulate::kAdd ? " add" : "");
}

TestMatrix MakeOperand(MatrixShape shape, Transpose transpose, DType dtype, uint64_t stream) {
  if (transpose == Transpose::kYes) shape = {.rows = shape.cols, .cols = shape.rows};
  return TestMatrix({.dtype = dtype, .shape = shape, .gap = 3}, RandomMatrix(shape, stream, 1.0));
}

reference::Matrix Effective(const TestMatrix& matrix, Transpose transpose) {
  return transpose == Transpose::kYes ? reference::Transposed(matrix.values()) : matrix.values();
}

void RunCase(const TestContext& context, const Case& c) {
  SCOPED_TRACE(Describe(c));
  TestMatrix a = MakeOperand({.rows = c.m, .cols = c.k}, c.transpose_a, c.in, 1);
  TestMatrix b = MakeOperand({.rows = c.k, .cols = c.n}, c.transpose_b, c.in, 2);
  const MatrixShape shape = {.rows = c.m, .cols = c.n};
  const TestMatrix::Options options = {.dtype = c.out, .shape = shape, .gap = 5};
  TestMatrix product = c.accumulate == Accumulate::kAdd
                           ? TestMatrix(options, RandomMatrix(shape, 3, 4.0))
                           : TestMatrix(options);
  reference::Matrix expected =
      reference::Product(Effective(a, c.transpose_a), Effective(b, c.transpose_b));
  if (c.accumulate == Accumulate::kAdd) {
    const reference::Matrix before = product.values();
    for (size_t i = 0; i < expected.values.size(); ++i) expected.values[i] += before.values[i];
  }
  ASSERT_TRUE(Multiply(context.context(), {.a = {.view = a.view(), .transpose = c.transpose_a},
                                           .b = {.view = b.view(), .transpose = c.transpose_b},
                                           .c = product.view(),
                                           .accumulate = c.accumulate})
                  .ok());
  // Half a unit in the last place of bf16, and float sums over k.
  const double relative = c.out == DType::kBF16 ? 1.0 / 256 : 0;
  ExpectNear(product.values(), expected,
             {.absolute = 1e-5 * std::sqrt(static_cast<double>(c.k)), .relative = relative},
             "product");
  EXPECT_TRUE(product.GapsAreIntact());
}

void RunLayouts(const TestContext& context, Case c) {
  for (const Transpose transpose_a : {Transpose::kNo, Transpose::kYes}) {
    for (const Transpose transpose_b : {Transpose::kNo, Transpose::kYes}) {
      for (const Accumulate accumulate : {Accumulate::kOverwrite, Accumulate::kAdd}) {
        c.transpose_a = transpose_a;
        c.transpose_b = transpose_b;
        c.accumulate = accumulate;
        RunCase(context, c);
      }
    }
  }
}

void RunTypes(const TestContext& context) {
  const Case sizes[] = {{.m = 1, .n = 1, .k = 1},     {.m = 3, .n = 17, .k = 5},
                        {.m = 17, .n = 3, .k = 33},   {.m = 1, .n = 259, .k = 64},
                        {.m = 70, .n = 130, .k = 31}, {.m = 65, .n = 129, .k = 1030}};
  for (Case c : sizes) {
    for (const DType in : testing::StoredTypes()) {
      for (const DType out : testing::StoredTypes()) {
        c.in = in;
        c.out = out;
        RunLayouts(context, c);
      }
    }
  }
}

TEST(MatMulTest, MatchesReferenceInEveryLayoutAndType) { RunTypes(TestContext(2)); }

TEST(MatMulTest, MatchesReferenceWhenBF16IsConverted) {
  const TestContext context(2, {.bf16_path = MatMul::BF16Path::kConvert});
  EXPECT_EQ(context.context().matmul->bf16_path(), MatMul::BF16Path::kConvert);
  RunTypes(context);
}

TEST(MatMulTest, MatchesReferenceOverSeveralTilesEachWay) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    RunCase(context, {.m = 515,
                      .n = 770,
                      .k = 40,
                      .in = dtype,
                      .out = DType::kF32,
                      .transpose_a = Transpose::kNo,
                      .transpose_b = Transpose::kYes,
                      .accumulate = Accumulate::kOverwrite});
  }
}

TEST(MatMulTest, MultipliesMixedTypes) {
  const TestContext context(2);
  const MatrixShape a_shape = {.rows = 9, .cols = 20};
  const MatrixShape b_shape = {.rows = 20, .cols = 7};
  TestMatrix a({.dtype = DType::kF32, .shape = a_shape, .gap = 0}, RandomMatrix(a_shape, 1, 1));
  TestMatrix b({.dtype = DType::kBF16, .shape = b_shape, .gap = 0}, RandomMatrix(b_shape, 2, 1));
  TestMatrix c({.dtype = DType::kF32, .shape = {.rows = 9, .cols = 7}, .gap = 0});
  ASSERT_TRUE(Multiply(context.context(), {.a = {.view = a.view(), .transpose = Transpose::kNo},
                                           .b = {.view = b.view(), .transpose = Transpose::kNo},
                                           .c = c.view(),
                                           .accumulate = Accumulate::kOverwrite})
                  .ok());
  ExpectNear(c.values(), reference::Product(a.values(), b.values()),
             {.absolute = 1e-5, .relative = 0}, "mixed");
}

TEST(MatMulTest, EmptyInnerDimensionGivesZeroOrLeavesTheSum) {
  const TestContext context(1);
  const MatrixShape shape = {.rows = 2, .cols = 3};
  TestMatrix a({.dtype = DType::kF32, .shape = {.rows = 2, .cols = 0}, .gap = 1});
  TestMatrix b({.dtype = DType::kF32, .shape = {.rows = 0, .cols = 3}, .gap = 1});
  TestMatrix c({.dtype = DType::kF32, .shape = shape, .gap = 1}, RandomMatrix(shape, 1, 1.0));
  const reference::Matrix before = c.values();
  MatMulArgs args = {.a = {.view = a.view(), .transpose = Transpose::kNo},
                     .b = {.view = b.view(), .transpose = Transpose::kNo},
                     .c = c.view(),
                     .accumulate = Accumulate::kAdd};
  ASSERT_TRUE(Multiply(context.context(), args).ok());
  EXPECT_EQ(c.values().values, before.values);
  args.accumulate = Accumulate::kOverwrite;
  ASSERT_TRUE(Multiply(context.context(), args).ok());
  EXPECT_EQ(c.values().values, std::vector<double>(6, 0.0));
}

TEST(MatMulTest, LinearFunctionsMultiplyWhatTheySay) {
  const TestContext context(2);
  const MatrixShape x_shape = {.rows = 13, .cols = 8};
  const MatrixShape w_shape = {.rows = 6, .cols = 8};
  const MatrixShape y_shape = {.rows = 13, .cols = 6};
  const auto make = [](MatrixShape shape, uint64_t stream) {
    return TestMatrix({.dtype = DType::kF32, .shape = shape, .gap = 0},
                      RandomMatrix(shape, stream, 1.0));
  };
  TestMatrix x = make(x_shape, 1);
  TestMatrix w = make(w_shape, 2);
  TestMatrix dy = make(y_shape, 3);
  TestMatrix y = make(y_shape, 4);
  TestMatrix dx = make(x_shape, 5);
  TestMatrix dw = make(w_shape, 6);
  ASSERT_TRUE(
      LinearForward(context.context(), {.x = x.view(), .weight = w.view(), .y = y.view()}).ok());
  ASSERT_TRUE(LinearBackwardInput(context.context(), {.grad_y = dy.view(),
                                                      .weight = w.view(),
                                                      .grad_x = dx.view(),
                                                      .accumulate = Accumulate::kOverwrite})
                  .ok());
  ASSERT_TRUE(LinearBackwardWeight(context.context(), {.grad_y = dy.view(),
                                                       .x = x.view(),
                                                       .grad_weight = dw.view(),
                                                       .accumulate = Accumulate::kOverwrite})
                  .ok());
  const testing::Tolerance tolerance = {.absolute = 1e-5, .relative = 0};
  ExpectNear(y.values(), reference::Product(x.values(), reference::Transposed(w.values())),
             tolerance, "y");
  ExpectNear(dx.values(), reference::Product(dy.values(), w.values()), tolerance, "dx");
  ExpectNear(dw.values(), reference::Product(reference::Transposed(dy.values()), x.values()),
             tolerance, "dw");
}

TEST(MatMulTest, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kBest, [&](const KernelContext& context) {
      const MatrixShape x_shape = {.rows = 300, .cols = 100};
      const MatrixShape w_shape = {.rows = 400, .cols = 100};
      TestMatrix x({.dtype = dtype, .shape = x_shape, .gap = 0}, RandomMatrix(x_shape, 1, 1.0));
      TestMatrix w({.dtype = dtype, .shape = w_shape, .gap = 0}, RandomMatrix(w_shape, 2, 1.0));
      TestMatrix y({.dtype = dtype, .shape = {.rows = 300, .cols = 400}, .gap = 0});
      EXPECT_TRUE(LinearForward(context, {.x = x.view(), .weight = w.view(), .y = y.view()}).ok());
      std::vector<std::byte> bytes;
      Append(y, bytes);
      return bytes;
    });
  }
}

TEST(MatMulTest, KeepsWorkingWhenTheCacheOfPrimitivesOverflows) {
  const TestContext context(1, {.primitives_max = 8});
  for (int round = 0; round < 2; ++round) {
    for (int64_t m = 1; m <= 12; ++m) {
      RunCase(context, {.m = m,
                        .n = 16,
                        .k = 24,
                        .in = DType::kBF16,
                        .out = DType::kF32,
                        .transpose_a = Transpose::kNo,
                        .transpose_b = Transpose::kYes,
                        .accumulate = Accumulate::kOverwrite});
    }
  }
}

TEST(MatMulTest, CreateChecksItsOptions) {
  EXPECT_EQ(MatMul::Create({.primitives_max = 7}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto native = MatMul::Create({.bf16_path = MatMul::BF16Path::kNative});
  if (MatMul::HasNativeBF16()) {
    ASSERT_TRUE(native.ok());
    EXPECT_EQ((*native)->bf16_path(), MatMul::BF16Path::kNative);
  } else {
    EXPECT_EQ(native.status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(MatMulDeathTest, ShapesMustAgreeAndTheResultMayNotOverlap) {
  const TestContext context(1);
  TestMatrix a({.dtype = DType::kF32, .shape = {.rows = 2, .cols = 3}, .gap = 0});
  TestMatrix c({.dtype = DType::kF32, .shape = {.rows = 2, .cols = 2}, .gap = 0});
  MatMulArgs args = {.a = {.view = a.view(), .transpose = Transpose::kNo},
                     .b = {.view = a.view(), .transpose = Transpose::kNo},
                     .c = c.view(),
                     .accumulate = Accumulate::kOverwrite};
  EXPECT_DEATH((void)Multiply(context.context(), args), "2, 3.*2, 3.*2, 2");
  args.b.transpose = Transpose::kYes;
  args.c = a.view().Columns(0, 2);
  EXPECT_DEATH((void)Multiply(context.context(), args), "overlaps");
}

}  // namespace
}  // namespace gantry
