// SwiGLU on the device: bit for bit what the host computes (f32, bf16); f16 against the reference
// in double, within one rounding.
#include "kernels/cuda/swiglu.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/swiglu.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

struct Case {
  int64_t rows;
  int64_t cols;
  int64_t gap;
  int64_t offset;
};
constexpr Case kCases[] = {{0, 3, 0, 0},  {1, 1, 0, 0},     {3, 7, 1, 0},  {257, 8, 0, 0},
                           {5, 33, 7, 8}, {2, 2049, 7, 16}, {3, 40, 0, 1}, {9, 264, 264, 0}};

// Gates wide enough for the exponential's ends.
reference::Matrix Gates(const MatrixShape& shape) {
  reference::Matrix gates = RandomMatrix(shape, 1, 4.0);
  for (size_t i = 0; i < gates.values.size(); i += 5) gates.values[i] *= 30;
  return gates;
}

void Check(const Case& c, DType dtype) {
  SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.cols << ", " << dtype);
  const MatrixShape shape{.rows = c.rows, .cols = c.cols};
  const DeviceMatrix::Options options{
      .dtype = dtype, .rows = c.rows, .cols = c.cols, .gap = c.gap, .offset = c.offset};
  DeviceMatrix gate(options, Gates(shape));
  DeviceMatrix up(options, RandomMatrix(shape, 2, 1.0));
  DeviceMatrix grad(options, RandomMatrix(shape, 3, 1.0));
  std::vector<reference::Matrix> results;
  const auto run_with = [&](std::byte poison, const auto& forward, const auto& backward) {
    DeviceMatrix activated(options, poison);
    DeviceMatrix grad_gate(options, poison);
    DeviceMatrix grad_up = grad;  // in place
    forward(SwiGluForwardArgs{.gate = gate.view(), .up = up.view(), .activated = activated.view()});
    backward(SwiGluBackwardArgs{.gate = gate.view(),
                                .up = up.view(),
                                .grad_activated = grad_up.view(),
                                .grad_gate = grad_gate.view(),
                                .grad_up = grad_up.view()});
    std::vector<std::byte> bytes;
    results.clear();
    for (const DeviceMatrix* out : {&activated, &grad_gate, &grad_up}) {
      out->ExpectIntact();
      out->AppendTo(bytes);
      results.push_back(out->values());
    }
    return bytes;
  };
  const std::vector<std::byte> device = ExpectSameOnEveryRun([&](const DeviceRun& run) {
    return run_with(
        run.poison,
        [&](const SwiGluForwardArgs& args) { EXPECT_EQ(cuda::SwiGluForward(run.stream, args), 0); },
        [&](const SwiGluBackwardArgs& args) {
          EXPECT_EQ(cuda::SwiGluBackward(run.stream, args), 0);
        });
  });
  if (dtype == DType::kF16) {
    const auto exact = reference::SwiGluBackward(gate.values(), up.values(), grad.values());
    const Tolerance tolerance{.absolute = 0, .relative = RoundingError(dtype, 1)};
    ExpectNear(results[0], reference::SwiGlu(gate.values(), up.values()), tolerance, "activated");
    ExpectNear(results[1], exact.gate, tolerance, "grad_gate");
    ExpectNear(results[2], exact.up, tolerance, "grad_up");
    return;
  }
  const TestContext host(1);
  EXPECT_TRUE(device ==
              run_with(
                  std::byte{0xFF},
                  [&](const SwiGluForwardArgs& args) { SwiGluForward(host.context(), args); },
                  [&](const SwiGluBackwardArgs& args) { SwiGluBackward(host.context(), args); }));
}

TEST(CudaSwiGlu, BitsAreThoseOfTheHost) {
  for (const Case& c : kCases) {
    for (const DType dtype : DeviceTypes()) {
      Check(c, dtype);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
