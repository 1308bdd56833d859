#include "trainer/nn/testing/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace gantry {
namespace {

void RotateHead(double* head, int64_t dim, int64_t position, double theta) {
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dim);
    const double angle = static_cast<double>(position) * std::pow(theta, exponent);
    const double first = head[i];
    const double second = head[i + dim / 2];
    head[i] = first * std::cos(angle) - second * std::sin(angle);
    head[i + dim / 2] = second * std::cos(angle) + first * std::sin(angle);
  }
}

double Dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// One row's softmax-weighted sum of values over the keys up to it.
struct HeadView {
  const double* query;
  const double* first_key;  // of the sequence
  const double* first_value;
  int64_t row_stride;
  int64_t dim;
};
void AttendRow(const HeadView& head, int64_t visible, double* out) {
  std::vector<double> scores(static_cast<size_t>(visible));
  double largest = -1e300;
  for (int64_t s = 0; s < visible; ++s) {
    const double score = Dot(head.query, head.first_key + s * head.row_stride, head.dim) /
                         std::sqrt(static_cast<double>(head.dim));
    scores[static_cast<size_t>(s)] = score;
    largest = std::max(largest, score);
  }
  double sum = 0;
  for (double& score : scores) {
    score = std::exp(score - largest);
    sum += score;
  }
  std::fill_n(out, head.dim, 0.0);
  for (int64_t s = 0; s < visible; ++s) {
    for (int64_t i = 0; i < head.dim; ++i) {
      out[i] += scores[static_cast<size_t>(s)] / sum * head.first_value[s * head.row_stride + i];
    }
  }
}

}  // namespace

std::vector<double> ReferenceRopeAttention(std::vector<double> qkv, const AttentionShape& shape,
                                           double theta) {
  const int64_t dim = shape.head_dim;
  const int64_t stride = (shape.query_heads + 2 * shape.kv_heads) * dim;
  const int64_t group = shape.query_heads / shape.kv_heads;
  std::vector<double> out(
      static_cast<size_t>(shape.batch * shape.tokens * shape.query_heads * dim));
  for (int64_t b = 0; b < shape.batch; ++b) {
    double* sequence = qkv.data() + b * shape.tokens * stride;
    for (int64_t t = 0; t < shape.tokens; ++t) {
      for (int64_t h = 0; h < shape.query_heads + shape.kv_heads; ++h) {
        RotateHead(sequence + t * stride + h * dim, dim, t, theta);
      }
    }
    for (int64_t t = 0; t < shape.tokens; ++t) {
      for (int64_t h = 0; h < shape.query_heads; ++h) {
        const double* keys = sequence + (shape.query_heads + h / group) * dim;
        AttendRow({.query = sequence + t * stride + h * dim,
                   .first_key = keys,
                   .first_value = keys + shape.kv_heads * dim,
                   .row_stride = stride,
                   .dim = dim},
                  t + 1, out.data() + ((b * shape.tokens + t) * shape.query_heads + h) * dim);
      }
    }
  }
  return out;
}

}  // namespace gantry
