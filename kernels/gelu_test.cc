// Goal: both forms and their derivatives against double, far into both tails, in place and on
// slices.
#include "kernels/gelu.h"

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

constexpr GeluForm kForms[] = {GeluForm::kExact, GeluForm::kTanh};
constexpr MatrixShape kShapes[] = {{1, 1}, {3, 3}, {17, 17}, {5, 100}, {40, 768}};

reference::GeluForm ReferenceForm(GeluForm form) {
  return form == GeluForm::kExact ? reference::GeluForm::kExact : reference::GeluForm::kTanh;
}

reference::Matrix Expected(GeluForm form, const reference::Matrix& x) {
  reference::Matrix y(x.rows, x.cols);
  for (size_t i = 0; i < x.values.size(); ++i) {
    y.values[i] = reference::Gelu(ReferenceForm(form), x.values[i]);
  }
  return y;
}

reference::Matrix ExpectedGradient(GeluForm form, const reference::Matrix& x,
                                   const reference::Matrix& grad) {
  reference::Matrix y(x.rows, x.cols);
  for (size_t i = 0; i < x.values.size(); ++i) {
    y.values[i] = grad.values[i] * reference::GeluSlope(ReferenceForm(form), x.values[i]);
  }
  return y;
}

TEST(GeluTest, MatchesReference) {
  const TestContext context(2);
  for (const GeluForm form : kForms) {
    for (const DType dtype : testing::StoredTypes()) {
      for (const MatrixShape shape : kShapes) {
        const TestMatrix::Options options = {.dtype = dtype, .shape = shape, .gap = 3};
        TestMatrix x(options, RandomMatrix(shape, 1, 2.0));
        TestMatrix grad(options, RandomMatrix(shape, 2, 1.0));
        TestMatrix activated(options);
        TestMatrix grad_x(options);
        GeluForward(context.context(),
                    {.form = form, .x = x.view(), .activated = activated.view()});
        GeluBackward(
            context.context(),
            {.form = form, .x = x.view(), .grad_activated = grad.view(), .grad_x = grad_x.view()});
        ExpectNear(activated.values(), Expected(form, x.values()), RoundingOf(dtype, 1), "y");
        ExpectNear(grad_x.values(), ExpectedGradient(form, x.values(), grad.values()),
                   RoundingOf(dtype, 1), "grad_x");
        EXPECT_TRUE(activated.GapsAreIntact() && grad_x.GapsAreIntact());
      }
    }
  }
}

// Element by element, as the header states it: 1e-6 of the larger of the value and 1.
TEST(GeluTest, BothTailsAreExact) {
  const TestContext context(1);
  const MatrixShape shape = {.rows = 1, .cols = 4001};
  reference::Matrix values(1, 4001);
  for (int64_t i = 0; i < 4001; ++i) values(0, i) = static_cast<double>(i - 2000) * 0.01;
  const TestMatrix::Options options = {.dtype = DType::kF32, .shape = shape, .gap = 0};
  TestMatrix x(options, values);
  reference::Matrix ones(1, 4001);
  for (double& one : ones.values) one = 1.0;
  TestMatrix grad(options, ones);
  TestMatrix y(options);
  TestMatrix slope(options);
  for (const GeluForm form : kForms) {
    GeluForward(context.context(), {.form = form, .x = x.view(), .activated = y.view()});
    GeluBackward(
        context.context(),
        {.form = form, .x = x.view(), .grad_activated = grad.view(), .grad_x = slope.view()});
    for (int64_t i = 0; i < 4001; ++i) {
      const double at = x.values()(0, i);
      const double expected = reference::Gelu(ReferenceForm(form), at);
      ASSERT_NEAR(y.values()(0, i), expected, 1e-6 * std::max(1.0, std::abs(expected))) << at;
      ASSERT_NEAR(slope.values()(0, i), reference::GeluSlope(ReferenceForm(form), at), 1e-6) << at;
    }
  }
}

TEST(GeluTest, HugeValuesStayFiniteAndNaNVisible) {
  const TestContext context(1);
  const MatrixShape shape = {.rows = 1, .cols = 5};
  reference::Matrix values(1, 5);
  values.values = {-1e6, 1e6, 0, -0.0, std::numeric_limits<double>::quiet_NaN()};
  const TestMatrix::Options options = {.dtype = DType::kF32, .shape = shape, .gap = 0};
  TestMatrix x(options, values);
  TestMatrix y(options);
  for (const GeluForm form : kForms) {
    GeluForward(context.context(), {.form = form, .x = x.view(), .activated = y.view()});
    EXPECT_EQ(y.values()(0, 0), 0.0);
    EXPECT_EQ(y.values()(0, 1), 1e6);
    EXPECT_EQ(y.values()(0, 2), 0.0);
    EXPECT_EQ(y.values()(0, 3), 0.0);
    EXPECT_TRUE(std::isnan(y.values()(0, 4)));
  }
}

TEST(GeluTest, BitsDoNotDependOnThreadsOrTargetAlsoInPlace) {
  for (const GeluForm form : kForms) {
    for (const DType dtype : testing::StoredTypes()) {
      testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
        const MatrixShape shape = {.rows = 50, .cols = 777};
        const TestMatrix::Options options = {.dtype = dtype, .shape = shape, .gap = 1};
        TestMatrix x(options, RandomMatrix(shape, 1, 4.0));
        TestMatrix y(options);
        GeluForward(context, {.form = form, .x = x.view(), .activated = y.view()});
        GeluBackward(context,
                     {.form = form, .x = x.view(), .grad_activated = y.view(), .grad_x = x.view()});
        std::vector<std::byte> bytes;
        for (const TestMatrix* matrix : {&x, &y}) Append(*matrix, bytes);
        return bytes;
      });
    }
  }
}

}  // namespace
}  // namespace gantry
