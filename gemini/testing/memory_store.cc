#include "gemini/testing/memory_store.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/host/host_device.h"
#include "gemini/optimizer_step.h"
#include "gemini/step_decision.h"
#include "offload/elements.h"
#include "offload/gradient_norm.h"
#include "offload/optimizer.h"

namespace gantry {
namespace {

// The arena may need more addresses than memory: first fit leaves gaps.
constexpr int64_t kArenaPagesPerSlot = 4;
// All bits set is NaN in f32 and bf16.
constexpr std::byte kPoison{0xff};
// In the page at address zero, which no process maps; a multiple of every alignment in use.
constexpr uintptr_t kDryAddress = 256;
std::byte* DryAddress() {
  return reinterpret_cast<std::byte*>(kDryAddress);  // NOLINT(performance-no-int-to-ptr): it faults
}

float LoadElement(const std::byte* from, DType dtype) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return dtype == DType::kBF16 ? BF16BitsToFloat(bits) : F16BitsToFloat(bits);
}

void StoreElement(float value, DType dtype, std::byte* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? FloatToBF16Bits(value) : FloatToF16Bits(value);
  std::memcpy(to, &bits, sizeof bits);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryStore>> MemoryStore::Create(Options options) {
  if (options.team == nullptr) return InvalidArgument("MemoryStore needs a thread team");
  if (options.activation_slots < 1) {
    return InvalidArgument("activation_slots must be positive, not ", options.activation_slots);
  }
  // The layout of no tensors checks the other options.
  auto store = std::unique_ptr<MemoryStore>(new MemoryStore(options));
  GANTRY_RETURN_IF_ERROR(ChunkLayout::Create({}, {}, store->LayoutOptions()).status());
  GANTRY_RETURN_IF_ERROR(store->CreateArena());
  return store;
}

ChunkLayout::Options MemoryStore::LayoutOptions() const {
  return {.chunk_elements = options_.chunk_elements,
          .gradient_dtype = options_.gradient_dtype,
          .optimizer = options_.optimizer,
          .state_format = options_.state_format};
}

MemoryStore::~MemoryStore() { GANTRY_CHECK_EQ(open_leases_, 0) << "a lease outlives its store"; }

absl::Status MemoryStore::CreateArena() {
  GANTRY_ASSIGN_OR_RETURN(
      device_, CreateHostDevice({.topology = DeviceTopology::kUnified, .clock = &clock_}));
  const Bytes slot_bytes(options_.chunk_elements * 2);
  GANTRY_ASSIGN_OR_RETURN(slab_, device_->CreateSlab({.kind = MemoryKind::kDevice,
                                                      .slot_bytes = slot_bytes,
                                                      .slot_count = options_.activation_slots}));
  pool_ = std::make_unique<SlotPool>(slab_.get());
  GANTRY_ASSIGN_OR_RETURN(
      std::unique_ptr<AddressSpace> space,
      device_->ReserveAddressSpace(slab_.get(), options_.activation_slots * kArenaPagesPerSlot));
  SlotSource* const source = this;
  arena_ = std::make_unique<ActivationArena>(std::move(space), slot_bytes, source);
  arena_->SetMode(ActivationArena::Mode::kDryRun);
  return absl::OkStatus();
}

absl::StatusOr<SlotId> MemoryStore::AcquireActivationSlot() {
  const std::optional<SlotId> slot = pool_->TryAcquire(MemoryTag::kActivation);
  if (slot.has_value()) return *slot;
  return ResourceExhausted("no slot left for activations: ", pool_->usage().ToString());
}

void MemoryStore::ReleaseActivationSlot(SlotId slot) { pool_->Release(slot); }

bool MemoryStore::Has(TensorId tensor) const {
  return tensor.value() >= 0 && tensor.value() < static_cast<int64_t>(tensors_.size());
}

absl::StatusOr<TensorId> MemoryStore::Register(const TensorSpec& spec,
                                               const RegistrationOptions& options) {
  GANTRY_CHECK(dry_run()) << "tensor '" << spec.name << "' registered after Seal";
  GANTRY_ASSIGN_OR_RETURN(const ChunkLayout alone,
                          ChunkLayout::Create({spec}, {}, LayoutOptions()));
  const TensorId id(static_cast<int64_t>(tensors_.size()));
  if (!names_.try_emplace(spec.name, id).second) {
    return InvalidArgument("two tensors are named '", spec.name, "'");
  }
  tensors_.push_back({.spec = spec, .options = options, .elements = alone.used_elements()});
  return id;
}

absl::Status MemoryStore::Alias(std::string_view name, TensorId tensor) {
  GANTRY_CHECK(dry_run()) << "alias '" << name << "' after Seal";
  if (!Has(tensor)) return InvalidArgument("alias '", name, "' of unknown ", tensor);
  if (name.empty()) return InvalidArgument("an alias of ", tensor, " has an empty name");
  if (!names_.try_emplace(std::string(name), tensor).second) {
    return InvalidArgument("alias '", name, "' is already a name");
  }
  aliases_.emplace_back(std::string(name), state(tensor).spec.name);
  return absl::OkStatus();
}

absl::Status MemoryStore::Seal() {
  if (!dry_run()) return FailedPrecondition("the store is sealed already");
  if (step_.has_value()) return FailedPrecondition("Seal inside a step");
  std::vector<TensorSpec> specs;
  specs.reserve(tensors_.size());
  for (const TensorState& tensor : tensors_) specs.push_back(tensor.spec);
  GANTRY_ASSIGN_OR_RETURN(const std::vector<GroupExtent> extents, MeasureGroups(specs));
  GANTRY_ASSIGN_OR_RETURN(layout_,
                          ChunkLayout::Create(std::move(specs), aliases_, LayoutOptions()));
  for (const GroupExtent& extent : extents) {
    GroupStorage& group = groups_.emplace_back();
    group.extent = extent.elements;
    const auto elements = static_cast<size_t>(extent.elements);
    group.parameter.resize(elements * static_cast<size_t>(SizeOf(extent.dtype)));
    if (extent.trainability == Trainability::kFrozen) continue;
    group.gradient.resize(elements * static_cast<size_t>(SizeOf(GradientDType(extent.dtype))));
    if (extent.dtype != DType::kF32) group.master.resize(elements);
    const OptimizerStates states = StatesOf(options_.optimizer);
    const StateFormat format = options_.state_format;
    if (states.momentum) group.momentum = {StateKind::kMomentum, extent.elements, format};
    if (states.variance) group.variance = {StateKind::kVariance, extent.elements, format};
  }
  for (int64_t i = 0; i < layout().tensor_count(); ++i) {
    const TensorPlacement& place = layout().placement(TensorId(i));
    GroupStorage& group = groups_[static_cast<size_t>(place.group)];
    group.momentum.AddTensor(place.offset, place.elements);
    group.variance.AddTensor(place.offset, place.elements);
    if (!FactorsVariance(options_.optimizer)) continue;
    std::optional<AdafactorFactors>& factors = factors_.emplace_back();
    const TensorSpec& spec = layout().tensor(TensorId(i));
    if (spec.trainability == Trainability::kTrainable) factors.emplace(spec.shape, place.offset);
  }
  arena_->SetMode(ActivationArena::Mode::kBacked);
  return absl::OkStatus();
}

const ChunkLayout& MemoryStore::layout() const {
  GANTRY_CHECK(layout_.has_value()) << "layout() before Seal";
  return *layout_;
}

absl::Status MemoryStore::BeginStep(const StepOptions& options) {
  if (step_.has_value()) return FailedPrecondition("BeginStep inside a step");
  if (options.micro_batches < 1) {
    return InvalidArgument("a step of ", options.micro_batches, " micro-batches");
  }
  if (options.optimizer.has_value()) {
    GANTRY_RETURN_IF_ERROR(ValidateOptimizerStep(*options.optimizer, options_.optimizer));
  }
  step_ = options;
  micro_batches_begun_ = 0;
  for (TensorState& tensor : tensors_) tensor.gradient_written = false;
  if (options.optimizer.has_value()) FillGradients(kPoison);
  return absl::OkStatus();
}

absl::Status MemoryStore::BeginMicroBatch() {
  if (!step_.has_value()) return FailedPrecondition("BeginMicroBatch outside a step");
  if (open_leases_ != 0) return FailedPrecondition(open_leases_, " leases across micro-batches");
  if (micro_batches_begun_ == step_->micro_batches) {
    return FailedPrecondition("more micro-batches than the step's ", step_->micro_batches);
  }
  ++micro_batches_begun_;
  for (TensorState& tensor : tensors_) tensor.gradient_ready = false;
  return absl::OkStatus();
}

absl::Status MemoryStore::CheckUse(const ParameterUse& use, std::string_view name) const {
  if (!Has(use.tensor)) return InvalidArgument(name, " uses unknown ", use.tensor);
  const TensorState& tensor = state(use.tensor);
  if (tensor.gradient_ready) {
    return FailedPrecondition(name, " uses '", tensor.spec.name,
                              "' after its gradient was declared ready");
  }
  if (tensor.leased) {
    return FailedPrecondition(name, " uses '", tensor.spec.name, "', which another lease holds");
  }
  if (use.access == ParameterAccess::kRead) return absl::OkStatus();
  if (tensor.spec.trainability == Trainability::kFrozen) {
    return InvalidArgument(name, " asks for the gradient of frozen '", tensor.spec.name, "'");
  }
  if (!step_->optimizer.has_value()) {
    return FailedPrecondition(name, " asks for the gradient of '", tensor.spec.name,
                              "' in an evaluation step");
  }
  return absl::OkStatus();
}

LeasedTensor MemoryStore::MakeLeased(const ParameterUse& use) {
  const TensorState& tensor = state(use.tensor);
  LeasedTensor leased{.tensor = use.tensor,
                      .parameter = nullptr,
                      .gradient = nullptr,
                      .gradient_content = tensor.gradient_written ? GradientContent::kPartial
                                                                  : GradientContent::kEmpty,
                      .dtype = tensor.spec.dtype,
                      .gradient_dtype = GradientDType(tensor.spec.dtype),
                      .elements = tensor.elements};
  if (use.access != ParameterAccess::kGradient) {
    leased.parameter = DryAddress();
    if (!dry_run()) {
      const TensorPlacement& place = layout().placement(use.tensor);
      leased.parameter = groups_[static_cast<size_t>(place.group)].parameter.data() +
                         place.offset * SizeOf(leased.dtype);
    }
  }
  if (use.access != ParameterAccess::kRead) {
    leased.gradient = dry_run() ? DryAddress() : GradientOf(use.tensor);
  }
  return leased;
}

absl::StatusOr<Lease> MemoryStore::Acquire(std::span<const ParameterUse> uses,
                                           std::string_view name, Phase phase) {
  if (!step_.has_value() || micro_batches_begun_ == 0) {
    return FailedPrecondition(name, " takes a lease outside a micro-batch");
  }
  if (uses.size() > Lease::kTensorsMax) {
    return InvalidArgument(name, " uses ", uses.size(), " tensors; a lease holds at most ",
                           Lease::kTensorsMax);
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    GANTRY_RETURN_IF_ERROR(CheckUse(uses[i], name));
    for (size_t j = 0; j < i; ++j) {
      if (uses[j].tensor == uses[i].tensor) {
        return InvalidArgument(name, " names '", state(uses[i].tensor).spec.name, "' twice");
      }
    }
  }
  Lease lease = LeaseAccess::Make(this, phase);
  for (const ParameterUse& use : uses) {
    LeaseAccess::Add(lease, use.access, MakeLeased(use));
    state(use.tensor).leased = true;
  }
  ++open_leases_;
  return lease;
}

void MemoryStore::ReleaseLease(const Lease& lease) {
  for (int i = 0; i < lease.size(); ++i) {
    TensorState& tensor = state(lease[i].tensor);
    GANTRY_CHECK(tensor.leased) << tensor.spec.name;
    tensor.leased = false;
    if (LeaseAccess::access(lease, i) != ParameterAccess::kRead) tensor.gradient_written = true;
  }
  --open_leases_;
}

void MemoryStore::GradientReady(TensorId tensor) {
  GANTRY_CHECK(Has(tensor)) << tensor;
  TensorState& it = state(tensor);
  GANTRY_CHECK(step_.has_value() && step_->optimizer.has_value() && micro_batches_begun_ > 0)
      << "GradientReady of '" << it.spec.name << "' outside a training micro-batch";
  GANTRY_CHECK(it.spec.trainability == Trainability::kTrainable) << it.spec.name;
  GANTRY_CHECK(!it.leased) << it.spec.name;
  GANTRY_CHECK(!it.gradient_ready) << it.spec.name << " was ready already";
  it.gradient_ready = true;
}

absl::StatusOr<StepResult> MemoryStore::EndStep() {
  if (!step_.has_value()) return FailedPrecondition("EndStep outside a step");
  const StepOptions options = *std::move(step_);
  step_.reset();
  if (open_leases_ != 0) return FailedPrecondition("EndStep with ", open_leases_, " live leases");
  if (micro_batches_begun_ != options.micro_batches) {
    return FailedPrecondition("the step announced ", options.micro_batches,
                              " micro-batches and ran ", micro_batches_begun_);
  }
  StepResult result;
  if (!options.optimizer.has_value()) return result;
  result.outcome = StepResult::Outcome::kUpdated;
  if (dry_run()) return result;
  FillUntouchedGradients();
  const StepDecision decision = Decide(*options.optimizer, NormPartials());
  result.gradient_norm = decision.gradient_norm;
  result.clip_factor = decision.clip_factor;
  if (decision.skip) {
    result.outcome = StepResult::Outcome::kSkippedNonFinite;
  } else {
    Update(*options.optimizer, decision.gradient_factor);
  }
  return result;
}

std::byte* MemoryStore::GradientOf(TensorId tensor) {
  const TensorPlacement& place = layout().placement(tensor);
  return groups_[static_cast<size_t>(place.group)].gradient.data() +
         place.offset * SizeOf(GradientDType(state(tensor).spec.dtype));
}

void MemoryStore::FillGradients(std::byte value) {
  if (dry_run()) return;
  for (int64_t i = 0; i < layout().tensor_count(); ++i) FillGradient(TensorId(i), value);
}

void MemoryStore::FillUntouchedGradients() {
  for (int64_t i = 0; i < layout().tensor_count(); ++i) {
    if (!state(TensorId(i)).gradient_written) FillGradient(TensorId(i), std::byte{0});
  }
}

void MemoryStore::FillGradient(TensorId tensor, std::byte value) {
  const TensorState& it = state(tensor);
  if (it.spec.trainability == Trainability::kFrozen) return;
  std::fill_n(GradientOf(tensor), it.elements * SizeOf(GradientDType(it.spec.dtype)), value);
}

std::vector<double> MemoryStore::NormPartials() const {
  std::vector<double> partials;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupStorage& group = groups_[g];
    if (layout().groups()[g].trainability == Trainability::kFrozen) continue;
    const ConstElements gradient{.data = group.gradient.data(),
                                 .dtype = GradientDType(layout().groups()[g].dtype)};
    const size_t first = partials.size();
    partials.resize(first + static_cast<size_t>(SegmentCount(group.extent)));
    // What is not finite shows in the partials.
    std::ignore = SegmentSumSquares(gradient, group.extent, std::span(partials).subspan(first),
                                    options_.team);
  }
  return partials;
}

void MemoryStore::RoundMoments() {
  for (GroupStorage& group : groups_) {
    group.momentum.RoundAll();
    group.variance.RoundAll();
  }
}

void MemoryStore::Update(const OptimizerStep& step, float gradient_factor) {
  const OptimizerStates states = StatesOf(options_.optimizer);
  RoundMoments();
  for (int64_t i = 0; i < layout().tensor_count(); ++i) {
    const TensorState& tensor = state(TensorId(i));
    if (tensor.spec.trainability == Trainability::kFrozen) continue;
    const TensorPlacement& place = layout().placement(TensorId(i));
    GroupStorage& group = groups_[static_cast<size_t>(place.group)];
    std::byte* parameter = group.parameter.data() + place.offset * SizeOf(tensor.spec.dtype);
    OptimizerSlice slice{
        .count = place.elements,
        .momentum = states.momentum ? group.momentum.data() + place.offset : nullptr,
        .variance = states.variance ? group.variance.data() + place.offset : nullptr,
        .gradient = {.data = GradientOf(TensorId(i)), .dtype = GradientDType(tensor.spec.dtype)},
        .parameter = std::nullopt};
    if (tensor.spec.dtype == DType::kF32) {
      slice.master = reinterpret_cast<float*>(parameter);
    } else {
      slice.master = group.master.data() + place.offset;
      slice.parameter = Elements{.data = parameter, .dtype = tensor.spec.dtype};
    }
    UpdateTensor(TensorId(i), slice, step, gradient_factor);
  }
  RoundMoments();
}

void MemoryStore::UpdateTensor(TensorId tensor, const OptimizerSlice& slice,
                               const OptimizerStep& step, float gradient_factor) {
  const OptimizerHyper hyper = HyperOf(step, state(tensor).options);
  if (factors_.empty()) {
    UpdateSlice(slice, hyper, gradient_factor, options_.team);
    return;
  }
  AdafactorFactors& factors = *factors_[static_cast<size_t>(tensor.value())];
  factors.ObserveGradient(0, slice.count, slice.gradient, options_.team);
  factors.ObserveMaster(0, slice.count, slice.master, options_.team);
  factors.UpdateFactors(hyper, gradient_factor);
  factors.MeasureUpdate(0, slice.count, slice.gradient, options_.team);
  factors.Update(0, slice, options_.team);
}

absl::StatusOr<MemoryStore::StateRange> MemoryStore::FindState(StateKind kind, TensorId tensor,
                                                               int64_t first, int64_t bytes) {
  if (dry_run()) return FailedPrecondition("state of ", tensor, " before Seal");
  if (step_.has_value()) return FailedPrecondition("state of ", tensor, " inside a step");
  if (!Has(tensor)) return InvalidArgument("state of unknown ", tensor);
  const TensorState& it = state(tensor);
  if (it.spec.trainability == Trainability::kFrozen && kind != StateKind::kParameter) {
    return InvalidArgument("frozen '", it.spec.name, "' has no ", Name(kind));
  }
  if (kind == StateKind::kGradient) {
    return InvalidArgument("the gradient of '", it.spec.name, "' is consumed by its step");
  }
  if (!layout().HasState(kind, tensor)) {
    return InvalidArgument("'", it.spec.name, "' has no ", Name(kind), " with ",
                           options_.optimizer);
  }
  const TensorPlacement& place = layout().placement(tensor);
  GroupStorage& group = groups_[static_cast<size_t>(place.group)];
  const bool own_master = kind == StateKind::kMaster && it.spec.dtype == DType::kF32;
  const bool factored = kind == StateKind::kVariance && !factors_.empty();
  std::byte* base = group.parameter.data();
  int64_t element_bytes = SizeOf(it.spec.dtype);
  if (kind != StateKind::kParameter && !own_master) {
    float* const values = kind == StateKind::kMaster     ? group.master.data()
                          : kind == StateKind::kMomentum ? group.momentum.data()
                          : factored ? factors_[static_cast<size_t>(tensor.value())]->state().data()
                                     : group.variance.data();
    base = reinterpret_cast<std::byte*>(values);
    element_bytes = SizeOf(DType::kF32);
  }
  if (bytes % element_bytes != 0) {
    return InvalidArgument(bytes, " bytes of ", Name(kind), " of '", it.spec.name,
                           "' are no multiple of ", element_bytes);
  }
  const int64_t count = bytes / element_bytes;
  const int64_t elements = layout().StateElements(kind, tensor);
  if (first < 0 || first > elements || count > elements - first) {
    return InvalidArgument("elements [", first, ", ", first, " + ", count, ") of ", Name(kind),
                           " of '", it.spec.name, "', which has ", elements);
  }
  const int64_t begin = (factored ? 0 : place.offset) + first;
  return StateRange{.begin = base + begin * element_bytes, .element_bytes = element_bytes};
}

absl::Status MemoryStore::ReadState(StateKind kind, TensorId tensor, int64_t first,
                                    std::span<std::byte> bytes) {
  GANTRY_ASSIGN_OR_RETURN(const StateRange range,
                          FindState(kind, tensor, first, static_cast<int64_t>(bytes.size())));
  std::copy_n(range.begin, bytes.size(), bytes.data());
  return absl::OkStatus();
}

absl::Status MemoryStore::WriteState(StateKind kind, TensorId tensor, int64_t first,
                                     std::span<const std::byte> bytes) {
  GANTRY_ASSIGN_OR_RETURN(const StateRange range,
                          FindState(kind, tensor, first, static_cast<int64_t>(bytes.size())));
  std::copy_n(bytes.data(), bytes.size(), range.begin);
  DeriveFromWrite(kind, tensor, first, static_cast<int64_t>(bytes.size()) / range.element_bytes);
  return absl::OkStatus();
}

void MemoryStore::DeriveFromWrite(StateKind kind, TensorId tensor, int64_t first, int64_t count) {
  if (kind == StateKind::kVariance && !factors_.empty()) return;  // factors are of no element
  const TensorState& it = state(tensor);
  const TensorPlacement& place = layout().placement(tensor);
  GroupStorage& group = groups_[static_cast<size_t>(place.group)];
  const int64_t begin = place.offset + first;
  if (kind == StateKind::kMomentum) group.momentum.OnWritten(begin, count);
  if (kind == StateKind::kVariance) group.variance.OnWritten(begin, count);
  if (group.master.empty()) return;  // f32 or frozen
  const int64_t size = SizeOf(it.spec.dtype);
  for (int64_t i = begin; i < begin + count; ++i) {
    std::byte* parameter = group.parameter.data() + i * size;
    float& master = group.master[static_cast<size_t>(i)];
    if (kind == StateKind::kMaster) StoreElement(master, it.spec.dtype, parameter);
    if (kind == StateKind::kParameter) master = LoadElement(parameter, it.spec.dtype);
  }
}

absl::StatusOr<std::vector<float>> MemoryStore::Gradient(TensorId tensor) const {
  if (dry_run()) return FailedPrecondition("gradient of ", tensor, " before Seal");
  if (!Has(tensor)) return InvalidArgument("gradient of unknown ", tensor);
  const TensorState& it = state(tensor);
  if (it.spec.trainability == Trainability::kFrozen) {
    return InvalidArgument("frozen '", it.spec.name, "' has no gradient");
  }
  std::vector<float> values(static_cast<size_t>(it.elements), 0.0F);
  if (!it.gradient_written) return values;
  const DType dtype = GradientDType(it.spec.dtype);
  const TensorPlacement& place = layout().placement(tensor);
  const std::byte* from = groups_[static_cast<size_t>(place.group)].gradient.data();
  for (int64_t i = 0; i < it.elements; ++i) {
    values[static_cast<size_t>(i)] = LoadElement(from + (place.offset + i) * SizeOf(dtype), dtype);
  }
  return values;
}

}  // namespace gantry
