// Goal: the references' analytic gradients are right. Method: central finite differences in double
// of a random linear function of each reference's output.
#include "kernels/testing/reference.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"

namespace gantry::reference {
namespace {

constexpr uint64_t kSeed = 20240817;

Matrix RandomMatrix(int64_t rows, int64_t cols, uint64_t stream) {
  const Random random({.seed = kSeed, .stream = stream});
  Matrix matrix(rows, cols);
  for (size_t i = 0; i < matrix.values.size(); ++i) matrix.values[i] = random.Normal(i);
  return matrix;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Compares `gradient` with differences of `loss` as each element of `input` moves.
void ExpectGradient(Matrix& input, const Matrix& gradient, const std::function<double()>& loss) {
  ASSERT_EQ(input.values.size(), gradient.values.size());
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < input.values.size(); ++i) {
    const double saved = input.values[i];
    input.values[i] = saved + kStep;
    const double above = loss();
    input.values[i] = saved - kStep;
    const double below = loss();
    input.values[i] = saved;
    const double expected = (above - below) / (2 * kStep);
    ASSERT_NEAR(gradient.values[i], expected, 1e-7 * (1 + std::abs(expected))) << "element " << i;
  }
}

TEST(ReferenceTest, RmsNorm) {
  Matrix h = RandomMatrix(3, 7, 1);
  Matrix weight = RandomMatrix(1, 7, 2);
  const Matrix grad = RandomMatrix(3, 7, 3);
  const auto loss = [&] { return Dot(RmsNorm(h, weight, 0.1).values, grad.values); };
  const RmsNormGradients grads = RmsNormBackward(h, weight, 0.1, grad);
  ExpectGradient(h, grads.h, loss);
  ExpectGradient(weight, grads.weight, loss);
}

TEST(ReferenceTest, LayerNorm) {
  Matrix h = RandomMatrix(3, 7, 1);
  LayerNormWeights weights = {
      .weight = RandomMatrix(1, 7, 2), .bias = RandomMatrix(1, 7, 4), .epsilon = 0.1};
  const Matrix grad = RandomMatrix(3, 7, 3);
  const auto loss = [&] { return Dot(LayerNorm(h, weights).values, grad.values); };
  const LayerNormGradients grads = LayerNormBackward(h, weights, grad);
  ExpectGradient(h, grads.h, loss);
  ExpectGradient(weights.weight, grads.weight, loss);
  ExpectGradient(weights.bias, grads.bias, loss);
}

TEST(ReferenceTest, Gelu) {
  for (const GeluForm form : {GeluForm::kExact, GeluForm::kTanh}) {
    Matrix x = RandomMatrix(1, 40, 1);
    Matrix slopes(1, 40);
    for (size_t i = 0; i < 40; ++i) slopes.values[i] = GeluSlope(form, x.values[i]);
    ExpectGradient(x, slopes, [&] {
      double sum = 0;
      for (const double value : x.values) sum += Gelu(form, value);
      return sum;
    });
  }
}

TEST(ReferenceTest, RopeInverseIsTheTranspose) {
  Matrix heads = RandomMatrix(6, 12, 1);
  const Matrix grad = RandomMatrix(6, 12, 2);
  const RopeShape shape = {
      .head_dim = 6, .tokens_per_sequence = 3, .position_offset = 4, .theta = 100};
  ExpectGradient(heads, Rope(grad, shape, -1),
                 [&] { return Dot(Rope(heads, shape, 1).values, grad.values); });
}

TEST(ReferenceTest, Attention) {
  AttentionInputs inputs = {.batch = 2,
                            .tokens = 4,
                            .query_heads = 4,
                            .kv_heads = 2,
                            .head_dim = 3,
                            .scale = 0.7,
                            .q = RandomMatrix(8, 12, 1),
                            .k = RandomMatrix(8, 6, 2),
                            .v = RandomMatrix(8, 6, 3)};
  const Matrix grad = RandomMatrix(8, 12, 4);
  const auto loss = [&] { return Dot(Attention(inputs).out.values, grad.values); };
  for (const int64_t window : {0, 2}) {
    for (const std::vector<int32_t>& documents : {std::vector<int32_t>{}, {0, 3, 4, 5}}) {
      inputs.window = window;
      inputs.documents = documents;
      const AttentionGradients grads = AttentionBackward(inputs, grad);
      ExpectGradient(inputs.q, grads.q, loss);
      ExpectGradient(inputs.k, grads.k, loss);
      ExpectGradient(inputs.v, grads.v, loss);
    }
  }
}

TEST(ReferenceTest, SwiGlu) {
  Matrix gate = RandomMatrix(3, 5, 1);
  Matrix up = RandomMatrix(3, 5, 2);
  const Matrix grad = RandomMatrix(3, 5, 3);
  const auto loss = [&] { return Dot(SwiGlu(gate, up).values, grad.values); };
  const SwiGluGradients grads = SwiGluBackward(gate, up, grad);
  ExpectGradient(gate, grads.gate, loss);
  ExpectGradient(up, grads.up, loss);
}

TEST(ReferenceTest, Embedding) {
  Matrix table = RandomMatrix(4, 3, 1);
  const std::vector<int32_t> tokens = {2, 0, 2, 3, 2};
  const Matrix grad = RandomMatrix(5, 3, 2);
  ExpectGradient(table, EmbeddingBackward(tokens, grad, 4), [&] {
    double sum = 0;
    for (int64_t n = 0; n < 5; ++n) {
      for (int64_t i = 0; i < 3; ++i) sum += table(tokens[static_cast<size_t>(n)], i) * grad(n, i);
    }
    return sum;
  });
}

TEST(ReferenceTest, TokenLogProbabilities) {
  Matrix x = RandomMatrix(4, 3, 1);
  Matrix weight = RandomMatrix(6, 3, 2);
  const std::vector<int32_t> targets = {5, -1, 0, 2};
  const std::vector<double> grad = {0.3, 7.0, -1.2, 0.9};
  const auto loss = [&] { return Dot(TokenLogProbabilities(x, weight, targets), grad); };
  const HeadGradients grads = TokenLogProbabilitiesBackward(x, weight, targets, grad);
  ExpectGradient(x, grads.x, loss);
  ExpectGradient(weight, grads.weight, loss);
}

}  // namespace
}  // namespace gantry::reference
