#include "trainer/nn/testing/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace gantry {
namespace {

void RotateHead(double* head, int64_t position, const ReferencePositions& positions) {
  const size_t half = positions.frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * positions.frequencies[i];
    const double cos = positions.magnitude * std::cos(angle);
    const double sin = positions.magnitude * std::sin(angle);
    const double first = head[i];
    const double second = head[i + half];
    head[i] = first * cos - second * sin;
    head[i + half] = second * cos + first * sin;
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

std::vector<double> ReferenceAttention(std::vector<double> qkv, const AttentionShape& shape,
                                       const ReferencePositions& positions) {
  const int64_t dim = shape.head_dim;
  const int64_t heads = shape.query_heads + shape.kv_heads;
  const int64_t stride = (heads + shape.kv_heads) * dim;
  const int64_t group = shape.query_heads / shape.kv_heads;
  const int64_t rows = shape.batch * shape.tokens;
  std::vector<int64_t> starts;  // of each row's document
  for (int64_t row = 0; row < rows; ++row) {
    int64_t start = row / shape.tokens * shape.tokens;
    for (const int32_t document : positions.documents) {
      if (document <= row) start = document;
    }
    starts.push_back(start);
    for (int64_t h = 0; h < heads; ++h) {
      RotateHead(qkv.data() + row * stride + h * dim, row - start, positions);
    }
  }
  std::vector<double> out(static_cast<size_t>(rows * shape.query_heads * dim));
  for (int64_t row = 0; row < rows; ++row) {
    int64_t first = starts[static_cast<size_t>(row)];
    if (shape.window > 0) first = std::max(first, row - shape.window + 1);
    for (int64_t h = 0; h < shape.query_heads; ++h) {
      const double* keys = qkv.data() + first * stride + (shape.query_heads + h / group) * dim;
      AttendRow({.query = qkv.data() + row * stride + h * dim,
                 .first_key = keys,
                 .first_value = keys + shape.kv_heads * dim,
                 .row_stride = stride,
                 .dim = dim},
                row - first + 1, out.data() + (row * shape.query_heads + h) * dim);
    }
  }
  return out;
}

std::vector<double> ReferenceFrequencies(double theta, int64_t head_dim) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    frequencies.push_back(
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  }
  return frequencies;
}

}  // namespace gantry
