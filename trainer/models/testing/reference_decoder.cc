#include "trainer/models/testing/reference_decoder.h"

#include <cmath>
#include <cstdint>

#include "base/strings.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/nn/testing/reference_attention.h"

namespace gantry {
namespace {

using Matrix = std::vector<double>;

struct Model {
  const ReferenceParameters& parameters;
  const DecoderConfig& config;
  const Matrix& operator()(const std::string& name) const { return parameters.at(name); }
};

Matrix Project(const Matrix& x, const Matrix& weight, int64_t in) {
  const int64_t rows = static_cast<int64_t>(x.size()) / in;
  const int64_t out = static_cast<int64_t>(weight.size()) / in;
  Matrix y(static_cast<size_t>(rows * out));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      const double* row = x.data() + r * in;
      const double* column = weight.data() + o * in;
      for (int64_t i = 0; i < in; ++i) sum += row[i] * column[i];
      y[static_cast<size_t>(r * out + o)] = sum;
    }
  }
  return y;
}

Matrix Norm(const Matrix& x, const Matrix& weight, double epsilon) {
  const size_t width = weight.size();
  Matrix y(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) squares += x[row + i] * x[row + i];
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (size_t i = 0; i < width; ++i) y[row + i] = weight[i] * x[row + i] * rstd;
  }
  return y;
}

void AddTo(Matrix& sum, const Matrix& x) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
}

// Rows of a, b and c side by side.
Matrix Join(const Matrix& a, const Matrix& b, const Matrix& c, int64_t rows) {
  Matrix joined;
  for (int64_t r = 0; r < rows; ++r) {
    for (const Matrix* part : {&a, &b, &c}) {
      const auto cols = static_cast<int64_t>(part->size()) / rows;
      joined.insert(joined.end(), part->begin() + r * cols, part->begin() + (r + 1) * cols);
    }
  }
  return joined;
}

void Layer(const Model& model, int64_t index, const AttentionShape& shape, Matrix& stream) {
  const DecoderConfig& config = model.config;
  const std::string prefix = StrCat("model.layers.", index, ".");
  Matrix x = Norm(stream, model(prefix + "input_layernorm.weight"), config.norm_epsilon);
  const auto project = [&](const char* name, int64_t in) {
    return Project(x, model(StrCat(prefix, name, ".weight")), in);
  };
  const Matrix qkv =
      Join(project("self_attn.q_proj", config.width), project("self_attn.k_proj", config.width),
           project("self_attn.v_proj", config.width), shape.batch * shape.tokens);
  x = ReferenceRopeAttention(qkv, shape, config.rope_theta);
  AddTo(stream, project("self_attn.o_proj", config.heads * config.head_dim));
  x = Norm(stream, model(prefix + "post_attention_layernorm.weight"), config.norm_epsilon);
  Matrix gate = project("mlp.gate_proj", config.width);
  const Matrix up = project("mlp.up_proj", config.width);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
  x = gate;
  AddTo(stream, project("mlp.down_proj", config.ffn_width));
}

}  // namespace

std::vector<double> ReferenceLogits(const ReferenceParameters& parameters,
                                    const DecoderConfig& config, const TokenBatch& batch) {
  const Model model{parameters, config};
  const Matrix& table = model("model.embed_tokens.weight");
  Matrix stream;
  for (const int32_t token : batch.tokens) {
    const auto row = table.begin() + token * config.width;
    stream.insert(stream.end(), row, row + config.width);
  }
  const AttentionShape shape{.batch = batch.sequences,
                             .tokens = batch.length,
                             .query_heads = config.heads,
                             .kv_heads = config.kv_heads,
                             .head_dim = config.head_dim};
  for (int64_t i = 0; i < config.layers; ++i) Layer(model, i, shape, stream);
  const Matrix hidden = Norm(stream, model("model.norm.weight"), config.norm_epsilon);
  return Project(hidden, config.tie_embeddings ? table : model("lm_head.weight"), config.width);
}

double ReferenceLoss(const ReferenceParameters& parameters, const DecoderConfig& config,
                     const TokenBatch& batch) {
  const std::vector<double> logits = ReferenceLogits(parameters, config, batch);
  double loss = 0;
  for (size_t n = 0; n < batch.targets.size(); ++n) {
    if (batch.targets[n] == kIgnoreTarget) continue;
    const double* row = logits.data() + n * static_cast<size_t>(config.vocabulary);
    double sum = 0;
    for (int64_t v = 0; v < config.vocabulary; ++v) sum += std::exp(row[v]);
    loss += std::log(sum) - row[batch.targets[n]];
  }
  return loss;
}

}  // namespace gantry
