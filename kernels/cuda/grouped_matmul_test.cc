// Products of groups with many, few and no rows against those in double: within a rounding of the
// type and 3e-6 of the largest value. Rows beyond the last group stay as they are.
#include "kernels/cuda/grouped_matmul.h"

#include <gtest/gtest.h>

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
  DType dtype;
  std::vector<int32_t> rows;  // of the groups
  int64_t spare;              // rows beyond
  int64_t in;
  int64_t out;
  DType grad_type;
  Accumulate accumulate;
};

void Check(const Case& c) {
  SCOPED_TRACE(::testing::Message()
               << c.dtype << ", " << c.rows.size() << " groups, " << c.in << " to " << c.out);
  std::vector<int32_t> offsets = {0};
  for (const int32_t rows : c.rows) offsets.push_back(offsets.back() + rows);
  const int64_t rows = offsets.back() + c.spare;
  const auto groups = static_cast<int64_t>(c.rows.size());
  const MatrixShape x_shape{.rows = rows, .cols = c.in};
  const MatrixShape y_shape{.rows = rows, .cols = c.out};
  const MatrixShape weight_shape{.rows = groups * c.out, .cols = c.in};
  const auto options = [&](const MatrixShape& shape, DType dtype) {
    return DeviceMatrix::Options{
        .dtype = dtype, .rows = shape.rows, .cols = shape.cols, .gap = 8, .offset = 8};
  };
  DeviceMatrix x(options(x_shape, c.dtype), RandomMatrix(x_shape, 1, 1.0));
  DeviceMatrix grad(options(y_shape, c.dtype), RandomMatrix(y_shape, 2, 1.0));
  DeviceMatrix weight(options(weight_shape, c.dtype), RandomMatrix(weight_shape, 3, 1.0));
  const DeviceMatrix before(options(weight_shape, c.grad_type), RandomMatrix(weight_shape, 4, 1.0));
  reference::Matrix out_values, grad_x_values, grad_weight_values;
  ExpectSameOnTwoRuns([&](const DeviceRun& run) {
    DeviceMatrix out(options(y_shape, c.dtype), std::byte{0});
    DeviceMatrix grad_x(options(x_shape, c.dtype), std::byte{0});
    DeviceMatrix grad_weight = c.accumulate == Accumulate::kAdd
                                   ? before
                                   : DeviceMatrix(options(weight_shape, c.grad_type), run.poison);
    EXPECT_EQ(cuda::GroupedForward(
                  run.stream,
                  {.x = x.view(), .weight = weight.view(), .offsets = offsets, .out = out.view()}),
              0);
    EXPECT_EQ(cuda::GroupedBackwardInput(run.stream, {.grad_out = grad.view(),
                                                      .weight = weight.view(),
                                                      .offsets = offsets,
                                                      .grad_x = grad_x.view()}),
              0);
    EXPECT_EQ(cuda::GroupedBackwardWeight(run.stream, {.grad_out = grad.view(),
                                                       .x = x.view(),
                                                       .offsets = offsets,
                                                       .grad_weight = grad_weight.view(),
                                                       .accumulate = c.accumulate}),
              0);
    std::vector<std::byte> bytes;
    for (const DeviceMatrix* written : {&out, &grad_x, &grad_weight}) {
      written->ExpectIntact();
      written->AppendTo(bytes);
    }
    out_values = out.values();
    grad_x_values = grad_x.values();
    grad_weight_values = grad_weight.values();
    return bytes;
  });
  const reference::Matrix xs = x.values();
  const reference::Matrix grads = grad.values();
  const reference::Matrix weights = weight.values();
  reference::Matrix exact(rows, c.out);
  reference::Matrix exact_x(rows, c.in);
  reference::Matrix exact_weight = before.values();
  if (c.accumulate == Accumulate::kOverwrite)
    exact_weight = reference::Matrix(groups * c.out, c.in);
  for (int64_t group = 0; group < groups; ++group) {
    const auto at = static_cast<size_t>(group);
    for (int64_t n = offsets[at]; n < offsets[at + 1]; ++n) {
      for (int64_t o = 0; o < c.out; ++o) {
        const int64_t row = group * c.out + o;
        for (int64_t i = 0; i < c.in; ++i) {
          exact(n, o) += xs(n, i) * weights(row, i);
          exact_x(n, i) += grads(n, o) * weights(row, i);
          exact_weight(row, i) += grads(n, o) * xs(n, i);
        }
      }
    }
  }
  const auto near = [](DType dtype) {
    return Tolerance{.absolute = 0, .relative = RoundingError(dtype, 1) + 2e-6};
  };
  ExpectNear(out_values, exact, near(c.dtype), "out");
  ExpectNear(grad_x_values, exact_x, near(c.dtype), "grad_x");
  ExpectNear(grad_weight_values, exact_weight, near(c.grad_type), "grad_weight");
}

TEST(CudaGroupedMatMul, AreThoseInDouble) {
  Check({.dtype = DType::kBF16,
         .rows = {3, 0, 130},
         .spare = 5,
         .in = 40,
         .out = 16,
         .grad_type = DType::kF32,
         .accumulate = Accumulate::kAdd});
  Check({.dtype = DType::kF16,
         .rows = {1},
         .spare = 0,
         .in = 8,
         .out = 136,
         .grad_type = DType::kF16,
         .accumulate = Accumulate::kOverwrite});
}

// Deeper than the stages hold.
TEST(CudaGroupedMatMul, Deep) {
  Check({.dtype = DType::kBF16,
         .rows = {9, 20},
         .spare = 0,
         .in = 168,
         .out = 8,
         .grad_type = DType::kBF16,
         .accumulate = Accumulate::kAdd});
}

// More groups than a warp has lanes, most of them empty.
TEST(CudaGroupedMatMul, ManyGroups) {
  std::vector<int32_t> rows(40, 0);
  rows[3] = 2;
  rows[33] = 5;
  Check({.dtype = DType::kBF16,
         .rows = rows,
         .spare = 1,
         .in = 8,
         .out = 8,
         .grad_type = DType::kF32,
         .accumulate = Accumulate::kOverwrite});
}

}  // namespace
}  // namespace gantry::testing
