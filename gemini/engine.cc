#include "gemini/engine.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/chunk_size.h"
#include "chunk/optimizer_states.h"
#include "gemini/engine_impl.h"
#include "gemini/optimizer_step.h"

namespace gantry {
namespace {

// Addresses for activations in a dry run: enough for any step that is worth planning. Nothing is
// mapped there.
constexpr Bytes kDrySlotBytes = 64_MiB;
constexpr int64_t kDryPages = int64_t{1} << 14;    // 1 TiB
constexpr int64_t kDryPagesMin = int64_t{1} << 8;  // 16 GiB

// Virtual pages of the arena per device slot: first fit leaves gaps, addresses cost nothing.
constexpr int64_t kArenaPagesPerSlot = 8;

// Slots of the device, unless the chunk size is given: 64 GiB in slots of 4 MiB.
constexpr int64_t kSlotsMax = 16384;

// Sizes of what one operator uses, for the choice of the chunk size.
struct StepSizes {
  int64_t operator_elements_max = 0;
  int64_t activation_bytes_max = 0;
};

void Measure(const StepRecord& record, std::span<const TensorSpec> specs, StepSizes& sizes) {
  int64_t alive = 0;
  for (const StepRecord::Event& event : record.events) {
    if (event.kind == StepRecord::Event::Kind::kAllocate) alive += event.bytes;
    if (event.kind == StepRecord::Event::Kind::kFree) alive -= event.bytes;
    sizes.activation_bytes_max = std::max(sizes.activation_bytes_max, alive);
    if (event.kind != StepRecord::Event::Kind::kAcquire) continue;
    int64_t elements = 0;
    for (int32_t i = 0; i < event.use_count; ++i) {
      const ParameterUse& use = record.uses[static_cast<size_t>(event.first_use + i)];
      int64_t product = 1;
      for (const int64_t extent : specs[static_cast<size_t>(use.tensor.value())].shape) {
        product *= extent;
      }
      elements += product;
    }
    sizes.operator_elements_max = std::max(sizes.operator_elements_max, elements);
  }
}

}  // namespace

std::string_view Name(StallCause cause) {
  switch (cause) {
    case StallCause::kParameter:
      return "parameter";
    case StallCause::kRoom:
      return "room";
    case StallCause::kUpdate:
      return "update";
    case StallCause::kNorm:
      return "norm";
  }
  return "?";
}

std::string EngineStatistics::io_backend() const {
  return stripes.empty() ? "none" : stripes.front().backend;
}

bool EngineStatistics::direct_io() const {
  return !stripes.empty() && std::all_of(stripes.begin(), stripes.end(),
                                         [](const StripeReport& s) { return s.direct_io; });
}

Bytes EngineStatistics::file_bytes() const {
  Bytes bytes(0);
  for (const StripeReport& stripe : stripes) bytes += stripe.file_bytes;
  return bytes;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  GANTRY_CHECK(options.device != nullptr && options.team != nullptr && options.clock != nullptr &&
               options.logger != nullptr && options.files != nullptr);
  if (options.look_ahead < 0) {
    return InvalidArgument("look_ahead is ", options.look_ahead, ", it must be 0 or more");
  }
  if (options.device_memory <= Bytes::Zero()) {
    return InvalidArgument("the device budget is ", options.device_memory,
                           ", it must be more than nothing");
  }
  if (options.device->topology() == DeviceTopology::kDiscrete &&
      options.host_memory <= Bytes::Zero()) {
    return InvalidArgument("the host budget is ", options.host_memory,
                           ", it must be more than nothing on a device with memory of its own");
  }
  GANTRY_RETURN_IF_ERROR(CheckSupported(options.optimizer, options.state_format));
  GANTRY_RETURN_IF_ERROR(CheckUpdateOrder(options.optimizer, options.update_order));
  GANTRY_RETURN_IF_ERROR(CreatePolicy(options.policy, options.static_fractions).status());
  auto engine = std::make_unique<EngineImpl>(options);
  GANTRY_RETURN_IF_ERROR(engine->Prepare());
  return engine;
}

EngineImpl::EngineImpl(const EngineOptions& options) : EngineData(options) {}

absl::Status EngineImpl::Prepare() {
  GANTRY_ASSIGN_OR_RETURN(
      dry_slab_, options_.device->CreateSlab(
                     {.kind = MemoryKind::kDevice, .slot_bytes = kDrySlotBytes, .slot_count = 0}));
  // Less where addresses are short (a limit on virtual memory, a sanitizer).
  int64_t pages = kDryPages;
  auto space = options_.device->ReserveAddressSpace(dry_slab_.get(), pages);
  while (!space.ok() && pages > kDryPagesMin) {
    pages /= 2;
    space = options_.device->ReserveAddressSpace(dry_slab_.get(), pages);
  }
  GANTRY_RETURN_IF_ERROR(space.status());
  arena_ = std::make_unique<ActivationArena>(*std::move(space), kDrySlotBytes,
                                             static_cast<SlotSource*>(this));
  arena_->SetMode(ActivationArena::Mode::kDryRun);
  arena_->SetObserver(&tracer_);
  return absl::OkStatus();
}

EngineImpl::~EngineImpl() {
  StopBackground();
  transfers_.reset();  // finishes what is under way, before the memory goes
  updates_.reset();
  mover_.reset();
  arena_.reset();
}

absl::StatusOr<TensorId> EngineImpl::Register(const TensorSpec& spec,
                                              const RegistrationOptions& options) {
  if (!dry_run()) return FailedPrecondition("'", spec.name, "' was registered after Seal");
  specs_.push_back(spec);
  registrations_.push_back(options);
  const absl::Status valid = MeasureGroups(std::span(&specs_.back(), 1)).status();
  if (!valid.ok()) {
    specs_.pop_back();
    registrations_.pop_back();
    return valid;
  }
  return TensorId(static_cast<int64_t>(specs_.size()) - 1);
}

absl::Status EngineImpl::Alias(std::string_view name, TensorId tensor) {
  if (!dry_run()) return FailedPrecondition("'", name, "' was made an alias after Seal");
  if (!HasTensor(tensor)) return InvalidArgument("alias '", name, "' of unknown ", tensor);
  aliases_.emplace_back(name, specs_[static_cast<size_t>(tensor.value())].name);
  return absl::OkStatus();
}

const ChunkLayout& EngineImpl::layout() const {
  GANTRY_CHECK(layout_.has_value()) << "the layout is known after Seal";
  return *layout_;
}

absl::Status EngineImpl::Seal() {
  if (!dry_run()) return FailedPrecondition("Seal was called twice");
  if (step_.has_value()) return FailedPrecondition("Seal was called inside a step");
  if (specs_.empty()) return InvalidArgument("there are no parameters to train");
  GANTRY_RETURN_IF_ERROR(ChooseLayout());
  absl::Status created = CreateTiers();
  if (created.ok()) created = StartBackground();
  if (!created.ok()) {
    DestroyTiers();
    return created;
  }
  return absl::OkStatus();
}

absl::StatusOr<ChunkLayout> EngineImpl::MakeLayout(int64_t chunk_elements) const {
  return ChunkLayout::Create(specs_, aliases_,
                             {.chunk_elements = chunk_elements,
                              .gradient_dtype = options_.gradient_dtype,
                              .optimizer = options_.optimizer,
                              .state_format = options_.state_format});
}

BudgetInput EngineImpl::MakeBudgetInput() const {
  const bool unified = options_.device->topology() == DeviceTopology::kUnified;
  const int64_t slot = layout_->slot_bytes().count();
  BudgetInput input{.layout = &*layout_, .steps = {}, .placement = &placement_, .machine = {}};
  input.machine.slot_bytes = layout_->slot_bytes();
  input.machine.device_slots = options_.device_memory.count() / slot;
  input.machine.host_slots = unified ? 0 : options_.host_memory.count() / slot;
  input.machine.has_file_tier = !options_.spill_directories.empty();
  input.machine.unified = unified;
  return input;
}

// Takes the chunk size that was asked for, or the best one; a smaller one where that does not fit.
absl::Status EngineImpl::ChooseLayout() {
  StepSizes sizes;
  for (const auto& [key, records] : dry_records_) {
    StepSizes step;
    Measure(records.kept, specs_, step);
    if (records.again.has_value() &&
        2 * step.activation_bytes_max > options_.device_memory.count()) {
      // Not all layers will keep what they save.
      StepSizes again;
      Measure(*records.again, specs_, again);
      step.activation_bytes_max = std::min(step.activation_bytes_max, again.activation_bytes_max);
    }
    sizes.activation_bytes_max = std::max(sizes.activation_bytes_max, step.activation_bytes_max);
    sizes.operator_elements_max = std::max(sizes.operator_elements_max, step.operator_elements_max);
  }
  const int64_t granularity =
      std::max(kChunkGranularityElements, options_.device->slot_granularity().count() / 2);
  int64_t elements = options_.chunk_elements;
  if (elements == 0) {
    GANTRY_ASSIGN_OR_RETURN(std::vector<GroupExtent> groups, MeasureGroups(specs_));
    const bool unified = options_.device->topology() == DeviceTopology::kUnified;
    const absl::StatusOr<int64_t> chosen = ChooseChunkElements(
        {.groups = std::move(groups),
         .gradient_dtype = options_.gradient_dtype,
         .optimizer = options_.optimizer,
         .state_format = options_.state_format,
         .device_budget = options_.device_memory,
         .host_budget = unified ? Bytes(0) : options_.host_memory,
         .files = options_.spill_directories.empty() ? FileTier::kAbsent : FileTier::kPresent,
         .activation_bytes = Bytes(sizes.activation_bytes_max),
         .largest_operator_elements = sizes.operator_elements_max,
         .granularity_elements = granularity});
    // Its needs are sums of maxima. After a dry run the exact needs decide, and name the operator.
    const bool exact = absl::IsResourceExhausted(chosen.status()) && !dry_records_.empty();
    if (!chosen.ok() && !exact) return chosen.status();
    elements = exact ? RoundUp(kHugePageChunkElements, granularity) : *chosen;
    // A small model under a large budget: slots cost mappings, of which a process has few.
    while (options_.device_memory.count() / (2 * elements) > kSlotsMax) elements *= 2;
  }
  GANTRY_ASSIGN_OR_RETURN(const auto policy,
                          CreatePolicy(options_.policy, options_.static_fractions));
  const std::vector<LayerSaving> candidates = LayerCandidates();
  while (true) {
    absl::Status last;
    for (const LayerSaving planned : candidates) {
      absl::StatusOr<std::vector<CompiledPlan>> plans = TryChunkSize(elements, *policy, planned);
      last = plans.status();
      if (!last.ok()) continue;
      auto plan = plans->begin();
      MutexLock lock(mutex_);
      for (const auto& [key, records] : dry_records_) plans_.emplace(key, std::move(*plan++));
      return absl::OkStatus();
    }
    const int64_t smaller = RoundUp(elements / 2, granularity);
    if (options_.chunk_elements != 0 || smaller >= elements) return last;
    elements = smaller;
  }
}

// Lays out chunks of this size, compiles the dry steps for it (in the order of dry_records_), and
// places the chunks. Errors: kResourceExhausted when that does not fit the budgets.
absl::StatusOr<std::vector<CompiledPlan>> EngineImpl::TryChunkSize(int64_t elements,
                                                                   const PlacementPolicy& policy,
                                                                   LayerSaving planned) {
  GANTRY_ASSIGN_OR_RETURN(ChunkLayout layout, MakeLayout(elements));
  layout_ = std::move(layout);
  std::vector<CompiledPlan> plans;
  activation_blocks_ = 0;
  moved_blocks_ = 0;
  for (const auto& [key, records] : dry_records_) {
    GANTRY_ASSIGN_OR_RETURN(CompiledPlan plan, CompilePlan(records, planned));
    activation_blocks_ = std::max(activation_blocks_, plan.saved.blocks);
    moved_blocks_ = std::max(moved_blocks_, plan.step.moved_blocks);
    plans.push_back(std::move(plan));
  }
  std::vector<const CompiledStep*> steps;
  for (const CompiledPlan& plan : plans) steps.push_back(&plan.step);
  BudgetInput input = MakeBudgetInput();
  input.steps = steps;
  const std::vector<ChunkFacts> facts = FactsOf(*layout_);
  // First what operators need on the device whatever the policy, since that names the operator.
  placement_.chunks.assign(facts.size(), {.update_tier = Tier::kHost,
                                          .parameter_on_device = Residency::kFloating,
                                          .optimizer_on_update_tier = Residency::kFloating});
  BudgetNeed bare = LeastBudget(input);
  bare.host_slots = 0;  // that depends on the policy
  GANTRY_RETURN_IF_ERROR(CheckBudget(input, bare));
  GANTRY_ASSIGN_OR_RETURN(placement_,
                          policy.Place({.chunks = facts,
                                        .machine = input.machine,
                                        .activation_slots_max = bare.activation_slots}));
  const BudgetNeed need = LeastBudget(input);
  budget_report_ = {.least_device = layout_->slot_bytes() * need.device_slots,
                    .least_host = layout_->slot_bytes() * need.host_slots,
                    .activations_max = layout_->slot_bytes() * need.activation_slots};
  activation_slots_ = need.activation_slots;
  device_slots_ = input.machine.device_slots;
  host_slots_ = input.machine.host_slots;
  GANTRY_RETURN_IF_ERROR(CheckBudget(input, need));
  return plans;
}

absl::Status EngineImpl::CreateTiers() {
  const int64_t chunks = layout_->chunk_count();
  const std::vector<ChunkFacts> all_facts = FactsOf(*layout_);
  int64_t all_slots = 0;
  for (const ChunkFacts& facts : all_facts) {
    all_slots += facts.parameter_slots + facts.gradient_slots + facts.optimizer_slots;
  }
  budget_report_.model_state = layout_->slot_bytes() * all_slots;
  int64_t file_slots = all_slots + activation_blocks_;
  if (options_.update_order == UpdateOrder::kSpeculative) {
    // Two versions of what an update overwrites. An f32 parameter is its own master.
    for (const ChunkFacts& facts : all_facts) {
      if (facts.optimizer_slots > 0) file_slots += facts.optimizer_slots + facts.parameter_slots;
    }
  }
  GANTRY_ASSIGN_OR_RETURN(manager_,
                          ChunkManager::Create({.device = options_.device,
                                                .layout = &*layout_,
                                                .device_slots = device_slots_,
                                                .host_slots = host_slots_,
                                                .activation_blocks = activation_blocks_}));
  const std::span<std::byte> fixed_memory = manager_->storage_memory();
  std::optional<BlockStore::Options> store;
  if (!options_.spill_directories.empty()) {
    store = BlockStore::Options{.directories = options_.spill_directories,
                                .shares = options_.spill_shares,
                                .extent_bytes = layout_->slot_bytes(),
                                .extent_count = file_slots,
                                .verification = options_.verification,
                                .io = options_.io,
                                .fixed_memory = {&fixed_memory, 1},
                                .make_io = options_.make_io,
                                .sink = nullptr,
                                .files = options_.files,
                                .clock = options_.clock,
                                .logger = options_.logger};
  }
  std::function<void()> on_completion;
  if (options_.event_loop != nullptr && options_.simulated_update_bytes_per_second > 0) {
    simulated_self_ = std::make_shared<EngineImpl*>(this);
    on_completion = [self = simulated_self_] {
      if (*self != nullptr) (*self)->OnSimulatedCompletion();
    };
  }
  GANTRY_ASSIGN_OR_RETURN(transfers_,
                          TransferEngine::Create({.device = options_.device,
                                                  .part_bytes = layout_->slot_bytes(),
                                                  .store = std::move(store),
                                                  .clock = options_.clock,
                                                  .event_loop = options_.event_loop,
                                                  .trace_sink = options_.trace_sink,
                                                  .on_completion = std::move(on_completion)}));
  mover_ = std::make_unique<BlockMover>(BlockMover::Options{
      .manager = manager_.get(), .transfers = transfers_.get(), .order = placement_.eviction});
  std::vector<Tier> update_tiers;
  int64_t device_demand = activation_slots_ + moved_blocks_;
  bool updates_elsewhere = false;  // parameters come anew in each step
  for (int64_t c = 0; c < chunks; ++c) {
    const ChunkPlacement& place = placement_.chunks[static_cast<size_t>(c)];
    const Tier tier = manager_->unified() ? Tier::kDevice : place.update_tier;
    update_tiers.push_back(tier);
    const ChunkId chunk(c);
    mover_->SetResidency(Index(StateKind::kParameter, chunk), Tier::kDevice,
                         place.parameter_on_device);
    for (const StateKind kind : {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
      mover_->SetResidency(Index(kind, chunk), tier, place.optimizer_on_update_tier);
      mover_->SetHome(Index(kind, chunk), tier);
    }
    mover_->SetHome(Index(StateKind::kGradient, chunk), tier);
    if (place.parameter_on_device == Residency::kPinned) {
      mover_->SetHome(Index(StateKind::kParameter, chunk), tier);
    }
    const ChunkFacts& facts = all_facts[static_cast<size_t>(c)];
    device_demand += facts.parameter_slots + facts.gradient_slots;
    if (tier == Tier::kDevice) device_demand += facts.optimizer_slots;
    if (tier != Tier::kDevice && facts.gradient_slots > 0) updates_elsewhere = true;
    manager_->state(chunk).Transition(ChunkState::kHold, 0);
  }
  everything_fits_ = device_demand <= device_slots_ && !updates_elsewhere;
  updates_ = std::make_unique<UpdateQueue>(UpdateQueue::Options{
      .manager = manager_.get(),
      .mover = mover_.get(),
      .team = options_.team,
      .tensors = registrations_,
      .update_tiers = std::move(update_tiers),
      .order = options_.update_order,
      .on_updated = [this](ChunkId chunk, int64_t start)
                        GANTRY_NO_THREAD_SAFETY_ANALYSIS { return OnUpdated(chunk, start); }});
  GANTRY_ASSIGN_OR_RETURN(
      auto space,
      options_.device->ReserveAddressSpace(
          manager_->device_slab(), std::max<int64_t>(device_slots_, 8) * kArenaPagesPerSlot));
  arena_ = std::make_unique<ActivationArena>(std::move(space), layout_->slot_bytes(),
                                             static_cast<SlotSource*>(this));
  if (activation_blocks_ > 0) arena_->SetDetour(this);
  MutexLock lock(mutex_);
  update_times_.emplace(chunks);
  leaves_.assign(static_cast<size_t>(manager_->block_count()), 0);
  chunk_leases_.assign(static_cast<size_t>(chunks), 0);
  progress_.gradients_missing.assign(static_cast<size_t>(chunks), 0);
  progress_.contributed.assign(specs_.size(), 0);
  progress_.ready.assign(specs_.size(), 0);
  for (size_t t = 0; t < specs_.size(); ++t) {
    const TensorId tensor(static_cast<int64_t>(t));
    chunks_of_tensor_.push_back(layout_->ChunksOf(tensor));
    leased_.push_back(MakeLeased(tensor));
  }
  return absl::OkStatus();
}

LeasedTensor EngineImpl::MakeLeased(TensorId tensor) const {
  const TensorSpec& spec = layout_->tensor(tensor);
  const TensorPlacement& place = layout_->placement(tensor);
  const ChunkId chunk = layout_->ChunksOf(tensor).first;
  const int64_t in_chunk =
      place.offset - layout_->index_in_group(chunk) * layout_->chunk_elements();
  const auto address = [&](StateKind kind) -> std::byte* {
    const BlockId id{kind, chunk};
    if (!layout_->HasBlock(id)) return nullptr;
    return manager_->Home(manager_->IndexOf(id)) + in_chunk * SizeOf(layout_->dtype_of(id));
  };
  return {.tensor = tensor,
          .parameter = address(StateKind::kParameter),
          .gradient = address(StateKind::kGradient),
          .gradient_content = GradientContent::kEmpty,
          .dtype = spec.dtype,
          .gradient_dtype = spec.dtype == DType::kF32 ? DType::kF32 : options_.gradient_dtype,
          .elements = place.elements};
}

// Back to the dry run: Seal failed half way.
void EngineImpl::DestroyTiers() {
  transfers_.reset();
  updates_.reset();
  mover_.reset();
  manager_.reset();
  MutexLock lock(mutex_);
  plans_.clear();
}

EngineStatistics EngineImpl::statistics() const {
  MutexLock lock(mutex_);
  EngineStatistics result{};
  if (manager_ == nullptr) return result;
  result.device = manager_->pool(Tier::kDevice).usage();
  result.host = manager_->pool(Tier::kHost).usage();
  for (int lane = 0; lane < kTransferLaneCount; ++lane) {
    const auto l = static_cast<size_t>(lane);
    TransferCounters counters = transfers_->counters(static_cast<TransferLane>(lane));
    counters.transfers -= lanes_base_[l].transfers;
    counters.bytes -= lanes_base_[l].bytes;
    counters.busy -= lanes_base_[l].busy;
    result.lanes[l] = counters;
  }
  result.stalls = stalls_;
  result.update_busy = update_busy_;
  result.leases = lease_counts_.all;
  result.leases_waited = lease_counts_.waited;
  result.leases_off_plan = lease_counts_.off_plan;
  result.layers = layer_counts_;
  result.updates_speculated = updates_->speculated();
  result.updates_taken_back = updates_->taken_back();
  result.chunk_elements = layout_->chunk_elements();
  result.chunk_count = layout_->chunk_count();
  result.padding_fraction = layout_->padding_fraction();
  if (const BlockStore* store = transfers_->store(); store != nullptr) {
    result.stripes = store->Describe();
    result.store = store->counters();
  }
  result.state_outside_slots = updates_->eight_bit().bytes() + updates_->factors().bytes();
  return result;
}

void EngineImpl::ResetStatistics() {
  MutexLock lock(mutex_);
  for (int lane = 0; lane < kTransferLaneCount; ++lane) {
    lanes_base_[static_cast<size_t>(lane)] = transfers_->counters(static_cast<TransferLane>(lane));
  }
  stalls_ = {};
  update_busy_ = 0;
  lease_counts_ = {};
}

void EngineImpl::IndexPlan(CompiledPlan& plan) {
  plan.next_use = std::make_unique<NextUseIndex>(plan.step.trace);
  plan.timer = std::make_unique<StepTimer>(std::ssize(plan.step.signatures));
}

const Trace* EngineImpl::trace(std::string_view key) {
  MutexLock lock(mutex_);
  const auto found = plans_.find(key);
  if (found == plans_.end()) return nullptr;
  CompiledPlan& plan = found->second;
  FillTimes(plan);
  return plan.kept == nullptr ? &plan.step.trace : &plan.kept->trace;
}

}  // namespace gantry
