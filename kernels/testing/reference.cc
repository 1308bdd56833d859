#include "kernels/testing/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <vector>

namespace gantry::reference {

Matrix Transposed(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) t(j, i) = a(i, j);
  }
  return t;
}

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.cols; ++k) {
      for (int64_t j = 0; j < b.cols; ++j) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}

namespace {

double InverseRms(const Matrix& h, int64_t row, double epsilon) {
  double squares = 0;
  for (int64_t i = 0; i < h.cols; ++i) squares += h(row, i) * h(row, i);
  return 1 / std::sqrt(squares / static_cast<double>(h.cols) + epsilon);
}

}  // namespace

Matrix RmsNorm(const Matrix& h, const Matrix& weight, double epsilon) {
  Matrix y(h.rows, h.cols);
  for (int64_t row = 0; row < h.rows; ++row) {
    const double rstd = InverseRms(h, row, epsilon);
    for (int64_t i = 0; i < h.cols; ++i) y(row, i) = h(row, i) * rstd * weight(0, i);
  }
  return y;
}

RmsNormGradients RmsNormBackward(const Matrix& h, const Matrix& weight, double epsilon,
                                 const Matrix& grad_y) {
  RmsNormGradients grads = {.h = Matrix(h.rows, h.cols), .weight = Matrix(1, h.cols)};
  for (int64_t row = 0; row < h.rows; ++row) {
    const double rstd = InverseRms(h, row, epsilon);
    double mean = 0;
    for (int64_t i = 0; i < h.cols; ++i) {
      mean += grad_y(row, i) * weight(0, i) * h(row, i) * rstd / static_cast<double>(h.cols);
      grads.weight(0, i) += grad_y(row, i) * h(row, i) * rstd;
    }
    for (int64_t i = 0; i < h.cols; ++i) {
      grads.h(row, i) = rstd * (grad_y(row, i) * weight(0, i) - h(row, i) * rstd * mean);
    }
  }
  return grads;
}

namespace {

// (h - mean) / deviation, and the reciprocal of the deviation.
struct Standardised {
  std::vector<double> values;
  double rstd;
};
Standardised Standardise(const Matrix& h, int64_t row, double epsilon) {
  const auto cols = static_cast<double>(h.cols);
  double mean = 0;
  for (int64_t i = 0; i < h.cols; ++i) mean += h(row, i) / cols;
  double variance = 0;
  for (int64_t i = 0; i < h.cols; ++i) variance += std::pow(h(row, i) - mean, 2) / cols;
  Standardised result = {.values = {}, .rstd = 1 / std::sqrt(variance + epsilon)};
  for (int64_t i = 0; i < h.cols; ++i) {
    result.values.push_back((h(row, i) - mean) * result.rstd);
  }
  return result;
}

}  // namespace

Matrix LayerNorm(const Matrix& h, const LayerNormWeights& weights) {
  Matrix y(h.rows, h.cols);
  for (int64_t row = 0; row < h.rows; ++row) {
    const Standardised standardised = Standardise(h, row, weights.epsilon);
    for (int64_t i = 0; i < h.cols; ++i) {
      y(row, i) =
          standardised.values[static_cast<size_t>(i)] * weights.weight(0, i) + weights.bias(0, i);
    }
  }
  return y;
}

LayerNormGradients LayerNormBackward(const Matrix& h, const LayerNormWeights& weights,
                                     const Matrix& grad_y) {
  LayerNormGradients grads = {
      .h = Matrix(h.rows, h.cols), .weight = Matrix(1, h.cols), .bias = Matrix(1, h.cols)};
  const auto cols = static_cast<double>(h.cols);
  for (int64_t row = 0; row < h.rows; ++row) {
    const Standardised standardised = Standardise(h, row, weights.epsilon);
    const std::vector<double>& h_hat = standardised.values;
    double mean = 0;
    double product_mean = 0;
    for (int64_t i = 0; i < h.cols; ++i) {
      const double grad = grad_y(row, i) * weights.weight(0, i);
      mean += grad / cols;
      product_mean += grad * h_hat[static_cast<size_t>(i)] / cols;
      grads.weight(0, i) += grad_y(row, i) * h_hat[static_cast<size_t>(i)];
      grads.bias(0, i) += grad_y(row, i);
    }
    for (int64_t i = 0; i < h.cols; ++i) {
      grads.h(row, i) = standardised.rstd * (grad_y(row, i) * weights.weight(0, i) - mean -
                                             h_hat[static_cast<size_t>(i)] * product_mean);
    }
  }
  return grads;
}

