// Goal: attention forward, backward and decode against double, for tokens around the key tile (64)
// and the query tile (128 rows), odd head sizes, and every kind of grouping; q, k and v are slices
// of one fused activation throughout.
#include "kernels/attention.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
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

// A fused [q | k | v] activation and everything that attention makes of it.
class Problem {
 public:
  Problem(const AttentionShape& shape, DType dtype, double magnitude)
      : shape_(shape),
        dtype_(dtype),
        scale_(1 / std::sqrt(static_cast<float>(shape.head_dim))),
        qkv_(Options(dtype, 4), RandomMatrix(FusedShape(), 1, magnitude)),
        grad_qkv_(Options(dtype, 6)),
        out_({.dtype = dtype, .shape = OutShape(), .gap = 3}),
        grad_out_({.dtype = dtype, .shape = OutShape(), .gap = 1}, RandomMatrix(OutShape(), 2, 1)),
        log_sum_exp_(static_cast<size_t>(shape.batch * shape.tokens * shape.query_heads), -1.0f) {}

  void Forward(const KernelContext& context) {
    const TestWorkspace workspace(AttentionForwardWorkspace(shape_, context.team->threads()));
    AttentionForward(context, {.shape = shape_,
                               .scale = scale_,
                               .q = Q(qkv_),
                               .k = K(qkv_),
                               .v = V(qkv_),
                               .out = out_.view(),
                               .log_sum_exp = log_sum_exp_,
                               .workspace = workspace.span()});
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
                                .workspace = workspace.span()});
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
            .v = Slice(fused, QCols() + KCols(), KCols())};
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
    const testing::Tolerance tolerance = RoundingOf(dtype_, 4);
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
  MatrixShape FusedShape() const {
    return {.rows = shape_.batch * shape_.tokens, .cols = QCols() + 2 * KCols()};
  }
  MatrixShape OutShape() const { return {.rows = shape_.batch * shape_.tokens, .cols = QCols()}; }
  TestMatrix::Options Options(DType dtype, int64_t gap) const {
    return {.dtype = dtype, .shape = FusedShape(), .gap = gap};
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
      problem.Forward(context);
      problem.Backward(context);
      return problem.Bytes();
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
