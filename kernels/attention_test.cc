// Goal: attention forward, backward and decode against double, for tokens around the key tile (64)
// and the query tile (128 rows), odd head sizes, and every kind of grouping; q, k and v are slices
// of one fused activation throughout. The same with windows and with several documents a sequence,
// whose results must have the bits of each document alone; and the rows behind a cached part must
// have those of the whole.
#include "kernels/attention.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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
using testing::RoundingOf;
using testing::TestContext;
using testing::TestMatrix;
using testing::TestWorkspace;

reference::Matrix Slice(const reference::Matrix& from, int64_t begin, int64_t cols) {
  reference::Matrix slice(from.rows, cols);
  for (int64_t i = 0; i < from.rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) slice(i, j) = from(i, begin + j);
  }
  return slice;
}

reference::Matrix RowsOf(const reference::Matrix& from, int64_t first, int64_t rows) {
  reference::Matrix some(rows, from.cols);
  const auto begin = from.values.begin() + first * from.cols;
  some.values.assign(begin, begin + rows * from.cols);
  return some;
}

// A fused [q | k | v] activation and everything that attention makes of it.
class Problem {
 public:
  Problem(const AttentionShape& shape, DType dtype, double magnitude,
          std::vector<int32_t> documents = {})
      : Problem(shape, dtype, RandomMatrix(FusedShape(shape), 1, magnitude),
                RandomMatrix(OutShape(shape), 2, 1)) {
    documents_ = std::move(documents);
  }
  Problem(const AttentionShape& shape, DType dtype, const reference::Matrix& qkv,
          const reference::Matrix& grad_out)
      : shape_(shape),
        dtype_(dtype),
        scale_(1 / std::sqrt(static_cast<float>(shape.head_dim))),
        qkv_(Options(4), qkv),
        grad_qkv_(Options(6)),
        out_({.dtype = dtype, .shape = OutShape(shape), .gap = 3}),
        grad_out_({.dtype = dtype, .shape = OutShape(shape), .gap = 1}, grad_out),
        log_sum_exp_(static_cast<size_t>(shape.batch * shape.tokens * shape.query_heads), -1.0f) {}

  // The tokens of one document as a sequence of its own. REQUIRES: one sequence.
  Problem Alone(int64_t first, int64_t tokens) const {
    AttentionShape shape = shape_;
    shape.tokens = tokens;
    return {shape, dtype_, RowsOf(qkv_.values(), first, tokens),
            RowsOf(grad_out_.values(), first, tokens)};
  }
  // Rows first .. of the results are those of `other`, bit for bit.
  void ExpectRows(int64_t first, const Problem& other) const {
    const int64_t rows = other.shape_.tokens;
    EXPECT_EQ(RowsOf(out_.values(), first, rows).values, other.out_.values().values);
    EXPECT_EQ(RowsOf(grad_qkv_.values(), first, rows).values, other.grad_qkv_.values().values);
  }
  // The rows from `cached` on, with the keys and values before them cached.
  reference::Matrix RowsBehind(int64_t cached, const KernelContext& context) {
    AttentionShape shape = shape_;
    shape.tokens -= cached;
    TestMatrix out({.dtype = dtype_, .shape = OutShape(shape), .gap = 2});
    std::vector<float> log_sum_exp(static_cast<size_t>(shape.tokens * shape.query_heads));
    const TestWorkspace workspace(AttentionForwardWorkspace(shape, context.team->threads()));
    AttentionForward(context, {.shape = shape,
                               .scale = scale_,
                               .q = Q(qkv_).Rows(cached, shape.tokens),
                               .k = K(qkv_),
                               .v = V(qkv_),
                               .out = out.view(),
                               .log_sum_exp = log_sum_exp,
                               .workspace = workspace.span(),
                               .cached = cached});
    EXPECT_TRUE(out.GapsAreIntact());
    for (int64_t head = 0; head < shape.query_heads; ++head) {
      EXPECT_EQ(log_sum_exp[static_cast<size_t>(head * shape.tokens)],
                log_sum_exp_[static_cast<size_t>(head * shape_.tokens + cached)]);
    }
    return out.values();
  }
  reference::Matrix LastRows(int64_t first) const {
    return RowsOf(out_.values(), first, shape_.tokens - first);
  }

