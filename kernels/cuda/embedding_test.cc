// Gathering is exact; gradients are bit for bit the host's (f32, bf16), f16 within a rounding of
// the reference in double.
#include "kernels/cuda/embedding.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/random.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/embedding.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

struct Case {
  int64_t tokens;
  int64_t vocabulary;
  int64_t cols;
  int64_t gap;
  int64_t offset;
};
// One token often, all tokens once, tokens that never occur; more tokens than a tile holds.
constexpr Case kCases[] = {{0, 3, 8, 0, 0},     {1, 1, 1, 0, 0},     {40, 3, 7, 1, 0},
                           {300, 11, 16, 8, 0}, {33, 1000, 9, 0, 1}, {5, 4, 1032, 0, 8},
                           {1025, 40, 8, 0, 0}, {64, 1, 24, 0, 0}};

std::vector<int32_t> Tokens(const Case& c) {
  const Random random({.seed = kSeed, .stream = 9});
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < c.tokens; ++i) {
    const auto at = static_cast<uint64_t>(i);
    tokens.push_back(static_cast<int32_t>(random.Below(c.vocabulary, at)));
    if (i % 3 == 0) tokens.back() /= 7;
  }
  return tokens;
}

DeviceMatrix::Options Options(DType dtype, int64_t rows, const Case& c) {
  return {.dtype = dtype, .rows = rows, .cols = c.cols, .gap = c.gap, .offset = c.offset};
}

void CheckForward(const Case& c, DType from, DType to) {
  SCOPED_TRACE(::testing::Message()
               << c.tokens << " tokens, " << c.cols << " columns, " << from << " to " << to);
  const std::vector<int32_t> tokens = Tokens(c);
  DeviceMatrix table(Options(from, c.vocabulary, c),
                     RandomMatrix({.rows = c.vocabulary, .cols = c.cols}, 1, 1.0));
  reference::Matrix rows(c.tokens, c.cols);
  const reference::Matrix stored = table.values();
  for (int64_t n = 0; n < c.tokens; ++n) {
    for (int64_t i = 0; i < c.cols; ++i) {
      rows(n, i) = stored(tokens[static_cast<size_t>(n)], i);
    }
  }
  const DeviceMatrix expected(Options(to, c.tokens, c), rows);
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    DeviceMatrix embedded(Options(to, c.tokens, c), run.poison);
    EXPECT_EQ(
        cuda::EmbeddingForward(
            run.stream, {.tokens = tokens, .table = table.view(), .embedded = embedded.view()}),
        0);
    embedded.ExpectIntact();
    EXPECT_EQ(embedded.values().values, expected.values().values);
    std::vector<std::byte> bytes;
    embedded.AppendTo(bytes);
    return bytes;
  });
}

void CheckBackward(const Case& c, DType from, DType to, Accumulate accumulate) {
  SCOPED_TRACE(::testing::Message()
               << c.tokens << " tokens, " << c.cols << " columns, " << from << " to " << to);
  const std::vector<int32_t> tokens = Tokens(c);
  DeviceMatrix grads(Options(from, c.tokens, c),
                     RandomMatrix({.rows = c.tokens, .cols = c.cols}, 1, 1.0));
  const DeviceMatrix before(Options(to, c.vocabulary, c),
                            RandomMatrix({.rows = c.vocabulary, .cols = c.cols}, 2, 1.0));
  const auto backward = [&](std::byte poison, const auto& call) {
    DeviceMatrix table = accumulate == Accumulate::kAdd
                             ? before
                             : DeviceMatrix(Options(to, c.vocabulary, c), poison);
    DeviceBytes workspace(EmbeddingBackwardWorkspace(c.tokens).count(), poison);
    call(EmbeddingBackwardArgs{.tokens = tokens,
                               .grad_embedded = grads.view(),
                               .grad_table = table.view(),
                               .accumulate = accumulate,
                               .workspace = workspace.span()});
    table.ExpectIntact();
    return table;
  };
  reference::Matrix result;
  const std::vector<std::byte> device = ExpectSameOnEveryRun([&](const DeviceRun& run) {
    const DeviceMatrix table = backward(run.poison, [&](const EmbeddingBackwardArgs& args) {
      EXPECT_EQ(cuda::EmbeddingBackward(run.stream, args), 0);
    });
    result = table.values();
    std::vector<std::byte> bytes;
    table.AppendTo(bytes);
    return bytes;
  });
  if (from == DType::kF16 || to == DType::kF16) {
    reference::Matrix exact = reference::EmbeddingBackward(tokens, grads.values(), c.vocabulary);
    if (accumulate == Accumulate::kAdd) {
      for (size_t i = 0; i < exact.values.size(); ++i) {
        exact.values[i] += before.values().values[i];
      }
    }
    return ExpectNear(result, exact, {.absolute = 0, .relative = RoundingError(to, 1)}, "table");
  }
  const TestContext host(1);
  const DeviceMatrix expected = backward(std::byte{0xFF}, [&](const EmbeddingBackwardArgs& args) {
    EmbeddingBackward(host.context(), args);
  });
  std::vector<std::byte> bytes;
  expected.AppendTo(bytes);
  EXPECT_TRUE(device == bytes);
}

TEST(CudaEmbedding, GathersRows) {
  for (const Case& c : kCases) {
    for (const DType dtype : DeviceTypes()) CheckForward(c, dtype, dtype);
    CheckForward(c, DType::kF32, DType::kBF16);
    if (HasFailure()) return;
  }
}

TEST(CudaEmbedding, GradientsAreThoseOfTheHost) {
  for (const Case& c : kCases) {
    CheckBackward(c, DType::kF32, DType::kF32, Accumulate::kOverwrite);
    CheckBackward(c, DType::kBF16, DType::kF32, Accumulate::kAdd);
    CheckBackward(c, DType::kBF16, DType::kBF16, Accumulate::kAdd);
    CheckBackward(c, DType::kF16, DType::kF16, Accumulate::kOverwrite);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace gantry::testing
