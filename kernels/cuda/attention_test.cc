// Attention over packed documents against a reference in double. Tolerances are relative to the
// largest value: forward two roundings of the type (probabilities, result), backward four. The
// reference's gradients are those of kernels/testing/reference.h where both can compute them.
#include "kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

using cuda::AttentionMask;
using reference::Matrix;

struct Case {
  DType dtype;
  std::vector<int32_t> lengths;
  int64_t query_heads;
  int64_t kv_heads;
  int64_t key_dim;
  int64_t value_dim;
  AttentionMask mask = AttentionMask::kCausal;
  int64_t window = 0;
  double spread = 1.0;         // of queries
  double backward_factor = 4;  // of a rounding
};

struct Problem {
  Case c;
  std::vector<int32_t> starts;
  double scale = 0;
  Matrix q, k, v, grad_out;

  int64_t rows() const { return starts.back(); }
  int64_t longest() const { return *std::ranges::max_element(c.lengths); }
};

Problem ProblemOf(const Case& c) {
  Problem p{.c = c, .starts = {0}, .q = {}, .k = {}, .v = {}, .grad_out = {}};
  for (const int32_t length : c.lengths) p.starts.push_back(p.starts.back() + length);
  p.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.key_dim)));
  const auto stored = [&](int64_t heads, int64_t dim, uint64_t stream, double spread) {
    const MatrixShape shape{.rows = p.rows(), .cols = heads * dim};
    return DeviceMatrix({.dtype = c.dtype, .rows = shape.rows, .cols = shape.cols},
                        RandomMatrix(shape, stream, spread))
        .values();
  };
  p.q = stored(c.query_heads, c.key_dim, 1, c.spread);
  p.k = stored(c.kv_heads, c.key_dim, 2, 1.0);
  p.v = stored(c.kv_heads, c.value_dim, 3, 1.0);
  p.grad_out = stored(c.query_heads, c.value_dim, 4, 1.0);
  return p;
}

struct Results {
  Matrix out, log_sum_exp, grad_q, grad_k, grad_v;
};

// One query of one head.
void AddQuery(const Problem& p, int64_t begin, int64_t length, int64_t i, int64_t head,
              Results& r) {
  const Case& c = p.c;
  const int64_t q_col = head * c.key_dim;
  const int64_t out_col = head * c.value_dim;
  const int64_t kv = head / (c.query_heads / c.kv_heads);
  std::vector<double> weights(static_cast<size_t>(length),
                              -std::numeric_limits<double>::infinity());
  double maximum = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < length; ++j) {
    if (c.mask == AttentionMask::kCausal && j > i) continue;
    if (c.window > 0 && j <= i - c.window) continue;
    double score = 0;
    for (int64_t d = 0; d < c.key_dim; ++d) {
      score += p.scale * p.q(begin + i, q_col + d) * p.k(begin + j, kv * c.key_dim + d);
    }
    weights[static_cast<size_t>(j)] = score;
    maximum = std::max(maximum, score);
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - maximum);
  r.log_sum_exp(head, begin + i) = maximum + std::log(sum);
  std::vector<double> grads(weights.size());
  double mean = 0;
  for (int64_t j = 0; j < length; ++j) {
    double& weight = weights[static_cast<size_t>(j)];
    weight /= sum;
    for (int64_t d = 0; d < c.value_dim; ++d) {
      const double grad = p.grad_out(begin + i, out_col + d);
      r.out(begin + i, out_col + d) += weight * p.v(begin + j, kv * c.value_dim + d);
      grads[static_cast<size_t>(j)] += grad * p.v(begin + j, kv * c.value_dim + d);
      r.grad_v(begin + j, kv * c.value_dim + d) += weight * grad;
    }
    mean += weight * grads[static_cast<size_t>(j)];
  }
  for (int64_t j = 0; j < length; ++j) {
    const auto at = static_cast<size_t>(j);
    const double grad = weights[at] * (grads[at] - mean) * p.scale;
    for (int64_t d = 0; d < c.key_dim; ++d) {
      r.grad_q(begin + i, q_col + d) += grad * p.k(begin + j, kv * c.key_dim + d);
      r.grad_k(begin + j, kv * c.key_dim + d) += grad * p.q(begin + i, q_col + d);
    }
  }
}