double Gelu(GeluForm form, double x) {
  if (form == GeluForm::kExact) return x * std::erfc(-x / std::sqrt(2.0)) / 2;
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x * (1 + std::tanh(u)) / 2;
}

double GeluSlope(GeluForm form, double x) {
  if (form == GeluForm::kExact) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    return std::erfc(-x / std::sqrt(2.0)) / 2 + x * density;
  }
  const double factor = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(factor * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * factor * (1 + 3 * 0.044715 * x * x);
}

Matrix Rope(const Matrix& heads, const RopeShape& shape, double direction) {
  Matrix out(heads.rows, heads.cols);
  const int64_t half = shape.head_dim / 2;
  for (int64_t row = 0; row < heads.rows; ++row) {
    const double position =
        static_cast<double>(shape.position_offset + row % shape.tokens_per_sequence);
    for (int64_t head = 0; head < heads.cols; head += shape.head_dim) {
      for (int64_t i = 0; i < half; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_dim);
        const double angle = direction * position * std::pow(shape.theta, exponent);
        const double x = heads(row, head + i);
        const double y = heads(row, head + half + i);
        out(row, head + i) = x * std::cos(angle) - y * std::sin(angle);
        out(row, head + half + i) = y * std::cos(angle) + x * std::sin(angle);
      }
    }
  }
  return out;
}

namespace {

// One query row: where its head's vectors are.
struct Query {
  int64_t row;
  int64_t first_key_row;
  int64_t keys;
  int64_t q_col;
  int64_t kv_col;
};

Query QueryAt(const AttentionInputs& inputs, int64_t batch, int64_t head, int64_t token) {
  const int64_t group = inputs.query_heads / inputs.kv_heads;
  const int64_t row = batch * inputs.tokens + token;
  int64_t first = batch * inputs.tokens;
  for (const int32_t start : inputs.documents) {
    if (start <= row) first = start;
  }
  if (inputs.window > 0) first = std::max(first, row - inputs.window + 1);
  return {.row = row,
          .first_key_row = first,
          .keys = row - first + 1,
          .q_col = head * inputs.head_dim,
          .kv_col = head / group * inputs.head_dim};
}

// Scores turn into probabilities; returns their log-sum-exp.
double Softmax(std::vector<double>& scores) {
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - maximum);
  const double log_sum_exp = maximum + std::log(sum);
  for (double& score : scores) score = std::exp(score - log_sum_exp);
  return log_sum_exp;
}

std::vector<double> Scores(const AttentionInputs& inputs, const Query& query) {
  std::vector<double> scores(static_cast<size_t>(query.keys));
  for (size_t s = 0; s < scores.size(); ++s) {
    const int64_t key_row = query.first_key_row + static_cast<int64_t>(s);
    for (int64_t d = 0; d < inputs.head_dim; ++d) {
      scores[s] +=
          inputs.scale * inputs.q(query.row, query.q_col + d) * inputs.k(key_row, query.kv_col + d);
    }
  }
  return scores;
}

void AttentionRowBackward(const AttentionInputs& inputs, const Query& query, const Matrix& grad_out,
                          AttentionGradients& grads) {
  std::vector<double> p = Scores(inputs, query);
  Softmax(p);
  std::vector<double> grad_p(p.size());
  double mean = 0;
  for (size_t s = 0; s < p.size(); ++s) {
    const int64_t key_row = query.first_key_row + static_cast<int64_t>(s);
    for (int64_t d = 0; d < inputs.head_dim; ++d) {
      const double grad = grad_out(query.row, query.q_col + d);
      grad_p[s] += grad * inputs.v(key_row, query.kv_col + d);
      grads.v(key_row, query.kv_col + d) += p[s] * grad;
    }
    mean += p[s] * grad_p[s];
  }
  for (size_t s = 0; s < p.size(); ++s) {
    const int64_t key_row = query.first_key_row + static_cast<int64_t>(s);
    const double grad_score = p[s] * (grad_p[s] - mean) * inputs.scale;
    for (int64_t d = 0; d < inputs.head_dim; ++d) {
      grads.q(query.row, query.q_col + d) += grad_score * inputs.k(key_row, query.kv_col + d);
      grads.k(key_row, query.kv_col + d) += grad_score * inputs.q(query.row, query.q_col + d);
    }
  }
}

}  // namespace

