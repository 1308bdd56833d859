// A sequence fed to the cache in pieces gives, row by row, what attention over all of it gives.
#include "trainer/nn/cached_attention.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/nn/testing/reference_attention.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 5;
constexpr double kTheta = 100.0;
constexpr AttentionShape kShape{
    .batch = 1, .tokens = 11, .query_heads = 4, .kv_heads = 2, .head_dim = 6};
constexpr int64_t kColumns = (kShape.query_heads + 2 * kShape.kv_heads) * kShape.head_dim;
constexpr int64_t kOutColumns = kShape.query_heads * kShape.head_dim;

void CheckPieces(DType dtype, const std::vector<int64_t>& pieces, double tolerance,
                 int64_t window = 0) {
  AttentionShape shape_of = kShape;
  shape_of.window = window;
  SCOPED_TRACE(StrCat("seed ", kSeed, ", ", Name(dtype)));
  const Random random({.seed = kSeed, .stream = 0});
  std::vector<double> qkv;
  for (int64_t i = 0; i < kShape.tokens * kColumns; ++i) {
    qkv.push_back(RoundTo(dtype, random.Normal(static_cast<uint64_t>(i))));
  }
  const std::vector<double> expected = ReferenceAttention(
      qkv, shape_of, {.frequencies = ReferenceFrequencies(kTheta, kShape.head_dim)});

  TestBench bench({.compute_dtype = dtype});
  ASSERT_THAT(bench.store().Seal(), IsOk());
  const std::vector<double> frequencies = RopeFrequencies(kTheta, kShape.head_dim);
  const RopeTable rope({.positions = kShape.tokens, .frequencies = frequencies});
  const int64_t cache_columns = kShape.kv_heads * kShape.head_dim;
  std::vector<std::byte> cache(static_cast<size_t>(2 * kShape.tokens * cache_columns * 4));
  const auto part = [&](int64_t index) {
    return MatrixView{.data = cache.data() + index * kShape.tokens * cache_columns * 4,
                      .dtype = dtype,
                      .rows = kShape.tokens,
                      .cols = cache_columns,
                      .row_stride = cache_columns};
  };
  Tape tape(bench.context(), Tape::Mode::kEvaluation);
  int64_t length = 0;
  for (const int64_t count : pieces) {
    AttentionShape shape = shape_of;
    shape.tokens = count;
    const auto rows = std::span(qkv).subspan(static_cast<size_t>(length * kColumns),
                                             static_cast<size_t>(count * kColumns));
    const CachedSequence sequence{
        .tokens = count, .length = length, .keys = part(0), .values = part(1)};
    const auto out =
        CachedAttention(tape, Var(bench.MakeActivation({count, kColumns}, rows), nullptr),
                        {.shape = shape, .rope = &rope, .sequences = {&sequence, 1}});
    ASSERT_THAT(out, IsOk());
    const std::vector<double> actual = ValuesOf(out->value());
    ASSERT_EQ(static_cast<int64_t>(actual.size()), count * kOutColumns);
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[static_cast<size_t>(length * kOutColumns) + i], tolerance)
          << "token " << length << " on, element " << i;
    }
    length += count;
  }
  EXPECT_EQ(length, kShape.tokens);
}

TEST(CachedAttentionTest, AllAtOnce) {
  CheckPieces(DType::kF32, {11}, 1e-5);
  CheckPieces(DType::kBF16, {11}, 3e-2);
}

TEST(CachedAttentionTest, OneByOne) {
  const std::vector<int64_t> ones(11, 1);
  CheckPieces(DType::kF32, ones, 1e-5);
  CheckPieces(DType::kBF16, ones, 3e-2);
}

TEST(CachedAttentionTest, PromptTokensAndAnotherPrompt) {
  CheckPieces(DType::kF32, {4, 1, 1, 5}, 1e-5);
  CheckPieces(DType::kBF16, {4, 1, 1, 5}, 3e-2);
}

TEST(CachedAttentionTest, Windows) {
  for (const int64_t window : {1, 3, 11, 20}) {
    CheckPieces(DType::kF32, {11}, 1e-5, window);
    CheckPieces(DType::kF32, {4, 1, 1, 5}, 1e-5, window);
    CheckPieces(DType::kBF16, {2, 7, 1, 1}, 3e-2, window);
  }
}

}  // namespace
}  // namespace gantry
