#include "trainer/models/decoder_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
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
    Trainability trainability = Trainability::kTrainable;
    if (registration_.trainability) trainability = registration_.trainability(tensor.name);
    if (registration_.lora.has_value()) trainability = Trainability::kFrozen;
    GANTRY_ASSIGN_OR_RETURN(const Parameter parameter,
                            Register(tensor.name, tensor.shape, trainability));
    weights_.tensors.push_back({.name = tensor.name,
                                .tensor = parameter.tensor,
                                .elements = tensor.elements(),
                                .initial = tensor.initial,
                                .shape = tensor.shape});
    Place(tensor, parameter);
    return absl::OkStatus();
  }

  // REQUIRES: the weight that it changes was added last.
  absl::Status AddAdapter(const AdapterTensor& tensor) {
    Trainability trainability = Trainability::kTrainable;
    if (registration_.trainability) trainability = registration_.trainability(tensor.name);
    GANTRY_ASSIGN_OR_RETURN(const Parameter parameter,
                            Register(tensor.name, tensor.shape, trainability));
    weights_.adapters.push_back({.name = tensor.name,
                                 .tensor = parameter.tensor,
                                 .elements = tensor.elements(),
                                 .initial = InitialOf(tensor.part),
                                 .shape = tensor.shape});
    GANTRY_CHECK(last_projection_ != nullptr) << tensor.name;
    std::vector<LoraAdapter>& adapters = last_projection_->adapters;
    switch (tensor.part) {
      case AdapterPart::kA:
        adapters.emplace_back();
        adapters.back().a = parameter;
        adapters.back().base = last_projection_->weights.back();
        break;
      case AdapterPart::kB:
        adapters.back().b = parameter;
        break;
      case AdapterPart::kMagnitude:
        adapters.back().magnitude = parameter;
        break;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<DecoderWeights> Finish() {
    if (config_.tie_embeddings) {
      weights_.head = {.parameter = weights_.embedding.parameter,
                       .shape = weights_.embedding.shape};
      GANTRY_RETURN_IF_ERROR(
          store_.Alias(std::string(HeadName(config_.family)), weights_.embedding.parameter.tensor));
    }
    for (DecoderLayerWeights& layer : weights_.layers) {
      for (DecoderProjection* projection :
           {&layer.query_key_value, &layer.attention_output, &layer.gate_up, &layer.down}) {
        CompleteAdapters(*projection);
      }
    }
    return std::move(weights_);
  }

 private:
  absl::StatusOr<Parameter> Register(const std::string& name, const std::vector<int64_t>& shape,
                                     Trainability trainability) {
    RegistrationOptions options;
    if (shape.size() == 1) options.weight_decay_factor = 0.0;
    if (registration_.options) options = registration_.options(name, options);
    GANTRY_ASSIGN_OR_RETURN(
        const TensorId id,
        store_.Register({.name = name,
                         .shape = shape,
                         .dtype = config_.parameter_dtype,
                         .trainability = trainability,
                         .data_parallel_degree = registration_.data_parallel_degree},
                        options));
    return Parameter{.tensor = id, .trainability = trainability};
  }

  static Initial InitialOf(AdapterPart part) {
    switch (part) {
      case AdapterPart::kA:
        return Initial::kUniformFanIn;
      case AdapterPart::kB:
        return Initial::kZeros;
      case AdapterPart::kMagnitude:
        return Initial::kRowNorms;
    }
    return Initial::kZeros;
  }

  // Where the adapted weights' outputs lie, and their biases, which come behind the weights.
  static void CompleteAdapters(DecoderProjection& projection) {
    for (LoraAdapter& adapter : projection.adapters) {
      int64_t column = 0;
      for (const LinearWeight& weight : projection.weights) {
        if (weight.parameter.tensor == adapter.base.parameter.tensor) {
          adapter.base = weight;
          adapter.first_column = column;
        }
        column += weight.out_features;
      }
    }
  }

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
        return PlaceProjection(tensor, parameter, layer.attention_output);
      case DecoderRole::kDown:
        return PlaceProjection(tensor, parameter, layer.down);
      case DecoderRole::kGate:
      case DecoderRole::kUp:
        return PlaceProjection(tensor, parameter, layer.gate_up);
      case DecoderRole::kQueryKeyValue:
      case DecoderRole::kQuery:
      case DecoderRole::kKey:
      case DecoderRole::kValue:
        return PlaceProjection(tensor, parameter, layer.query_key_value);
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

  void PlaceProjection(const DecoderTensor& tensor, Parameter parameter,
                       DecoderProjection& projection) {
    if (tensor.part == DecoderPart::kBias) {
      projection.weights.back().bias = parameter;
    } else {
      projection.weights.push_back({.parameter = parameter, .out_features = tensor.shape[0]});
      last_projection_ = &projection;
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
  DecoderProjection* last_projection_ = nullptr;  // of the weight added last; in weights_
};

double StandardDeviation(Initial initial, int64_t layers) {
  if (initial == Initial::kNormal) return kStandardDeviation;
  return kStandardDeviation / std::sqrt(2.0 * static_cast<double>(layers));
}

// The L2 norm of each row, read a few rows at a time.
absl::StatusOr<std::vector<double>> RowNormsOf(ParameterStore& store, DType dtype,
                                               const RegisteredTensor& weight) {
  const int64_t rows = weight.shape[0];
  const int64_t cols = weight.shape[1];
  const int64_t piece_rows = std::max<int64_t>(1, kPieceElements / cols);
  std::vector<double> norms;
  std::vector<std::byte> piece;
  for (int64_t first = 0; first < rows; first += piece_rows) {
    const int64_t count = std::min(piece_rows, rows - first);
    piece.resize(static_cast<size_t>(count * cols * SizeOf(dtype)));
    GANTRY_RETURN_IF_ERROR(
        store.ReadState(StateKind::kParameter, weight.tensor, first * cols, piece));
    for (int64_t row = 0; row < count; ++row) {
      double squares = 0.0;
      for (int64_t i = row * cols; i < (row + 1) * cols; ++i) {
        squares += std::pow(LoadElement(dtype, piece.data(), i), 2);
      }
      norms.push_back(std::sqrt(squares));
    }
  }
  return norms;
}

const RegisteredTensor& BaseOf(const DecoderWeights& weights, const RegisteredTensor& adapter) {
  const std::string module = adapter.name.substr(0, adapter.name.rfind(".lora_"));
  const auto base = std::ranges::find(weights.tensors, module + ".weight", &RegisteredTensor::name);
  GANTRY_CHECK(base != weights.tensors.end()) << adapter.name;
  return *base;
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
      for (int64_t i = begin; i < end; ++i) {
        StoreElement(dtype_, bytes.data(), i, ValueOf(first + i));
      }
    });
  }

 private:
  float ValueOf(int64_t element) const {
    if (tensor_.initial == Initial::kZeros) return 0.0F;
    if (tensor_.initial == Initial::kOnes) return 1.0F;
    return static_cast<float>(deviation_ * random_.Normal(static_cast<uint64_t>(element)));
  }
  const RegisteredTensor& tensor_;
  DType dtype_;
  double deviation_;
  Random random_;
};

}  // namespace