  void Forward(const KernelContext& context) {
    const TestWorkspace workspace(AttentionForwardWorkspace(shape_, context.team->threads()));
    AttentionForward(context, {.shape = shape_,
                               .scale = scale_,
                               .q = Q(qkv_),
                               .k = K(qkv_),
                               .v = V(qkv_),
                               .out = out_.view(),
                               .log_sum_exp = log_sum_exp_,
                               .workspace = workspace.span(),
                               .documents = documents_});
  }
  void Backward(const KernelContext& context) {
    const TestWorkspace workspace(AttentionBackwardWorkspace(shape_, context.team->threads()));
    AttentionBackward(context, {.shape = shape_,
                                .scale = scale_,
                                .q = Q(qkv_),
                                .k = K(qkv_),
                                .v = V(qkv_),
                                .out = out_.view(),
                                .log_sum_exp = log_sum_exp_,
                                .grad_out = grad_out_.view(),
                                .grad_q = Q(grad_qkv_),
                                .grad_k = K(grad_qkv_),
                                .grad_v = V(grad_qkv_),
                                .workspace = workspace.span(),
                                .documents = documents_});
  }

  reference::AttentionInputs Reference() const {
    const reference::Matrix fused = qkv_.values();
    return {.batch = shape_.batch,
            .tokens = shape_.tokens,
            .query_heads = shape_.query_heads,
            .kv_heads = shape_.kv_heads,
            .head_dim = shape_.head_dim,
            .scale = scale_,
            .q = Slice(fused, 0, QCols()),
            .k = Slice(fused, QCols(), KCols()),
            .v = Slice(fused, QCols() + KCols(), KCols()),
            .window = shape_.window,
            .documents = documents_};
  }
  void ExpectForward(double factor) const {
    const reference::AttentionOutputs expected = reference::Attention(Reference());
    ExpectNear(out_.values(), expected.out, RoundingOf(dtype_, factor), "out");
    for (size_t i = 0; i < log_sum_exp_.size(); ++i) {
      ASSERT_NEAR(log_sum_exp_[i], expected.log_sum_exp[i],
                  1e-5 * (1 + std::abs(expected.log_sum_exp[i])))
          << "log_sum_exp " << i;
    }
    EXPECT_TRUE(out_.GapsAreIntact());
  }
  void ExpectBackward() const {
    const reference::AttentionGradients expected =
        reference::AttentionBackward(Reference(), grad_out_.values());
    const reference::Matrix grads = grad_qkv_.values();
    testing::Tolerance tolerance = RoundingOf(dtype_, 4);
    tolerance.absolute = 3e-6;  // one visible key: the exact gradients of q and k are 0
    ExpectNear(Slice(grads, 0, QCols()), expected.q, tolerance, "grad_q");
    ExpectNear(Slice(grads, QCols(), KCols()), expected.k, tolerance, "grad_k");
    ExpectNear(Slice(grads, QCols() + KCols(), KCols()), expected.v, tolerance, "grad_v");
    EXPECT_TRUE(grad_qkv_.GapsAreIntact());
  }
  std::vector<std::byte> Bytes() const {
    std::vector<std::byte> bytes;
    Append(out_, bytes);
    Append(grad_qkv_, bytes);
    Append(log_sum_exp_, bytes);
    return bytes;
  }

