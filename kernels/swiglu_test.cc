// Goal: SwiGLU and its gradient against double, also for saturated gates, in place and on slices.
#include "kernels/swiglu.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
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
using testing::RoundingOf;
using testing::TestContext;
using testing::TestMatrix;

constexpr MatrixShape kShapes[] = {{1, 1}, {3, 3}, {17, 17}, {5, 100}, {40, 768}};

TEST(SwiGluTest, MatchesReference) {
  const TestContext context(2);
  for (const DType dtype : testing::StoredTypes()) {
    for (const MatrixShape shape : kShapes) {
      const MatrixShape fused = {.rows = shape.rows, .cols = 2 * shape.cols};
      TestMatrix gate_up({.dtype = dtype, .shape = fused, .gap = 2}, RandomMatrix(fused, 1, 4.0));
      const MatrixView gate = gate_up.view().Columns(0, shape.cols);
      const MatrixView up = gate_up.view().Columns(shape.cols, shape.cols);
      const TestMatrix::Options options = {.dtype = dtype, .shape = shape, .gap = 3};
      TestMatrix activated(options);
      TestMatrix grad(options, RandomMatrix(shape, 2, 1.0));
      TestMatrix grad_gate(options);
      TestMatrix grad_up(options);
      SwiGluForward(context.context(), {.gate = gate, .up = up, .activated = activated.view()});
      SwiGluBackward(context.context(), {.gate = gate,
                                         .up = up,
                                         .grad_activated = grad.view(),
                                         .grad_gate = grad_gate.view(),
                                         .grad_up = grad_up.view()});
      reference::Matrix g(shape.rows, shape.cols);
      reference::Matrix u(shape.rows, shape.cols);
      const reference::Matrix both = gate_up.values();
      for (int64_t i = 0; i < shape.rows; ++i) {
        for (int64_t j = 0; j < shape.cols; ++j) {
          g(i, j) = both(i, j);
          u(i, j) = both(i, shape.cols + j);
        }
      }
      const reference::SwiGluGradients expected = reference::SwiGluBackward(g, u, grad.values());
      ExpectNear(activated.values(), reference::SwiGlu(g, u), RoundingOf(dtype, 1), "activated");
      ExpectNear(grad_gate.values(), expected.gate, RoundingOf(dtype, 1), "grad_gate");
      ExpectNear(grad_up.values(), expected.up, RoundingOf(dtype, 1), "grad_up");
      EXPECT_TRUE(activated.GapsAreIntact() && grad_gate.GapsAreIntact());
      EXPECT_TRUE(grad_up.GapsAreIntact() && gate_up.GapsAreIntact());
    }
  }
}

TEST(SwiGluTest, SaturatedGatesGiveFiniteResults) {
  const TestContext context(1);
  const MatrixShape shape = {.rows = 1, .cols = 6};
  reference::Matrix values(1, 6);
  values.values = {-1e4, -90, -87.4, 87.4, 90, 1e4};
  const TestMatrix::Options options = {.dtype = DType::kF32, .shape = shape, .gap = 0};
  TestMatrix gate(options, values);
  TestMatrix ones(options, RandomMatrix(shape, 1, 1.0));
  TestMatrix activated(options);
  TestMatrix grad_gate(options);
  TestMatrix grad_up(options);
  SwiGluForward(context.context(),
                {.gate = gate.view(), .up = ones.view(), .activated = activated.view()});
  SwiGluBackward(context.context(), {.gate = gate.view(),
                                     .up = ones.view(),
                                     .grad_activated = ones.view(),
                                     .grad_gate = grad_gate.view(),
                                     .grad_up = grad_up.view()});
  const testing::Tolerance tolerance = {.absolute = 1e-30, .relative = 1e-6};
  const auto expected = reference::SwiGluBackward(values, ones.values(), ones.values());
  ExpectNear(activated.values(), reference::SwiGlu(values, ones.values()), tolerance, "activated");
  ExpectNear(grad_gate.values(), expected.gate, tolerance, "grad_gate");
  ExpectNear(grad_up.values(), expected.up, tolerance, "grad_up");
}

TEST(SwiGluTest, NaNStaysVisible) {
  const TestContext context(1);
  const MatrixShape shape = {.rows = 1, .cols = 2};
  TestMatrix gate({.dtype = DType::kF32, .shape = shape, .gap = 0});  // NaN
  TestMatrix up({.dtype = DType::kF32, .shape = shape, .gap = 0}, RandomMatrix(shape, 1, 1.0));
  TestMatrix out({.dtype = DType::kF32, .shape = shape, .gap = 0}, RandomMatrix(shape, 2, 1.0));
  SwiGluForward(context.context(), {.gate = gate.view(), .up = up.view(), .activated = out.view()});
  EXPECT_TRUE(std::isnan(out.values()(0, 0)) && std::isnan(out.values()(0, 1)));
}

TEST(SwiGluTest, BitsDoNotDependOnThreadsOrTargetAlsoInPlace) {
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
      const MatrixShape shape = {.rows = 50, .cols = 777};
      const TestMatrix::Options options = {.dtype = dtype, .shape = shape, .gap = 1};
      TestMatrix gate(options, RandomMatrix(shape, 1, 20.0));
      TestMatrix up(options, RandomMatrix(shape, 2, 1.0));
      TestMatrix out(options);
      SwiGluForward(context, {.gate = gate.view(), .up = up.view(), .activated = out.view()});
      SwiGluBackward(context, {.gate = gate.view(),
                               .up = up.view(),
                               .grad_activated = out.view(),
                               .grad_gate = gate.view(),
                               .grad_up = up.view()});
      std::vector<std::byte> bytes;
      for (const TestMatrix* matrix : {&gate, &up, &out}) Append(*matrix, bytes);
      return bytes;
    });
  }
}

}  // namespace
}  // namespace gantry