AttentionOutputs Attention(const AttentionInputs& inputs) {
  AttentionOutputs outputs;
  outputs.out = Matrix(inputs.q.rows, inputs.q.cols);
  for (int64_t batch = 0; batch < inputs.batch; ++batch) {
    for (int64_t head = 0; head < inputs.query_heads; ++head) {
      for (int64_t token = 0; token < inputs.tokens; ++token) {
        const Query query = QueryAt(inputs, batch, head, token);
        std::vector<double> p = Scores(inputs, query);
        outputs.log_sum_exp.push_back(Softmax(p));
        for (size_t s = 0; s < p.size(); ++s) {
          for (int64_t d = 0; d < inputs.head_dim; ++d) {
            outputs.out(query.row, query.q_col + d) +=
                p[s] * inputs.v(query.first_key_row + static_cast<int64_t>(s), query.kv_col + d);
          }
        }
      }
    }
  }
  return outputs;
}

AttentionGradients AttentionBackward(const AttentionInputs& inputs, const Matrix& grad_out) {
  AttentionGradients grads = {.q = Matrix(inputs.q.rows, inputs.q.cols),
                              .k = Matrix(inputs.k.rows, inputs.k.cols),
                              .v = Matrix(inputs.v.rows, inputs.v.cols)};
  for (int64_t batch = 0; batch < inputs.batch; ++batch) {
    for (int64_t head = 0; head < inputs.query_heads; ++head) {
      for (int64_t token = 0; token < inputs.tokens; ++token) {
        AttentionRowBackward(inputs, QueryAt(inputs, batch, head, token), grad_out, grads);
      }
    }
  }
  return grads;
}

Matrix SwiGlu(const Matrix& gate, const Matrix& up) {
  Matrix out(gate.rows, gate.cols);
  for (size_t i = 0; i < out.values.size(); ++i) {
    const double g = gate.values[i];
    out.values[i] = g / (1 + std::exp(-g)) * up.values[i];
  }
  return out;
}

SwiGluGradients SwiGluBackward(const Matrix& gate, const Matrix& up, const Matrix& grad) {
  SwiGluGradients grads = {.gate = Matrix(gate.rows, gate.cols),
                           .up = Matrix(gate.rows, gate.cols)};
  for (size_t i = 0; i < grad.values.size(); ++i) {
    const double g = gate.values[i];
    const double s = 1 / (1 + std::exp(-g));
    grads.gate.values[i] = grad.values[i] * up.values[i] * s * (1 + g * (1 - s));
    grads.up.values[i] = grad.values[i] * g * s;
  }
  return grads;
}

Matrix EmbeddingBackward(std::span<const int32_t> tokens, const Matrix& grad, int64_t vocabulary) {
  Matrix table(vocabulary, grad.cols);
  for (size_t n = 0; n < tokens.size(); ++n) {
    for (int64_t i = 0; i < grad.cols; ++i) {
      table(tokens[n], i) += grad(static_cast<int64_t>(n), i);
    }
  }
  return table;
}

std::vector<double> TokenLogProbabilities(const Matrix& x, const Matrix& weight,
                                          std::span<const int32_t> targets) {
  const Matrix logits = Product(x, Transposed(weight));
  std::vector<double> result(targets.size());
  for (size_t n = 0; n < targets.size(); ++n) {
    if (targets[n] == -1) continue;
    const auto row = logits.values.begin() + static_cast<std::ptrdiff_t>(n) * logits.cols;
    std::vector<double> scores(row, row + logits.cols);
    result[n] = logits(static_cast<int64_t>(n), targets[n]) - Softmax(scores);
  }
  return result;
}

HeadGradients TokenLogProbabilitiesBackward(const Matrix& x, const Matrix& weight,
                                            std::span<const int32_t> targets,
                                            std::span<const double> grad) {
  Matrix grad_logits = Product(x, Transposed(weight));
  for (size_t n = 0; n < targets.size(); ++n) {
    const auto row = grad_logits.values.begin() + static_cast<std::ptrdiff_t>(n) * weight.rows;
    std::vector<double> p(row, row + weight.rows);
    Softmax(p);
    const double factor = targets[n] == -1 ? 0 : grad[n];
    for (int64_t v = 0; v < weight.rows; ++v) {
      const double one_hot = v == targets[n] ? 1 : 0;
      grad_logits(static_cast<int64_t>(n), v) = factor * (one_hot - p[static_cast<size_t>(v)]);
    }
  }
  return {.x = Product(grad_logits, weight), .weight = Product(Transposed(grad_logits), x)};
}

}  // namespace gantry::reference
