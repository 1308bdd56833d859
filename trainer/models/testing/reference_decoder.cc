#include "trainer/models/testing/reference_decoder.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numbers>
#include <tuple>

#include "kernels/attention.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/models/families.h"
#include "trainer/models/rotary.h"
#include "trainer/nn/testing/reference_attention.h"

namespace gantry {
namespace {

using Matrix = std::vector<double>;

// Finds parameters by what they do.
class Model {
 public:
  Model(const ReferenceParameters& parameters, const DecoderConfig& config_in)
      : config(config_in), parameters_(parameters) {
    for (const DecoderTensor& tensor : DecoderTensors(config)) {
      names_[{tensor.role, tensor.part, tensor.layer}] = tensor.name;
    }
  }
  bool Has(DecoderRole role, DecoderPart part, int64_t layer) const {
    return names_.contains({role, part, layer});
  }
  const Matrix& At(DecoderRole role, DecoderPart part, int64_t layer) const {
    return parameters_.at(names_.at({role, part, layer}));
  }
  const Matrix& Weight(DecoderRole role, int64_t layer = -1) const {
    return At(role, DecoderPart::kWeight, layer);
  }

  const DecoderConfig& config;

 private:
  const ReferenceParameters& parameters_;
  std::map<std::tuple<DecoderRole, DecoderPart, int64_t>, std::string> names_;
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

// x / rms(x) of each row of weight.size(), times the weight.
Matrix RmsNorm(const Matrix& x, const Matrix& weight, double epsilon) {
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

Matrix Norm(const Model& model, const Matrix& x, DecoderRole role, int64_t layer) {
  const Matrix& weight = model.Weight(role, layer);
  if (model.config.norm == NormKind::kRms) return RmsNorm(x, weight, model.config.norm_epsilon);
  const Matrix& bias = model.At(role, DecoderPart::kBias, layer);
  const size_t width = weight.size();
  const auto count = static_cast<double>(width);
  Matrix y(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    double mean = 0;
    for (size_t i = 0; i < width; ++i) mean += x[row + i] / count;
    double variance = 0;
    for (size_t i = 0; i < width; ++i) variance += std::pow(x[row + i] - mean, 2) / count;
    const double rstd = 1.0 / std::sqrt(variance + model.config.norm_epsilon);
    for (size_t i = 0; i < width; ++i) {
      y[row + i] = weight[i] * (x[row + i] - mean) * rstd + bias[i];
    }
  }
  return y;
}

// x W^T, plus the bias where there is one.
Matrix Apply(const Model& model, const Matrix& x, DecoderRole role, int64_t layer) {
  const bool is_down = role == DecoderRole::kDown;
  const bool is_output = role == DecoderRole::kAttentionOutput;
  const DecoderConfig& config = model.config;
  const int64_t in = is_down     ? config.ffn_width
                     : is_output ? config.heads * config.head_dim
                                 : config.width;
  Matrix y = Project(x, model.Weight(role, layer), in);
  if (!model.Has(role, DecoderPart::kBias, layer)) return y;
  const Matrix& bias = model.At(role, DecoderPart::kBias, layer);
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
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

Matrix QueryKeyValue(const Model& model, int64_t layer, const Matrix& x, int64_t rows) {
  if (model.Has(DecoderRole::kQueryKeyValue, DecoderPart::kWeight, layer)) {
    return Apply(model, x, DecoderRole::kQueryKeyValue, layer);
  }
  Matrix query = Apply(model, x, DecoderRole::kQuery, layer);
  Matrix key = Apply(model, x, DecoderRole::kKey, layer);
  if (model.config.query_key_norm) {
    const double epsilon = model.config.norm_epsilon;
    query = RmsNorm(query, model.Weight(DecoderRole::kQueryNorm, layer), epsilon);
    key = RmsNorm(key, model.Weight(DecoderRole::kKeyNorm, layer), epsilon);
  }
  return Join(query, key, Apply(model, x, DecoderRole::kValue, layer), rows);
}

double Activated(ActivationKind kind, double x) {
  if (kind == ActivationKind::kSwiGlu) return x / (1.0 + std::exp(-x));
  if (kind == ActivationKind::kGelu) return x * std::erfc(-x / std::sqrt(2.0)) / 2;
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x * (1 + std::tanh(u)) / 2;
}

void Layer(const Model& model, int64_t layer, const AttentionShape& shape,
           const ReferencePositions& positions, Matrix& stream) {
  const Matrix qkv =
      QueryKeyValue(model, layer, Norm(model, stream, DecoderRole::kInputNorm, layer),
                    shape.batch * shape.tokens);
  const Matrix attended = ReferenceAttention(qkv, shape, positions);
  AddTo(stream, Apply(model, attended, DecoderRole::kAttentionOutput, layer));
  const Matrix x = Norm(model, stream, DecoderRole::kPostAttentionNorm, layer);
  Matrix inside = Apply(model, x, DecoderRole::kUp, layer);
  const ActivationKind kind = model.config.activation;
  if (kind == ActivationKind::kSwiGlu) {
    const Matrix gate = Apply(model, x, DecoderRole::kGate, layer);
    for (size_t i = 0; i < gate.size(); ++i) inside[i] *= Activated(kind, gate[i]);
  } else {
    for (double& value : inside) value = Activated(kind, value);
  }
  AddTo(stream, Apply(model, inside, DecoderRole::kDown, layer));
}

// Each token's row of the embedding, plus that of its position in its document.
Matrix Embedded(const Model& model, const TokenBatch& batch) {
  const int64_t width = model.config.width;
  const Matrix& table = model.Weight(DecoderRole::kTokenEmbedding);
  Matrix stream;
  int64_t start = 0;
  for (int64_t row = 0; row < static_cast<int64_t>(batch.tokens.size()); ++row) {
    if (row % batch.length == 0) start = row;
    for (const int32_t document : batch.documents) {
      if (document == row) start = row;
    }
    for (int64_t i = 0; i < width; ++i) {
      double value = table[static_cast<size_t>(batch.tokens[static_cast<size_t>(row)] * width + i)];
      if (model.config.positions > 0) {
        const Matrix& positions = model.Weight(DecoderRole::kPositionEmbedding);
        value += positions[static_cast<size_t>((row - start) * width + i)];
      }
      stream.push_back(value);
    }
  }
  return stream;
}

}  // namespace

std::vector<double> ReferenceLogits(const ReferenceParameters& parameters,
                                    const DecoderConfig& config, const TokenBatch& batch) {
  const Model model(parameters, config);
  Matrix stream = Embedded(model, batch);
  ReferencePositions positions{.frequencies = {},
                               .documents = {batch.documents.begin(), batch.documents.end()}};
  if (config.positions == 0) {
    positions.frequencies = RotaryFrequencies(config.rotary(), batch.length);
    positions.magnitude = RotaryMagnitude(config.rope_scaling);
  }
  AttentionShape shape{.batch = batch.sequences,
                       .tokens = batch.length,
                       .query_heads = config.heads,
                       .kv_heads = config.kv_heads,
                       .head_dim = config.head_dim};
  for (int64_t i = 0; i < config.layers; ++i) {
    shape.window = config.window(i);
    Layer(model, i, shape, positions, stream);
  }
  const DecoderRole head =
      config.tie_embeddings ? DecoderRole::kTokenEmbedding : DecoderRole::kHead;
  return Project(Norm(model, stream, DecoderRole::kFinalNorm, -1), model.Weight(head),
                 config.width);
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
