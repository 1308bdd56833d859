#include "gemini/testing/toy_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "base/hash.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int kTied = 0;
constexpr int kFrozen = 1;

constexpr int64_t kPeriod = 4093;  // prime

}  // namespace

ToyModel::ToyModel(ParameterStore* store, const Options& options)
    : store_(store), options_(options) {
  const Random random({.seed = 42, .stream = 0});
  for (int64_t i = 0; i < kPeriod; ++i) {
    normals_.push_back(static_cast<float>(0.02 * random.Normal(static_cast<uint64_t>(i))));
    wave_.push_back(static_cast<float>(std::cos(static_cast<double>(i))));
  }
}

absl::Status ToyModel::Register() {
  const auto add = [&](std::string name, int64_t elements,
                       Trainability trainability) -> absl::StatusOr<TensorId> {
    TensorSpec spec{.name = std::move(name),
                    .shape = {elements},
                    .dtype = options_.dtype,
                    .trainability = trainability};
    if (options_.rows > 0 && elements >= 1000)
      spec.shape = {options_.rows, elements / options_.rows};
    GANTRY_ASSIGN_OR_RETURN(
        const TensorId id,
        store_->Register(spec, {.weight_decay_factor = elements < 1000 ? 0.0 : 1.0}));
    tensors_.push_back(id);
    return id;
  };
  GANTRY_ASSIGN_OR_RETURN(const TensorId tied,
                          add("tied", options_.tied_elements, Trainability::kTrainable));
  GANTRY_RETURN_IF_ERROR(store_->Alias("head", tied));
  GANTRY_ASSIGN_OR_RETURN(const TensorId frozen,
                          add("frozen", options_.frozen_elements, Trainability::kFrozen));
  for (int64_t l = 0; l < options_.layers; ++l) {
    GANTRY_ASSIGN_OR_RETURN(const TensorId weight,
                            add(StrCat("layer.", l, ".weight"), options_.layer_elements + 7 * l,
                                Trainability::kTrainable));
    GANTRY_ASSIGN_OR_RETURN(const TensorId norm,
                            add(StrCat("layer.", l, ".norm"), 65 + l, Trainability::kTrainable));
    layers_.push_back({weight, norm});
  }
  GANTRY_ASSIGN_OR_RETURN(const TensorId untouched,
                          add("untouched", 5'000, Trainability::kTrainable));
  special_ = {tied, frozen, untouched};
  return absl::OkStatus();
}

absl::Status ToyModel::Initialize() {
  for (const TensorId tensor : tensors_) {
    const TensorSpec& spec = store_->layout().tensor(tensor);
    const int64_t elements = store_->layout().placement(tensor).elements;
    const bool frozen = spec.trainability == Trainability::kFrozen;
    const DType dtype = frozen ? spec.dtype : DType::kF32;
    constexpr int64_t kPiece = 9'999;  // crosses chunk borders at odd places
    for (int64_t first = 0; first < elements; first += kPiece) {
      const int64_t count = std::min(kPiece, elements - first);
      std::vector<std::byte> bytes(static_cast<size_t>(count * SizeOf(dtype)));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = (first + i + 1009 * tensor.value()) % kPeriod;
        StoreElement(dtype, bytes.data(), i, normals_[static_cast<size_t>(at)]);
      }
      GANTRY_RETURN_IF_ERROR(store_->WriteState(frozen ? StateKind::kParameter : StateKind::kMaster,
                                                tensor, first, bytes));
    }
  }
  return absl::OkStatus();
}

void ToyModel::Mix(const LeasedTensor& tensor) {
  double sum = 0.0;
  for (int64_t i = 0; i < tensor.elements; ++i) {
    sum += LoadElement(tensor.dtype, tensor.parameter, i) * (1.0 + static_cast<double>(i % 13));
  }
  x_ = 0.5 * x_ + sum / static_cast<double>(tensor.elements);
}

absl::Status ToyModel::Read(TensorId tensor, std::string_view name) {
  const ParameterUse use{tensor, ParameterAccess::kRead};
  GANTRY_ASSIGN_OR_RETURN(const Lease lease,
                          store_->Acquire(std::span(&use, 1), name, Phase::kForward));
  if (!store_->dry_run()) Mix(lease[0]);
  return absl::OkStatus();
}

int64_t ToyModel::dry_steps() const {
  return std::ranges::count(options_.savings, LayerSaving::kPlanned) > 0 ? 2 : 1;
}

std::byte ToyModel::PatternOf(size_t l, int64_t micro_batch) const {
  return static_cast<std::byte>(static_cast<int64_t>(l) * 31 + micro_batch * 7 + steps_ + 1);
}

// Reads the layer's parameters and makes its activations: two that are saved around one that is
// not.
absl::StatusOr<std::vector<ArenaBuffer>> ToyModel::RunLayer(size_t l, int64_t micro_batch,
                                                            Phase phase) {
  const ParameterUse uses[] = {{layers_[l].weight, ParameterAccess::kRead},
                               {layers_[l].norm, ParameterAccess::kRead}};
  GANTRY_ASSIGN_OR_RETURN(const Lease lease, store_->Acquire(uses, StrCat("layer ", l), phase));
  if (!store_->dry_run() && phase == Phase::kForward) {
    Mix(lease[0]);
    Mix(lease[1]);
  }
  std::vector<ArenaBuffer> buffers;
  const int64_t bytes =
      variation_.activation_bytes > 0 ? variation_.activation_bytes : options_.activation_bytes;
  std::vector<int64_t> sizes = {bytes};
  if (!options_.savings.empty()) sizes = {bytes, bytes / 3, bytes / 7};
  for (const int64_t size : sizes) {
    GANTRY_ASSIGN_OR_RETURN(ArenaBuffer buffer, store_->arena().Allocate(size));
    if (!store_->dry_run()) {
      std::memset(buffer.data(), static_cast<int>(PatternOf(l, micro_batch)),
                  static_cast<size_t>(buffer.bytes()));
    }
    buffers.push_back(std::move(buffer));
  }
  if (buffers.size() > 1) buffers.erase(buffers.begin() + 1);
  return buffers;
}

absl::Status ToyModel::ForwardLayer(size_t l, int64_t micro_batch) {
  Made made;
  const bool passes = training_ && !options_.savings.empty();
  LayerActivations& layers = store_->layer_activations();
  if (passes) {
    const LayerSaving wanted = options_.savings[l % options_.savings.size()];
    GANTRY_ASSIGN_OR_RETURN(made.pass, layers.BeginLayer(static_cast<int32_t>(l), wanted));
  }
  GANTRY_ASSIGN_OR_RETURN(made.activations, RunLayer(l, micro_batch, Phase::kForward));
  const bool evaluates = !training_ && !options_.savings.empty();
  if (evaluates || made.pass.saving == LayerSaving::kRecompute) made.activations.clear();
  if (passes) {
    GANTRY_ASSIGN_OR_RETURN(made.output,
                            store_->arena().Allocate(1 + options_.activation_bytes / 9));
    GANTRY_RETURN_IF_ERROR(layers.EndLayer(made.pass, made.output.data()));
  }
  made_.push_back(std::move(made));
  return absl::OkStatus();
}

absl::Status ToyModel::Forward(int64_t micro_batch) {
  x_ = 0.1 * static_cast<double>(micro_batch + steps_);
  GANTRY_RETURN_IF_ERROR(Read(special_[kTied], "embed"));
  GANTRY_RETURN_IF_ERROR(Read(special_[kFrozen], "frozen"));
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (static_cast<int64_t>(l) == variation_.skipped_layer) {
      made_.emplace_back();
      continue;
    }
    GANTRY_RETURN_IF_ERROR(ForwardLayer(l, micro_batch));
  }
  return Read(special_[kTied], "head");
}