Results InDouble(const Problem& p) {
  Results r{.out = Matrix(p.rows(), p.c.query_heads * p.c.value_dim),
            .log_sum_exp = Matrix(p.c.query_heads, p.rows()),
            .grad_q = Matrix(p.rows(), p.q.cols),
            .grad_k = Matrix(p.rows(), p.k.cols),
            .grad_v = Matrix(p.rows(), p.v.cols)};
  for (size_t d = 0; d < p.c.lengths.size(); ++d) {
    for (int64_t i = 0; i < p.c.lengths[d]; ++i) {
      for (int64_t head = 0; head < p.c.query_heads; ++head) {
        AddQuery(p, p.starts[d], p.c.lengths[d], i, head, r);
      }
    }
  }
  return r;
}

// Queries, keys and values as slices of one fused activation.
Results OnDevice(const Problem& p) {
  const Case& c = p.c;
  Results r;
  const int64_t rows = p.rows();
  const int64_t qkv_cols = p.q.cols + p.k.cols + p.v.cols;
  Matrix fused(rows, qkv_cols);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < qkv_cols; ++j) {
      fused(i, j) = j < p.q.cols              ? p.q(i, j)
                    : j < p.q.cols + p.k.cols ? p.k(i, j - p.q.cols)
                                              : p.v(i, j - p.q.cols - p.k.cols);
    }
  }
  const DeviceMatrix::Options wide{.dtype = c.dtype, .rows = rows, .cols = qkv_cols, .gap = 8};
  const DeviceMatrix::Options narrow{
      .dtype = c.dtype, .rows = rows, .cols = p.grad_out.cols, .gap = 16, .offset = 8};
  DeviceMatrix qkv(wide, fused);
  DeviceMatrix grad_out(narrow, p.grad_out);
  const auto split = [&](DeviceMatrix& matrix, int which) {
    const int64_t first = which == 0 ? 0 : which == 1 ? p.q.cols : p.q.cols + p.k.cols;
    const int64_t cols = which == 0 ? p.q.cols : which == 1 ? p.k.cols : p.v.cols;
    return matrix.view().Columns(first, cols);
  };
  const cuda::AttentionLayout layout{.query_heads = c.query_heads,
                                     .kv_heads = c.kv_heads,
                                     .key_dim = c.key_dim,
                                     .value_dim = c.value_dim,
                                     .scale = static_cast<float>(p.scale),
                                     .mask = c.mask,
                                     .window = c.window,
                                     .starts = p.starts,
                                     .longest = p.longest()};
  const auto compute = [&](const DeviceRun& run) {
    DeviceMatrix out(narrow, run.poison);
    DeviceMatrix grads(wide, run.poison);
    DeviceMatrix log_sum_exp({.dtype = DType::kF32, .rows = 1, .cols = c.query_heads * rows},
                             run.poison);
    DeviceBytes workspace(cuda::AttentionBackwardWorkspace(rows, c.query_heads).count(),
                          run.poison);
    EXPECT_EQ(cuda::AttentionForward(run.stream, {.layout = layout,
                                                  .q = split(qkv, 0),
                                                  .k = split(qkv, 1),
                                                  .v = split(qkv, 2),
                                                  .out = out.view(),
                                                  .log_sum_exp = log_sum_exp.span<float>()}),
              0);
    EXPECT_EQ(cuda::AttentionBackward(run.stream, {.layout = layout,
                                                   .q = split(qkv, 0),
                                                   .k = split(qkv, 1),
                                                   .v = split(qkv, 2),
                                                   .out = out.view(),
                                                   .log_sum_exp = log_sum_exp.span<float>(),
                                                   .grad_out = grad_out.view(),
                                                   .grad_q = split(grads, 0),
                                                   .grad_k = split(grads, 1),
                                                   .grad_v = split(grads, 2),
                                                   .workspace = workspace.span()}),
              0);
    std::vector<std::byte> bytes;
    for (const DeviceMatrix* written : {&out, &grads, &log_sum_exp}) {
      written->ExpectIntact();
      written->AppendTo(bytes);
    }
    r.out = out.values();
    r.log_sum_exp = log_sum_exp.values();
    const Matrix all = grads.values();
    r.grad_q = Matrix(rows, p.q.cols);
    r.grad_k = Matrix(rows, p.k.cols);
    r.grad_v = Matrix(rows, p.v.cols);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < p.q.cols; ++j) r.grad_q(i, j) = all(i, j);
      for (int64_t j = 0; j < p.k.cols; ++j) r.grad_k(i, j) = all(i, p.q.cols + j);
      for (int64_t j = 0; j < p.v.cols; ++j) r.grad_v(i, j) = all(i, p.q.cols + p.k.cols + j);
    }
    return bytes;
  };
  c.key_dim > 64 ? ExpectSameOnTwoRuns(compute) : ExpectSameOnEveryRun(compute);
  return r;
}

