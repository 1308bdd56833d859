#include "trainer/models/llama_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "base/dtype.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/block.h"

namespace gantry {
namespace {

constexpr double kStandardDeviation = 0.02;
constexpr int64_t kPieceElements = int64_t{1} << 20;
constexpr int64_t kTaskElements = int64_t{1} << 14;

// Registers tensors one by one and keeps the list of them.
class Registrar {
 public:
  Registrar(ParameterStore& store, const LlamaConfig& config, const LlamaRegistration& registration)
      : store_(store), config_(config), registration_(registration) {}

  absl::StatusOr<Parameter> Matrix(std::string name, MatrixShape shape, Initial initial) {
    return Add(std::move(name), {shape.rows, shape.cols}, initial, {});
  }
  absl::StatusOr<RmsNormWeight> Norm(std::string name) {
    GANTRY_ASSIGN_OR_RETURN(
        const Parameter parameter,
        Add(std::move(name), {config_.width}, Initial::kOnes, {.weight_decay_factor = 0.0}));
    return RmsNormWeight{.parameter = parameter,
                         .epsilon = static_cast<float>(config_.norm_epsilon)};
  }
  absl::StatusOr<LinearWeight> Projection(std::string name, MatrixShape shape, Initial initial) {
    GANTRY_ASSIGN_OR_RETURN(const Parameter parameter, Matrix(std::move(name), shape, initial));
    return LinearWeight{.parameter = parameter, .out_features = shape.rows};
  }
  std::vector<LlamaTensor> TakeTensors() { return std::move(tensors_); }

 private:
  absl::StatusOr<Parameter> Add(std::string name, std::vector<int64_t> shape, Initial initial,
                                const RegistrationOptions& options) {
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    const Trainability trainability =
        registration_.trainability ? registration_.trainability(name) : Trainability::kTrainable;
    GANTRY_ASSIGN_OR_RETURN(
        const TensorId tensor,
        store_.Register({.name = name,
                         .shape = std::move(shape),
                         .dtype = config_.parameter_dtype,
                         .trainability = trainability,
                         .data_parallel_degree = registration_.data_parallel_degree},
                        options));
    tensors_.push_back(
        {.name = std::move(name), .tensor = tensor, .elements = elements, .initial = initial});
    return Parameter{.tensor = tensor, .trainability = trainability};
  }

  ParameterStore& store_;
  const LlamaConfig& config_;
  const LlamaRegistration& registration_;
  std::vector<LlamaTensor> tensors_;
};

absl::StatusOr<LlamaLayerWeights> RegisterLayer(Registrar& registrar, const LlamaConfig& config,
                                                int64_t layer) {
  const std::string prefix = StrCat("model.layers.", layer, ".");
  const int64_t query = config.heads * config.head_dim;
  const int64_t key = config.kv_heads * config.head_dim;
  const auto projection = [&](const char* name, MatrixShape shape, Initial initial) {
    return registrar.Projection(StrCat(prefix, name, ".weight"), shape, initial);
  };
  GANTRY_ASSIGN_OR_RETURN(const RmsNormWeight input_norm,
                          registrar.Norm(prefix + "input_layernorm.weight"));
  GANTRY_ASSIGN_OR_RETURN(const LinearWeight q,
                          projection("self_attn.q_proj", {query, config.width}, Initial::kNormal));
  GANTRY_ASSIGN_OR_RETURN(const LinearWeight k,
                          projection("self_attn.k_proj", {key, config.width}, Initial::kNormal));
  GANTRY_ASSIGN_OR_RETURN(const LinearWeight v,
                          projection("self_attn.v_proj", {key, config.width}, Initial::kNormal));
  GANTRY_ASSIGN_OR_RETURN(
      const LinearWeight o,
      projection("self_attn.o_proj", {config.width, query}, Initial::kResidualNormal));
  GANTRY_ASSIGN_OR_RETURN(const RmsNormWeight post_attention_norm,
                          registrar.Norm(prefix + "post_attention_layernorm.weight"));
  GANTRY_ASSIGN_OR_RETURN(
      const LinearWeight gate,
      projection("mlp.gate_proj", {config.ffn_width, config.width}, Initial::kNormal));
  GANTRY_ASSIGN_OR_RETURN(
      const LinearWeight up,
      projection("mlp.up_proj", {config.ffn_width, config.width}, Initial::kNormal));
  GANTRY_ASSIGN_OR_RETURN(
      const LinearWeight down,
      projection("mlp.down_proj", {config.width, config.ffn_width}, Initial::kResidualNormal));
  return LlamaLayerWeights{.input_norm = input_norm,
                           .query_key_value = {q, k, v},
                           .attention_output = {o},
                           .post_attention_norm = post_attention_norm,
                           .gate_up = {gate, up},
                           .down = {down}};
}

double StandardDeviation(Initial initial, int64_t layers) {
  if (initial == Initial::kNormal) return kStandardDeviation;
  return kStandardDeviation / std::sqrt(2.0 * static_cast<double>(layers));
}

// One piece of a tensor, as `dtype` in `bytes`.
class PieceFiller {
 public:
  PieceFiller(const LlamaTensor& tensor, const LlamaConfig& config, uint64_t seed)
      : tensor_(tensor),
        dtype_(config.parameter_dtype),
        deviation_(StandardDeviation(tensor.initial, config.layers)),
        random_({.seed = seed, .stream = static_cast<uint64_t>(tensor.tensor.value())}) {}