absl::Status ToyModel::Contribute(const std::vector<TensorId>& tensors, std::string_view name,
                                  int64_t salt) {
  std::vector<ParameterUse> uses;
  for (const TensorId tensor : tensors) uses.push_back({tensor, ParameterAccess::kReadAndGradient});
  GANTRY_ASSIGN_OR_RETURN(const Lease lease, store_->Acquire(uses, name, Phase::kBackward));
  if (store_->dry_run()) return absl::OkStatus();
  for (int t = 0; t < lease.size(); ++t) {
    const LeasedTensor& leased = lease[t];
    const Random random({.seed = 7, .stream = static_cast<uint64_t>(salt)});
    const double noise = random.Normal(static_cast<uint64_t>(leased.tensor.value()));
    AddGradient(leased, noise + x_, salt);
    if (steps_ + 1 == options_.infinite_step) {
      StoreElement(leased.gradient_dtype, leased.gradient, leased.elements / 2,
                   std::numeric_limits<float>::infinity());
    }
  }
  return absl::OkStatus();
}

void ToyModel::AddGradient(const LeasedTensor& tensor, double factor, int64_t salt) {
  int64_t phase = salt % kPeriod;
  for (int64_t i = 0; i < tensor.elements; ++i) {
    float value = 0.01f * LoadElement(tensor.dtype, tensor.parameter, i) +
                  static_cast<float>(factor) * wave_[static_cast<size_t>(phase)];
    if (++phase == kPeriod) phase = 0;
    if (tensor.gradient_content == GradientContent::kPartial) {
      value += LoadElement(tensor.gradient_dtype, tensor.gradient, i);
    }
    StoreElement(tensor.gradient_dtype, tensor.gradient, i, value);
  }
}