 private:
  int64_t QCols() const { return shape_.query_heads * shape_.head_dim; }
  int64_t KCols() const { return shape_.kv_heads * shape_.head_dim; }
  static MatrixShape FusedShape(const AttentionShape& shape) {
    return {.rows = shape.batch * shape.tokens,
            .cols = (shape.query_heads + 2 * shape.kv_heads) * shape.head_dim};
  }
  static MatrixShape OutShape(const AttentionShape& shape) {
    return {.rows = shape.batch * shape.tokens, .cols = shape.query_heads * shape.head_dim};
  }
  TestMatrix::Options Options(int64_t gap) const {
    return {.dtype = dtype_, .shape = FusedShape(shape_), .gap = gap};
  }
  MatrixView Q(TestMatrix& fused) const { return fused.view().Columns(0, QCols()); }
  MatrixView K(TestMatrix& fused) const { return fused.view().Columns(QCols(), KCols()); }
  MatrixView V(TestMatrix& fused) const { return fused.view().Columns(QCols() + KCols(), KCols()); }

  AttentionShape shape_;
  DType dtype_;
  float scale_;
  TestMatrix qkv_;
  TestMatrix grad_qkv_;
  TestMatrix out_;
  TestMatrix grad_out_;
  std::vector<float> log_sum_exp_;
  std::vector<int32_t> documents_;
};

std::string Describe(const AttentionShape& shape, DType dtype) {
  return StrCat("B", shape.batch, " T", shape.tokens, " Hq", shape.query_heads, " Hkv",
                shape.kv_heads, " D", shape.head_dim, " ", dtype);
}

AttentionShape Shape(int64_t batch, int64_t tokens, MatrixShape heads, int64_t head_dim) {
  return {.batch = batch,
          .tokens = tokens,
          .query_heads = heads.rows,
          .kv_heads = heads.cols,
          .head_dim = head_dim};
}

std::vector<AttentionShape> Shapes() {
  return {Shape(1, 1, {1, 1}, 1),    Shape(2, 3, {2, 1}, 3),    Shape(1, 17, {3, 3}, 17),
          Shape(2, 63, {4, 2}, 16),  Shape(1, 64, {2, 2}, 32),  Shape(1, 65, {6, 2}, 20),
          Shape(1, 129, {2, 1}, 64), Shape(1, 200, {9, 3}, 24), Shape(3, 70, {1, 1}, 8),
          Shape(1, 150, {1, 1}, 80), Shape(1, 5, {130, 1}, 4)};
}

TEST(AttentionTest, ForwardAndBackwardMatchReference) {
  const TestContext context(2);
  for (const AttentionShape& shape : Shapes()) {
    for (const DType dtype : testing::StoredTypes()) {
      SCOPED_TRACE(Describe(shape, dtype));
      Problem problem(shape, dtype, 1.0);
      problem.Forward(context.context());
      problem.ExpectForward(2);
      problem.Backward(context.context());
      problem.ExpectBackward();
    }
  }
}

AttentionShape Windowed(AttentionShape shape, int64_t window) {
  shape.window = window;
  return shape;
}

TEST(AttentionTest, WindowsHideOldKeys) {
  const TestContext context(2);
  for (const AttentionShape& shape : Shapes()) {
    for (const int64_t window : {1, 2, 20, 63, 64, 65, 100, 1000}) {
      for (const DType dtype : testing::StoredTypes()) {
        if (dtype == DType::kBF16 && window != 20) continue;
        SCOPED_TRACE(StrCat(Describe(shape, dtype), " W", window));
        Problem problem(Windowed(shape, window), dtype, 1.0);
        problem.Forward(context.context());
        problem.ExpectForward(2);
        problem.Backward(context.context());
        problem.ExpectBackward();
      }
    }
  }
}

TEST(AttentionTest, WindowsAsLongAsTheSequenceChangeNoBit) {
  const TestContext context(2);
  for (const AttentionShape& shape : Shapes()) {
    Problem open(shape, DType::kF32, 1.0);
    Problem windowed(Windowed(shape, shape.tokens), DType::kF32, 1.0);
    for (Problem* problem : {&open, &windowed}) {
      problem->Forward(context.context());
      problem->Backward(context.context());
    }
    EXPECT_TRUE(open.Bytes() == windowed.Bytes()) << Describe(shape, DType::kF32);
  }
}

