// Goal: gather and scatter-add against the reference, with repeated and absent tokens, both
// gradient types, and both accumulate modes.
#include "kernels/embedding.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/random.h"
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
using testing::TestWorkspace;

// Skewed: low ids often, most high ids never.
std::vector<int32_t> RandomTokens(int64_t count, int64_t vocabulary) {
  const Random random({.seed = testing::kSeed, .stream = 99});
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t n = 0; n < tokens.size(); ++n) {
    const double u = random.Uniform(n);
    tokens[n] = static_cast<int32_t>(u * u * u * static_cast<double>(vocabulary));
  }
  return tokens;
}

TEST(EmbeddingTest, ForwardGathersRows) {
  const TestContext context(2);
  const MatrixShape table_shape = {.rows = 29, .cols = 37};
  const std::vector<int32_t> tokens = RandomTokens(50, 29);
  for (const DType table_type : testing::StoredTypes()) {
    for (const DType type : testing::StoredTypes()) {
      TestMatrix table({.dtype = table_type, .shape = table_shape, .gap = 1},
                       RandomMatrix(table_shape, 1, 1.0));
      TestMatrix embedded({.dtype = type, .shape = {.rows = 50, .cols = 37}, .gap = 2});
      EmbeddingForward(context.context(),
                       {.tokens = tokens, .table = table.view(), .embedded = embedded.view()});
      const reference::Matrix rows = table.values();
      reference::Matrix expected(50, 37);
      for (int64_t n = 0; n < 50; ++n) {
        for (int64_t i = 0; i < 37; ++i) expected(n, i) = rows(tokens[static_cast<size_t>(n)], i);
      }
      ExpectNear(embedded.values(), expected, RoundingOf(type, type == table_type ? 0 : 0.6),
                 "embedded");
      EXPECT_TRUE(embedded.GapsAreIntact());
    }
  }
}

struct BackwardCase {
  int64_t tokens;
  MatrixShape table;
  DType type = DType::kF32;
  DType grad_type = DType::kF32;
  Accumulate accumulate = Accumulate::kOverwrite;
};

void RunBackward(const TestContext& context, const BackwardCase& c) {
  const std::vector<int32_t> tokens = RandomTokens(c.tokens, c.table.rows);
  const MatrixShape shape = {.rows = c.tokens, .cols = c.table.cols};
  TestMatrix grad({.dtype = c.type, .shape = shape, .gap = 1}, RandomMatrix(shape, 1, 1.0));
  const TestMatrix::Options options = {.dtype = c.grad_type, .shape = c.table, .gap = 3};
  TestMatrix grad_table = c.accumulate == Accumulate::kAdd
                              ? TestMatrix(options, RandomMatrix(c.table, 2, 1.0))
                              : TestMatrix(options);
  reference::Matrix expected = reference::EmbeddingBackward(tokens, grad.values(), c.table.rows);
  if (c.accumulate == Accumulate::kAdd) {
    const reference::Matrix before = grad_table.values();
    for (size_t i = 0; i < before.values.size(); ++i) expected.values[i] += before.values[i];
  }
  const TestWorkspace workspace(EmbeddingBackwardWorkspace(c.tokens));
  EmbeddingBackward(context.context(), {.tokens = tokens,
                                        .grad_embedded = grad.view(),
                                        .grad_table = grad_table.view(),
                                        .accumulate = c.accumulate,
                                        .workspace = workspace.span()});
  ExpectNear(grad_table.values(), expected, RoundingOf(c.grad_type, 1), "grad_table");
  EXPECT_TRUE(grad_table.GapsAreIntact());
}

TEST(EmbeddingTest, BackwardMatchesReference) {
  const TestContext context(2);
  const BackwardCase sizes[] = {{.tokens = 0, .table = {3, 5}},
                                {.tokens = 1, .table = {1, 1}},
                                {.tokens = 17, .table = {3, 3}},
                                {.tokens = 100, .table = {1000, 17}},
                                {.tokens = 300, .table = {40, 530}}};
  for (BackwardCase c : sizes) {
    for (const DType type : testing::StoredTypes()) {
      for (const DType grad_type : testing::StoredTypes()) {
        for (const Accumulate accumulate : {Accumulate::kOverwrite, Accumulate::kAdd}) {
          c.type = type;
          c.grad_type = grad_type;
          c.accumulate = accumulate;
          RunBackward(context, c);
        }
      }
    }
  }
}

TEST(EmbeddingTest, BitsDoNotDependOnThreadsOrTarget) {
  const std::vector<int32_t> tokens = RandomTokens(500, 60);
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
      const MatrixShape shape = {.rows = 500, .cols = 300};
      TestMatrix grad({.dtype = dtype, .shape = shape, .gap = 0}, RandomMatrix(shape, 1, 1.0));
      TestMatrix grad_table({.dtype = dtype, .shape = {.rows = 60, .cols = 300}, .gap = 0});
      const TestWorkspace workspace(EmbeddingBackwardWorkspace(500));
      EmbeddingBackward(context, {.tokens = tokens,
                                  .grad_embedded = grad.view(),
                                  .grad_table = grad_table.view(),
                                  .accumulate = Accumulate::kOverwrite,
                                  .workspace = workspace.span()});
      std::vector<std::byte> bytes;
      Append(grad_table, bytes);
      return bytes;
    });
  }
}

TEST(EmbeddingDeathTest, TokensMustBeInTheTable) {
  const TestContext context(1);
  TestMatrix table({.dtype = DType::kF32, .shape = {.rows = 4, .cols = 4}, .gap = 0});
  TestMatrix embedded({.dtype = DType::kF32, .shape = {.rows = 1, .cols = 4}, .gap = 0});
  for (const int32_t token : {-1, 4}) {
    const std::vector<int32_t> tokens = {token};
    EXPECT_DEATH(
        EmbeddingForward(context.context(),
                         {.tokens = tokens, .table = table.view(), .embedded = embedded.view()}),
        "vocabulary 4");
  }
}

}  // namespace
}  // namespace gantry