// Activations must have survived everything that moved since the forward pass.
absl::Status ToyModel::CheckActivations(const std::vector<ArenaBuffer>& activations, size_t l,
                                        int64_t micro_batch) const {
  if (store_->dry_run()) return absl::OkStatus();
  for (const ArenaBuffer& activation : activations) {
    for (int64_t i = 0; i < activation.bytes(); i += 97) {
      if (activation.data()[i] == PatternOf(l, micro_batch)) continue;
      return DataLoss("activation of layer ", l, " changed at byte ", i);
    }
  }
  return absl::OkStatus();
}

absl::Status ToyModel::BackwardLayer(size_t l, int64_t micro_batch) {
  Made made = std::move(made_[l]);
  made_.pop_back();
  const bool passes = training_ && !options_.savings.empty();
  LayerActivations& layers = store_->layer_activations();
  if (passes) GANTRY_RETURN_IF_ERROR(layers.BeginLayerBackward(made.pass));
  if (made.pass.saving == LayerSaving::kRecompute) {
    GANTRY_ASSIGN_OR_RETURN(made.activations, RunLayer(l, micro_batch, Phase::kBackward));
  }
  GANTRY_RETURN_IF_ERROR(CheckActivations(made.activations, l, micro_batch));
  const int64_t salt = 100 * steps_ + 10 * micro_batch + static_cast<int64_t>(l) + 1;
  if (static_cast<int64_t>(l) != variation_.constant_layer) {
    GANTRY_RETURN_IF_ERROR(
        Contribute({layers_[l].weight, layers_[l].norm}, StrCat("layer ", l, " backward"), salt));
  }
  made.activations.clear();
  return passes ? layers.EndLayerBackward(made.pass) : absl::OkStatus();
}

absl::Status ToyModel::Backward(int64_t micro_batch) {
  const int64_t salt = 100 * steps_ + 10 * micro_batch;
  GANTRY_RETURN_IF_ERROR(Contribute({special_[kTied]}, "head backward", salt));
  for (size_t l = layers_.size(); l-- > 0;) {
    const auto number = static_cast<int64_t>(l);
    if (number == variation_.skipped_layer) {
      made_.pop_back();
      continue;
    }
    GANTRY_RETURN_IF_ERROR(BackwardLayer(l, micro_batch));
    if (number == variation_.constant_layer) continue;
    store_->GradientReady(layers_[l].weight);
    store_->GradientReady(layers_[l].norm);
  }
  GANTRY_RETURN_IF_ERROR(Contribute({special_[kTied]}, "embed backward", salt + 9));
  store_->GradientReady(special_[kTied]);
  return absl::OkStatus();
}

absl::StatusOr<StepResult> ToyModel::TrainStep(const OptimizerStep& hyper) {
  training_ = true;
  const int64_t micro_batches =
      variation_.micro_batches > 0 ? variation_.micro_batches : options_.micro_batches;
  const bool again = dry_steps() > 1 && store_->dry_run() && dry_steps_made_++ % 2 == 1;
  GANTRY_RETURN_IF_ERROR(
      store_->BeginStep({.micro_batches = micro_batches,
                         .optimizer = hyper,
                         .dry_layers = again ? LayerSaving::kRecompute : LayerSaving::kKeep}));
  for (int64_t m = 0; m < micro_batches; ++m) {
    GANTRY_RETURN_IF_ERROR(store_->BeginMicroBatch());
    GANTRY_RETURN_IF_ERROR(Forward(m));
    GANTRY_RETURN_IF_ERROR(Backward(m));
    if (!store_->dry_run()) losses_.push_back(x_);
  }
  GANTRY_ASSIGN_OR_RETURN(const StepResult result, store_->EndStep());
  if (!store_->dry_run()) {
    ++steps_;
    losses_.push_back(result.gradient_norm);
  }
  return result;
}

absl::Status ToyModel::Evaluate() {
  training_ = false;
  GANTRY_RETURN_IF_ERROR(store_->BeginStep({.trace_key = "evaluate", .optimizer = {}}));
  GANTRY_RETURN_IF_ERROR(store_->BeginMicroBatch());
  GANTRY_RETURN_IF_ERROR(Forward(0));
  made_.clear();
  losses_.push_back(x_);
  return store_->EndStep().status();
}

absl::StatusOr<uint64_t> ToyModel::Hash(StateKind kind) {
  Hasher hasher;
  for (const TensorId tensor : tensors_) {
    const TensorSpec& spec = store_->layout().tensor(tensor);
    if (!store_->layout().HasState(kind, tensor)) continue;
    const int64_t elements = store_->layout().StateElements(kind, tensor);
    const int64_t size = kind == StateKind::kParameter ? SizeOf(spec.dtype) : 4;
    std::vector<std::byte> bytes(static_cast<size_t>(elements * size));
    GANTRY_RETURN_IF_ERROR(store_->ReadState(kind, tensor, 0, bytes));
    hasher.Update(bytes);
  }
  return hasher.Digest64();
}

}  // namespace gantry