  void Fill(int64_t first, std::span<std::byte> bytes, ThreadTeam& team) const {
    const int64_t count = static_cast<int64_t>(bytes.size()) / SizeOf(dtype_);
    team.For({.count = count, .grain = kTaskElements}, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Store(ValueOf(first + i), i, bytes);
    });
  }

 private:
  float ValueOf(int64_t element) const {
    if (tensor_.initial == Initial::kOnes) return 1.0F;
    return static_cast<float>(deviation_ * random_.Normal(static_cast<uint64_t>(element)));
  }
  void Store(float value, int64_t i, std::span<std::byte> bytes) const {
    if (dtype_ == DType::kF32) {
      reinterpret_cast<float*>(bytes.data())[i] = value;
    } else {
      reinterpret_cast<BFloat16*>(bytes.data())[i] = BFloat16(value);
    }
  }

  const LlamaTensor& tensor_;
  DType dtype_;
  double deviation_;
  Random random_;
};

}  // namespace

absl::StatusOr<LlamaWeights> RegisterLlama(ParameterStore& store, const LlamaConfig& config,
                                           const LlamaRegistration& registration) {
  Registrar registrar(store, config, registration);
  const MatrixShape table{.rows = config.vocabulary, .cols = config.width};
  GANTRY_ASSIGN_OR_RETURN(const Parameter embedding,
                          registrar.Matrix("model.embed_tokens.weight", table, Initial::kNormal));
  std::vector<LlamaLayerWeights> layers;
  for (int64_t i = 0; i < config.layers; ++i) {
    GANTRY_ASSIGN_OR_RETURN(const LlamaLayerWeights layer, RegisterLayer(registrar, config, i));
    layers.push_back(layer);
  }
  GANTRY_ASSIGN_OR_RETURN(const RmsNormWeight final_norm, registrar.Norm("model.norm.weight"));
  Parameter head = embedding;
  if (config.tie_embeddings) {
    GANTRY_RETURN_IF_ERROR(store.Alias("lm_head.weight", embedding.tensor));
  } else {
    GANTRY_ASSIGN_OR_RETURN(head, registrar.Matrix("lm_head.weight", table, Initial::kNormal));
  }
  return LlamaWeights{.embedding = {.parameter = embedding, .shape = table},
                      .layers = std::move(layers),
                      .final_norm = final_norm,
                      .head = {.parameter = head, .shape = table},
                      .tensors = registrar.TakeTensors()};
}

absl::Status InitializeLlama(ParameterStore& store, const LlamaConfig& config,
                             const LlamaWeights& weights, uint64_t seed, ThreadTeam& team) {
  const int64_t element_bytes = SizeOf(config.parameter_dtype);
  std::vector<std::byte> piece;
  for (const LlamaTensor& tensor : weights.tensors) {
    const PieceFiller filler(tensor, config, seed);
    for (int64_t first = 0; first < tensor.elements; first += kPieceElements) {
      const int64_t count = std::min(kPieceElements, tensor.elements - first);
      piece.resize(static_cast<size_t>(count * element_bytes));
      filler.Fill(first, piece, team);
      GANTRY_RETURN_IF_ERROR(store.WriteState(StateKind::kParameter, tensor.tensor, first, piece));
    }
  }
  return absl::OkStatus();
}

}  // namespace gantry
