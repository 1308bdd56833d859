#include "trainer/models/decoder_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "chunk/block.h"

namespace gantry {
namespace {

constexpr double kStandardDeviation = 0.02;
constexpr int64_t kPieceElements = int64_t{1} << 20;
constexpr int64_t kTaskElements = int64_t{1} << 14;

// Registers tensors one by one and gives each its place among the weights.
class Registrar {
 public:
  Registrar(ParameterStore& store, const DecoderConfig& config,
            const DecoderRegistration& registration)
      : store_(store), config_(config), registration_(registration) {
    weights_.layers.resize(static_cast<size_t>(config.layers));
  }

  absl::Status Add(const DecoderTensor& tensor) {
    const Trainability trainability = registration_.trainability
                                          ? registration_.trainability(tensor.name)
                                          : Trainability::kTrainable;
    RegistrationOptions options;
    if (tensor.is_vector()) options.weight_decay_factor = 0.0;
    GANTRY_ASSIGN_OR_RETURN(
        const TensorId id,
        store_.Register({.name = tensor.name,
                         .shape = tensor.shape,
                         .dtype = config_.parameter_dtype,
                         .trainability = trainability,
                         .data_parallel_degree = registration_.data_parallel_degree},
                        options));
    weights_.tensors.push_back({.name = tensor.name,
                                .tensor = id,
                                .elements = tensor.elements(),
                                .initial = tensor.initial});
    Place(tensor, {.tensor = id, .trainability = trainability});
    return absl::OkStatus();
  }

  absl::StatusOr<DecoderWeights> Finish() {
    if (config_.tie_embeddings) {
      weights_.head = {.parameter = weights_.embedding.parameter,
                       .shape = weights_.embedding.shape};
      GANTRY_RETURN_IF_ERROR(
          store_.Alias(std::string(HeadName(config_.family)), weights_.embedding.parameter.tensor));
    }
    return std::move(weights_);
  }

 private:
  void Place(const DecoderTensor& tensor, Parameter parameter) {
    switch (tensor.role) {
      case DecoderRole::kTokenEmbedding:
        weights_.embedding = {.parameter = parameter, .shape = ShapeOf(tensor)};
        return;
      case DecoderRole::kPositionEmbedding:
        weights_.positions = EmbeddingTable{.parameter = parameter, .shape = ShapeOf(tensor)};
        return;
      case DecoderRole::kFinalNorm:
        return PlaceNorm(tensor, parameter, weights_.final_norm);
      case DecoderRole::kHead:
        weights_.head = {.parameter = parameter, .shape = ShapeOf(tensor)};
        return;
      default:
        PlaceInLayer(tensor, parameter, weights_.layers[static_cast<size_t>(tensor.layer)]);
    }
  }

  void PlaceInLayer(const DecoderTensor& tensor, Parameter parameter, DecoderLayerWeights& layer) {
    switch (tensor.role) {
      case DecoderRole::kInputNorm:
        return PlaceNorm(tensor, parameter, layer.input_norm);
      case DecoderRole::kPostAttentionNorm:
        return PlaceNorm(tensor, parameter, layer.post_attention_norm);
      case DecoderRole::kQueryNorm:
        layer.query_norm = RmsNormWeight{.parameter = parameter, .epsilon = epsilon()};
        return;
      case DecoderRole::kKeyNorm:
        layer.key_norm = RmsNormWeight{.parameter = parameter, .epsilon = epsilon()};
        return;
      case DecoderRole::kAttentionOutput:
        return PlaceProjection(tensor, parameter, layer.attention_output[0]);
      case DecoderRole::kDown:
        return PlaceProjection(tensor, parameter, layer.down[0]);
      case DecoderRole::kGate:
      case DecoderRole::kUp:
        if (tensor.part == DecoderPart::kWeight) layer.gate_up.emplace_back();
        return PlaceProjection(tensor, parameter, layer.gate_up.back());
      case DecoderRole::kQueryKeyValue:
      case DecoderRole::kQuery:
      case DecoderRole::kKey:
      case DecoderRole::kValue:
        if (tensor.part == DecoderPart::kWeight) layer.query_key_value.emplace_back();
        return PlaceProjection(tensor, parameter, layer.query_key_value.back());
      default:
        GANTRY_CHECK(false) << tensor.name << " is not of a layer";
    }
  }

  void PlaceNorm(const DecoderTensor& tensor, Parameter parameter, NormWeight& norm) const {
    if (tensor.part == DecoderPart::kBias) {
      norm.bias = parameter;
    } else {
      norm = {.parameter = parameter, .bias = {}, .epsilon = epsilon()};
    }
  }

  static void PlaceProjection(const DecoderTensor& tensor, Parameter parameter,
                              LinearWeight& linear) {
    if (tensor.part == DecoderPart::kBias) {
      linear.bias = parameter;
    } else {
      linear = {.parameter = parameter, .out_features = tensor.shape[0]};
    }
  }

  static MatrixShape ShapeOf(const DecoderTensor& tensor) {
    return {.rows = tensor.shape[0], .cols = tensor.shape[1]};
  }
  float epsilon() const { return static_cast<float>(config_.norm_epsilon); }

  ParameterStore& store_;
  const DecoderConfig& config_;
  const DecoderRegistration& registration_;
  DecoderWeights weights_ = {};
};

double StandardDeviation(Initial initial, int64_t layers) {
  if (initial == Initial::kNormal) return kStandardDeviation;
  return kStandardDeviation / std::sqrt(2.0 * static_cast<double>(layers));
}

// One piece of a tensor, as `dtype` in `bytes`.
class PieceFiller {
 public:
  PieceFiller(const RegisteredTensor& tensor, const DecoderConfig& config, uint64_t seed)
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
    if (tensor_.initial == Initial::kZeros) return 0.0F;
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

  const RegisteredTensor& tensor_;
  DType dtype_;
  double deviation_;
  Random random_;
};

}  // namespace

absl::StatusOr<DecoderWeights> RegisterDecoder(ParameterStore& store, const DecoderConfig& config,
                                               const DecoderRegistration& registration) {
  Registrar registrar(store, config, registration);
  for (const DecoderTensor& tensor : DecoderTensors(config)) {
    GANTRY_RETURN_IF_ERROR(registrar.Add(tensor));
  }
  return registrar.Finish();
}

absl::Status InitializeDecoder(ParameterStore& store, const DecoderConfig& config,
                               const DecoderWeights& weights, uint64_t seed, ThreadTeam& team) {
  const int64_t element_bytes = SizeOf(config.parameter_dtype);
  std::vector<std::byte> piece;
  for (const RegisteredTensor& tensor : weights.tensors) {
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
