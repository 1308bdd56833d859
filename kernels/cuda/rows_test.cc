// Moved rows are the same bits; sums of rows are within a rounding of those in double.
#include "kernels/cuda/rows.h"

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
  int64_t tokens;
  int64_t terms;
  int64_t cols;
  int64_t gap;
  int64_t offset;
};
constexpr Case kCases[] = {{0, 1, 8, 0, 0},   {1, 1, 1, 0, 0},    {37, 2, 7, 1, 0},
                           {9, 3, 264, 8, 8}, {300, 2, 16, 0, 0}, {5, 4, 40, 0, 1}};

// A permutation of the slots in which some assignments have none.
std::vector<int32_t> Slots(const Case& c) {
  const auto count = static_cast<int32_t>(c.tokens * c.terms);
  std::vector<int32_t> slots;
  for (int32_t a = 0; a < count; ++a) slots.push_back(a % 11 == 4 ? -1 : count - 1 - a);
  return slots;
}

DeviceMatrix::Options Options(DType dtype, int64_t rows, const Case& c) {
  return {.dtype = dtype, .rows = rows, .cols = c.cols, .gap = c.gap, .offset = c.offset};
}

void CheckMoves(const Case& c, DType dtype) {
  SCOPED_TRACE(::testing::Message() << c.tokens << " x " << c.cols << ", " << dtype);
  const std::vector<int32_t> slots = Slots(c);
  const int64_t count = c.tokens * c.terms;
  DeviceMatrix x(Options(dtype, c.tokens, c),
                 RandomMatrix({.rows = c.tokens, .cols = c.cols}, 1, 1));
  DeviceMatrix rows(Options(dtype, count, c), RandomMatrix({.rows = count, .cols = c.cols}, 2, 1));
  const reference::Matrix x_values = x.values();
  const reference::Matrix row_values = rows.values();
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    DeviceMatrix gathered(Options(dtype, count, c), run.poison);
    DeviceMatrix scattered(Options(dtype, count, c), std::byte{0});
    EXPECT_EQ(cuda::GatherRows(run.stream, {.from = x.view(),
                                            .indices = slots,
                                            .divisor = static_cast<int32_t>(c.terms),
                                            .to = gathered.view()}),
              0);
    EXPECT_EQ(cuda::ScatterRows(run.stream,
                                {.from = rows.view(), .indices = slots, .to = scattered.view()}),
              0);
    const reference::Matrix g = gathered.values();
    const reference::Matrix s = scattered.values();
    for (int64_t a = 0; a < count; ++a) {
      const int32_t slot = slots[static_cast<size_t>(a)];
      for (int64_t i = 0; i < c.cols; ++i) {
        EXPECT_EQ(g(a, i), slot < 0 ? 0.0 : x_values(slot / c.terms, i));
        if (slot >= 0) {
          EXPECT_EQ(s(slot, i), row_values(a, i));
        }
      }
    }
    std::vector<std::byte> bytes;
    for (const DeviceMatrix* out : {&gathered, &scattered}) {
      out->ExpectIntact();
      out->AppendTo(bytes);
    }
    return bytes;
  });
}

void CheckSums(const Case& c, DType dtype, bool weighted) {
  SCOPED_TRACE(::testing::Message() << c.tokens << " x " << c.cols << ", " << dtype);
  const std::vector<int32_t> slots = Slots(c);
  const int64_t count = c.tokens * c.terms;
  DeviceMatrix rows(Options(dtype, count, c), RandomMatrix({.rows = count, .cols = c.cols}, 2, 1));
  DeviceMatrix grad(Options(dtype, c.tokens, c),
                    RandomMatrix({.rows = c.tokens, .cols = c.cols}, 3, 1));
  DeviceMatrix weights({.dtype = DType::kF32, .rows = 1, .cols = count},
                       RandomMatrix({.rows = 1, .cols = count}, 4, 1));
  reference::Matrix sums, grad_rows, grad_weights;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    DeviceMatrix to(Options(dtype, c.tokens, c), run.poison);
    DeviceMatrix grad_from(Options(dtype, count, c), std::byte{0});
    DeviceMatrix grad_weight({.dtype = DType::kF32, .rows = 1, .cols = count}, run.poison);
    cuda::CombineRowsArgs args{
        .from = rows.view(), .indices = slots, .weights = {}, .terms = c.terms, .to = to.view()};
    if (weighted) args.weights = weights.span<float>();
    EXPECT_EQ(cuda::CombineRows(run.stream, args), 0);
    EXPECT_EQ(cuda::CombineRowsBackward(run.stream, {.from = rows.view(),
                                                     .indices = slots,
                                                     .weights = weights.span<float>(),
                                                     .terms = c.terms,
                                                     .grad_to = grad.view(),
                                                     .grad_from = grad_from.view(),
                                                     .grad_weights = grad_weight.span<float>()}),
              0);
    std::vector<std::byte> bytes;
    for (const DeviceMatrix* out : {&to, &grad_from, &grad_weight}) {
      out->ExpectIntact();
      out->AppendTo(bytes);
    }
    sums = to.values();
    grad_rows = grad_from.values();
    grad_weights = grad_weight.values();
    return bytes;
  });
  const reference::Matrix values = rows.values();
  const reference::Matrix grads = grad.values();
  const reference::Matrix factors = weights.values();
  reference::Matrix exact(c.tokens, c.cols);
  reference::Matrix exact_rows(count, c.cols);
  reference::Matrix exact_weights(1, count);
  for (int64_t a = 0; a < count; ++a) {
    const int32_t slot = slots[static_cast<size_t>(a)];
    for (int64_t i = 0; slot >= 0 && i < c.cols; ++i) {
      exact(a / c.terms, i) += (weighted ? factors(0, a) : 1.0) * values(slot, i);
      exact_rows(slot, i) = factors(0, a) * grads(a / c.terms, i);
      exact_weights(0, a) += values(slot, i) * grads(a / c.terms, i);
    }
  }
  const Tolerance rounding{.absolute = 0, .relative = RoundingError(dtype, 1)};
  ExpectNear(sums, exact, rounding, "sums");
  ExpectNear(grad_rows, exact_rows, rounding, "gradient of the rows");
  ExpectNear(grad_weights, exact_weights, {.absolute = 0, .relative = 2e-6}, "of the weights");
}

TEST(CudaRows, MovesAreExact) {
  for (const Case& c : kCases) {
    for (const DType dtype : DeviceTypes()) CheckMoves(c, dtype);
    if (HasFailure()) return;
  }
}

TEST(CudaRows, SumsAreThoseInDouble) {
  for (const Case& c : kCases) {
    for (const DType dtype : DeviceTypes()) CheckSums(c, dtype, c.cols % 2 == 0);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace gantry::testing