// Lengths around the tiles; starts that are no multiples of them.
std::vector<std::vector<int32_t>> Packings() {
  return {{0}, {0, 1}, {0, 1, 2, 3}, {0, 64}, {0, 63, 128}, {0, 5, 70, 71, 199}, {0, 100, 150}};
}

TEST(AttentionTest, DocumentsSeeThemselvesOnly) {
  const TestContext context(2);
  for (const int64_t window : {0, 3, 70}) {
    for (const DType dtype : testing::StoredTypes()) {
      for (const std::vector<int32_t>& documents : Packings()) {
        SCOPED_TRACE(StrCat(documents.size(), " documents, window ", window, ", ", dtype));
        Problem problem(Windowed(Shape(1, 200, {6, 2}, 20), window), dtype, 1.0, documents);
        problem.Forward(context.context());
        problem.ExpectForward(2);
        problem.Backward(context.context());
        problem.ExpectBackward();
      }
    }
  }
  Problem batch(Shape(2, 70, {2, 1}, 8), DType::kF32, 1.0, {0, 65, 70, 71, 100});
  batch.Forward(context.context());
  batch.ExpectForward(2);
  batch.Backward(context.context());
  batch.ExpectBackward();
}

TEST(AttentionTest, PackedDocumentsHaveTheBitsOfEachAlone) {
  const TestContext context(2);
  for (const int64_t window : {0, 30}) {
    for (const DType dtype : testing::StoredTypes()) {
      for (const std::vector<int32_t>& documents : Packings()) {
        const AttentionShape shape = Windowed(Shape(1, 200, {6, 2}, 20), window);
        Problem packed(shape, dtype, 1.0, documents);
        packed.Forward(context.context());
        packed.Backward(context.context());
        for (size_t i = 0; i < documents.size(); ++i) {
          const int64_t first = documents[i];
          const int64_t end = i + 1 < documents.size() ? documents[i + 1] : 200;
          Problem alone = packed.Alone(first, end - first);
          alone.Forward(context.context());
          alone.Backward(context.context());
          packed.ExpectRows(first, alone);
        }
      }
    }
  }
}

TEST(AttentionTest, RowsBehindACacheHaveTheBitsOfTheWhole) {
  const TestContext context(2);
  for (const int64_t window : {0, 30}) {
    for (const DType dtype : testing::StoredTypes()) {
      Problem problem(Windowed(Shape(1, 200, {6, 2}, 20), window), dtype, 1.0);
      problem.Forward(context.context());
      for (const int64_t cached : {0, 1, 63, 64, 65, 130, 199}) {
        EXPECT_EQ(problem.RowsBehind(cached, context.context()).values,
                  problem.LastRows(cached).values)
            << cached << " cached, window " << window;
      }
    }
  }
}

TEST(AttentionDeathTest, EverySequenceStartsADocument) {
  const TestContext context(1);
  Problem late(Shape(1, 5, {1, 1}, 4), DType::kF32, 1.0, {2});
  EXPECT_DEATH(late.Forward(context.context()), "no document starts at or before 0");
  Problem across(Shape(2, 5, {1, 1}, 4), DType::kF32, 1.0, {0, 3});
  EXPECT_DEATH(across.Forward(context.context()), "has no document that starts with it");
}

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  const TestContext context(2);
  Problem problem(Shape(1, 100, {2, 2}, 16), DType::kF32, 30.0);  // scores of several thousand
  problem.Forward(context.context());
  problem.ExpectForward(200);  // an error of 1e-7 of the score in the exponent
}