void Check(const Case& c) {
  SCOPED_TRACE(::testing::Message()
               << c.dtype << ", " << c.query_heads << "/" << c.kv_heads << " heads of " << c.key_dim
               << " and " << c.value_dim << ", window " << c.window);
  const Problem p = ProblemOf(c);
  const Results expected = InDouble(p);
  Results actual = OnDevice(p);
  const auto near = [&](double factor) {
    return Tolerance{.absolute = 1e-5, .relative = RoundingError(c.dtype, factor)};
  };
  ExpectNear(actual.out, expected.out, near(2), "out");
  Matrix flat = expected.log_sum_exp;
  flat.cols = flat.rows * flat.cols;
  flat.rows = 1;
  ExpectNear(actual.log_sum_exp, flat, {.absolute = 1e-5, .relative = 1e-5}, "log_sum_exp");
  ExpectNear(actual.grad_q, expected.grad_q, near(c.backward_factor), "grad_q");
  ExpectNear(actual.grad_k, expected.grad_k, near(c.backward_factor), "grad_k");
  ExpectNear(actual.grad_v, expected.grad_v, near(c.backward_factor), "grad_v");
}

TEST(CudaAttention, TheReferencesAgree) {
  const Problem p = ProblemOf({.dtype = DType::kBF16,
                               .lengths = {9, 9},
                               .query_heads = 4,
                               .kv_heads = 2,
                               .key_dim = 8,
                               .value_dim = 8});
  const Results own = InDouble(p);
  const reference::AttentionInputs inputs{.batch = 2,
                                          .tokens = 9,
                                          .query_heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 8,
                                          .scale = p.scale,
                                          .q = p.q,
                                          .k = p.k,
                                          .v = p.v};
  const reference::AttentionGradients grads = reference::AttentionBackward(inputs, p.grad_out);
  const Tolerance tolerance{.absolute = 1e-12, .relative = 1e-12};
  ExpectNear(own.out, reference::Attention(inputs).out, tolerance, "out");
  ExpectNear(own.grad_q, grads.q, tolerance, "grad_q");
  ExpectNear(own.grad_k, grads.k, tolerance, "grad_k");
  ExpectNear(own.grad_v, grads.v, tolerance, "grad_v");
}

TEST(CudaAttention, PackedDocuments) {
  Check({.dtype = DType::kBF16,
         .lengths = {70, 1, 0, 35},
         .query_heads = 2,
         .kv_heads = 1,
         .key_dim = 16,
         .value_dim = 16});
}

TEST(CudaAttention, WholeTiles) {
  Check({.dtype = DType::kF16,
         .lengths = {128},
         .query_heads = 1,
         .kv_heads = 1,
         .key_dim = 64,
         .value_dim = 64});
}

TEST(CudaAttention, SlidingWindow) {
  for (const int64_t window : {1, 20}) {
    Check({.dtype = DType::kF16,
           .lengths = {5, 139},
           .query_heads = 1,
           .kv_heads = 1,
           .key_dim = 24,
           .value_dim = 40,
           .window = window});
  }
}

TEST(CudaAttention, EveryKeyVisible) {
  Check({.dtype = DType::kF16,
         .lengths = {75, 3},
         .query_heads = 1,
         .kv_heads = 1,
         .key_dim = 8,
         .value_dim = 8,
         .mask = AttentionMask::kFull});
}

// Each padded pair of dimensions, not all of it used.
TEST(CudaAttention, LargerHeads) {
  Check({.dtype = DType::kBF16,
         .lengths = {67},
         .query_heads = 2,
         .kv_heads = 1,
         .key_dim = 128,
         .value_dim = 104});
  Check({.dtype = DType::kBF16,
         .lengths = {66},
         .query_heads = 1,
         .kv_heads = 1,
         .key_dim = 192,
         .value_dim = 128});
  Check({.dtype = DType::kF16,
         .lengths = {66},
         .query_heads = 1,
         .kv_heads = 1,
         .key_dim = 248,
         .value_dim = 256});
}

// Scores whose exponentials overflow without the maximum. Gradients of scores are small differences
// here, multiplied by large queries.
TEST(CudaAttention, LargeScores) {
  Check({.dtype = DType::kF16,
         .lengths = {70},
         .query_heads = 1,
         .kv_heads = 1,
         .key_dim = 16,
         .value_dim = 16,
         .spread = 40.0,
         .backward_factor = 10});
}

}  // namespace
}  // namespace gantry::testing
