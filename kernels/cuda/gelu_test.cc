// GELU and its slope against double, within 1e-6 and one rounding of the largest value; adding a
// bias within one rounding.
#include "kernels/cuda/gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/gelu.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

double ExactGelu(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }
double TanhGelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double Value(GeluForm form, double x) {
  return form == GeluForm::kExact ? ExactGelu(x) : TanhGelu(x);
}
double Slope(GeluForm form, double x) {
  constexpr double kStep = 1e-5;
  return (Value(form, x + kStep) - Value(form, x - kStep)) / (2 * kStep);
}

struct Case {
  int64_t rows;
  int64_t cols;
  int64_t gap;
  int64_t offset;
  bool bias;
};
constexpr Case kCases[] = {{0, 3, 0, 0, true},  {1, 1, 0, 0, false},     {3, 7, 1, 0, true},
                           {70, 8, 0, 0, true}, {2, 2049, 7, 16, false}, {3, 40, 0, 1, true},
                           {5, 264, 8, 0, true}};

template <typename Function>
reference::Matrix Map(const reference::Matrix& x, const Function& function) {
  reference::Matrix result = x;
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t col = 0; col < x.cols; ++col) result(row, col) = function(row, col);
  }
  return result;
}

void Check(const Case& c, DType dtype, DType bias_type, GeluForm form) {
  SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.cols << ", " << dtype);
  const MatrixShape shape{.rows = c.rows, .cols = c.cols};
  const DeviceMatrix::Options options{
      .dtype = dtype, .rows = c.rows, .cols = c.cols, .gap = c.gap, .offset = c.offset};
  DeviceMatrix x(options, RandomMatrix(shape, 1, 2.0));
  DeviceMatrix grad(options, RandomMatrix(shape, 2, 1.0));
  DeviceMatrix bias({.dtype = bias_type, .rows = 1, .cols = c.cols},
                    RandomMatrix({.rows = 1, .cols = c.cols}, 3, c.bias ? 1.0 : 0.0));
  std::vector<reference::Matrix> results;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    DeviceMatrix sum(options, run.poison);
    DeviceMatrix y(options, run.poison);
    DeviceMatrix grad_x = grad;  // in place
    std::optional<ConstVectorView> added;
    if (c.bias) added = bias.vector();
    EXPECT_EQ(cuda::AddBias(run.stream, {.x = x.view(), .bias = bias.vector(), .y = sum.view()}),
              0);
    EXPECT_EQ(
        cuda::GeluForward(run.stream, {.form = form, .x = x.view(), .bias = added, .y = y.view()}),
        0);
    EXPECT_EQ(cuda::GeluBackward(run.stream, {.form = form,
                                              .x = x.view(),
                                              .bias = added,
                                              .grad_y = grad_x.view(),
                                              .grad_x = grad_x.view()}),
              0);
    results.clear();
    std::vector<std::byte> bytes;
    for (const DeviceMatrix* out : {&sum, &y, &grad_x}) {
      out->ExpectIntact();
      out->AppendTo(bytes);
      results.push_back(out->values());
    }
    return bytes;
  });
  const reference::Matrix in = x.values();
  const reference::Matrix grads = grad.values();
  const reference::Matrix added = bias.values();
  const auto sum = [&](int64_t row, int64_t col) { return in(row, col) + added(0, col); };
  const Tolerance tolerance{.absolute = 0, .relative = RoundingError(dtype, 1)};
  ExpectNear(results[0], Map(in, sum), tolerance, "x + bias");
  ExpectNear(results[1],
             Map(in, [&](int64_t row, int64_t col) { return Value(form, sum(row, col)); }),
             tolerance, "gelu");
  ExpectNear(results[2],
             Map(in, [&](int64_t row,
                         int64_t col) { return grads(row, col) * Slope(form, sum(row, col)); }),
             tolerance, "gradient");
}

TEST(CudaGelu, IsTheReference) {
  for (const Case& c : kCases) {
    for (const GeluForm form : {GeluForm::kExact, GeluForm::kTanh}) {
      for (const DType dtype : DeviceTypes()) Check(c, dtype, DType::kF32, form);
      Check(c, DType::kBF16, DType::kBF16, form);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
