// Reference implementations of the kernels in double, written for clarity: what the kernels' tests
// compare with. Their own gradients are checked by finite differences in reference_test.cc.
#ifndef GANTRY_KERNELS_TESTING_REFERENCE_H_
#define GANTRY_KERNELS_TESTING_REFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gantry::reference {

// Row-major [rows, cols].
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(int64_t rows_in, int64_t cols_in)
      : rows(rows_in), cols(cols_in), values(static_cast<size_t>(rows_in * cols_in)) {}
  double& operator()(int64_t row, int64_t col) {
    return values[static_cast<size_t>(row * cols + col)];
  }
  double operator()(int64_t row, int64_t col) const {
    return values[static_cast<size_t>(row * cols + col)];
  }
};

Matrix Transposed(const Matrix& a);
Matrix Product(const Matrix& a, const Matrix& b);

struct RmsNormGradients {
  Matrix h;
  Matrix weight;  // [1, channels]
};
Matrix RmsNorm(const Matrix& h, const Matrix& weight, double epsilon);
RmsNormGradients RmsNormBackward(const Matrix& h, const Matrix& weight, double epsilon,
                                 const Matrix& grad_y);

struct LayerNormGradients {
  Matrix h;
  Matrix weight;  // [1, channels]
  Matrix bias;    // [1, channels]
};
struct LayerNormWeights {
  Matrix weight;
  Matrix bias;
  double epsilon;
};
Matrix LayerNorm(const Matrix& h, const LayerNormWeights& weights);
LayerNormGradients LayerNormBackward(const Matrix& h, const LayerNormWeights& weights,
                                     const Matrix& grad_y);

// Exact, by erf, or by tanh; and the derivative.
enum class GeluForm { kExact, kTanh };
double Gelu(GeluForm form, double x);
double GeluSlope(GeluForm form, double x);

struct RopeShape {
  int64_t head_dim;
  int64_t tokens_per_sequence;
  int64_t position_offset;
  double theta;
};
// direction is +1 (forward) or -1 (inverse).
Matrix Rope(const Matrix& heads, const RopeShape& shape, double direction);

struct AttentionInputs {
  int64_t batch;
  int64_t tokens;
  int64_t query_heads;
  int64_t kv_heads;
  int64_t head_dim;
  double scale;
  Matrix q;
  Matrix k;
  Matrix v;
  int64_t window = 0;                   // as in attention.h
  std::vector<int32_t> documents = {};  // likewise
};
struct AttentionOutputs {
  Matrix out;
  std::vector<double> log_sum_exp;  // [batch, query_heads, tokens]
};
struct AttentionGradients {
  Matrix q;
  Matrix k;
  Matrix v;
};
AttentionOutputs Attention(const AttentionInputs& inputs);
AttentionGradients AttentionBackward(const AttentionInputs& inputs, const Matrix& grad_out);

struct SwiGluGradients {
  Matrix gate;
  Matrix up;
};
Matrix SwiGlu(const Matrix& gate, const Matrix& up);
SwiGluGradients SwiGluBackward(const Matrix& gate, const Matrix& up, const Matrix& grad);

Matrix EmbeddingBackward(std::span<const int32_t> tokens, const Matrix& grad, int64_t vocabulary);

struct HeadGradients {
  Matrix x;
  Matrix weight;
};
// Log-probabilities of the targets, 0 where the target is -1.
std::vector<double> TokenLogProbabilities(const Matrix& x, const Matrix& weight,
                                          std::span<const int32_t> targets);
HeadGradients TokenLogProbabilitiesBackward(const Matrix& x, const Matrix& weight,
                                            std::span<const int32_t> targets,
                                            std::span<const double> grad);

}  // namespace gantry::reference

#endif  // GANTRY_KERNELS_TESTING_REFERENCE_H_