TEST(AttentionTest, BitsDoNotDependOnThreadsOrTarget) {
  for (const DType dtype : testing::StoredTypes()) {
    testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
      Problem problem(Shape(2, 150, {6, 3}, 20), dtype, 1.0);
      Problem packed(Windowed(Shape(2, 150, {6, 3}, 20), 40), dtype, 1.0, {0, 70, 150, 155});
      std::vector<std::byte> bytes;
      for (Problem* each : {&problem, &packed}) {
        each->Forward(context);
        each->Backward(context);
        const std::vector<std::byte> own = each->Bytes();
        bytes.insert(bytes.end(), own.begin(), own.end());
      }
      return bytes;
    });
  }
}

TEST(AttentionTest, DecodeMatchesTheLastRowOfAttention) {
  const TestContext context(2);
  for (const AttentionShape& shape : Shapes()) {
    for (const DType dtype : testing::StoredTypes()) {
      SCOPED_TRACE(Describe(shape, dtype));
      const MatrixShape q_shape = {.rows = shape.tokens,
                                   .cols = shape.query_heads * shape.head_dim};
      const MatrixShape k_shape = {.rows = shape.tokens, .cols = shape.kv_heads * shape.head_dim};
      TestMatrix q({.dtype = dtype, .shape = q_shape, .gap = 0}, RandomMatrix(q_shape, 1, 1.0));
      TestMatrix k({.dtype = dtype, .shape = k_shape, .gap = 7}, RandomMatrix(k_shape, 2, 1.0));
      TestMatrix v({.dtype = dtype, .shape = k_shape, .gap = 2}, RandomMatrix(k_shape, 3, 1.0));
      TestMatrix out({.dtype = dtype, .shape = {.rows = 1, .cols = q_shape.cols}, .gap = 3});
      const TestWorkspace workspace(AttentionDecodeWorkspace(shape));
      AttentionDecode(context.context(), {.query_heads = shape.query_heads,
                                          .kv_heads = shape.kv_heads,
                                          .scale = 0.25f,
                                          .q = q.view().Rows(shape.tokens - 1, 1),
                                          .k = k.view(),
                                          .v = v.view(),
                                          .out = out.view(),
                                          .workspace = workspace.span()});
      const reference::Matrix all = reference::Attention({.batch = 1,
                                                          .tokens = shape.tokens,
                                                          .query_heads = shape.query_heads,
                                                          .kv_heads = shape.kv_heads,
                                                          .head_dim = shape.head_dim,
                                                          .scale = 0.25,
                                                          .q = q.values(),
                                                          .k = k.values(),
                                                          .v = v.values()})
                                        .out;
      reference::Matrix expected(1, q_shape.cols);
      for (int64_t i = 0; i < q_shape.cols; ++i) expected(0, i) = all(shape.tokens - 1, i);
      ExpectNear(out.values(), expected, RoundingOf(dtype, 2), "decode");
      EXPECT_TRUE(out.GapsAreIntact());
    }
  }
}

TEST(AttentionTest, DecodeBitsDoNotDependOnThreadsOrTarget) {
  testing::ExpectSameBits(testing::Targets::kAll, [&](const KernelContext& context) {
    const MatrixShape k_shape = {.rows = 333, .cols = 3 * 24};
    const MatrixShape q_shape = {.rows = 1, .cols = 9 * 24};
    TestMatrix q({.dtype = DType::kBF16, .shape = q_shape, .gap = 0}, RandomMatrix(q_shape, 1, 1));
    TestMatrix k({.dtype = DType::kBF16, .shape = k_shape, .gap = 0}, RandomMatrix(k_shape, 2, 1));
    TestMatrix out({.dtype = DType::kBF16, .shape = q_shape, .gap = 0});
    const TestWorkspace workspace(AttentionDecodeWorkspace(Shape(1, 333, {9, 3}, 24)));
    AttentionDecode(context, {.query_heads = 9,
                              .kv_heads = 3,
                              .scale = 0.2f,
                              .q = q.view(),
                              .k = k.view(),
                              .v = k.view(),
                              .out = out.view(),
                              .workspace = workspace.span()});
    std::vector<std::byte> bytes;
    Append(out, bytes);
    return bytes;
  });
}

}  // namespace
}  // namespace gantry