absl::StatusOr<DecoderWeights> RegisterDecoder(ParameterStore& store, const DecoderConfig& config,
                                               const DecoderRegistration& registration) {
  std::vector<AdapterTensor> adapters;
  if (registration.lora.has_value()) {
    GANTRY_RETURN_IF_ERROR(ValidateLoraConfig(*registration.lora));
    GANTRY_ASSIGN_OR_RETURN(adapters, AdapterTensors(config, *registration.lora));
  }
  Registrar registrar(store, config, registration);
  size_t next = 0;
  for (const DecoderTensor& tensor : DecoderTensors(config)) {
    GANTRY_RETURN_IF_ERROR(registrar.Add(tensor));
    for (; next < adapters.size() && adapters[next].base == tensor.name; ++next) {
      GANTRY_RETURN_IF_ERROR(registrar.AddAdapter(adapters[next]));
    }
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

absl::Status InitializeAdapters(ParameterStore& store, const DecoderConfig& config,
                                const DecoderWeights& weights, uint64_t seed) {
  const DType dtype = config.parameter_dtype;
  for (const RegisteredTensor& tensor : weights.adapters) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.elements * SizeOf(dtype)));
    if (tensor.initial == Initial::kRowNorms) {
      GANTRY_ASSIGN_OR_RETURN(const std::vector<double> norms,
                              RowNormsOf(store, dtype, BaseOf(weights, tensor)));
      for (int64_t i = 0; i < tensor.elements; ++i) {
        StoreElement(dtype, bytes.data(), i, static_cast<float>(norms[static_cast<size_t>(i)]));
      }
    } else if (tensor.initial == Initial::kUniformFanIn) {
      // PEFT's kaiming_uniform_(a = sqrt 5).
      const double bound = 1.0 / std::sqrt(static_cast<double>(tensor.shape[1]));
      const Random random({.seed = seed, .stream = static_cast<uint64_t>(tensor.tensor.value())});
      for (int64_t i = 0; i < tensor.elements; ++i) {
        const double uniform = random.Uniform(static_cast<uint64_t>(i));
        StoreElement(dtype, bytes.data(), i, static_cast<float>(bound * (2.0 * uniform - 1.0)));
      }
    }
    GANTRY_RETURN_IF_ERROR(store.WriteState(StateKind::kParameter, tensor.tensor, 0, bytes));
  }
  return absl::OkStatus();
}

}  // namespace gantry
