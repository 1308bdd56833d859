// Leases: following the plan, waiting for blocks, pinning them, and fetching ahead.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/engine_impl.h"

namespace gantry {
namespace {

// How far a lease that is not the expected one is searched for further on in the plan.
constexpr int64_t kResyncWindow = 64;

// Rounds of pumping in one go; each makes progress, so this only bounds the time under the lock.
constexpr int kPumpRoundsMax = 64;

}  // namespace

absl::StatusOr<Lease> EngineImpl::DryLease(std::span<const ParameterUse> uses, Phase phase) {
  Lease lease = LeaseAccess::Make(this, phase);
  // Not null, never to be touched: the first page of the dry arena, where nothing is mapped.
  std::byte* nowhere = reinterpret_cast<std::byte*>(kTensorAlignmentElements);
  for (const ParameterUse& use : uses) {
    const TensorSpec& spec = specs_[static_cast<size_t>(use.tensor.value())];
    int64_t elements = 1;
    for (const int64_t extent : spec.shape) elements *= extent;
    const bool read = use.access != ParameterAccess::kGradient;
    const bool gradient = use.access != ParameterAccess::kRead;
    LeaseAccess::Add(
        lease, use.access,
        {.tensor = use.tensor,
         .parameter = read ? nowhere : nullptr,
         .gradient = gradient ? nowhere : nullptr,
         .gradient_content = GradientContent::kEmpty,
         .dtype = spec.dtype,
         .gradient_dtype = spec.dtype == DType::kF32 ? DType::kF32 : options_.gradient_dtype,
         .elements = elements});
  }
  return lease;
}

absl::Status EngineImpl::CheckUses(std::span<const ParameterUse> uses,
                                   std::string_view name) const {
  GANTRY_CHECK(step_.has_value() && micro_batch_ > 0) << "lease of " << name << " outside a step";
  GANTRY_CHECK_LE(uses.size(), static_cast<size_t>(Lease::kTensorsMax));
  for (size_t i = 0; i < uses.size(); ++i) {
    const auto t = static_cast<size_t>(uses[i].tensor.value());
    GANTRY_CHECK(HasTensor(uses[i].tensor)) << name << " leases " << uses[i].tensor;
    for (size_t j = 0; j < i; ++j) {
      GANTRY_CHECK(uses[i].tensor != uses[j].tensor) << name << " leases a tensor twice";
    }
    if (!dry_run() && progress_.ready[t] != 0) {
      return FailedPrecondition("operator '", name, "' uses '", specs_[t].name,
                                "' after its gradient was declared ready in this step");
    }
    if (uses[i].access == ParameterAccess::kRead) continue;
    if (!step_->optimizer.has_value() || specs_[t].trainability != Trainability::kTrainable) {
      return FailedPrecondition("operator '", name, "' asks for the gradient of '", specs_[t].name,
                                "', which has none (it is frozen, or this is an evaluation)");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Lease> EngineImpl::Acquire(std::span<const ParameterUse> uses, std::string_view name,
                                          Phase phase) {
  const Nanoseconds called = dry_run() ? 0 : options_.clock->Now();
  Overlap();
  MutexLock lock(mutex_);
  GANTRY_RETURN_IF_ERROR(failure_);
  GANTRY_RETURN_IF_ERROR(CheckUses(uses, name));
  tracer_.OnAcquire(uses, name, phase);
  if (dry_run()) return DryLease(uses, phase);
  const int64_t expected = cursor_;
  FollowPlan(uses, phase);
  if (plan_ != nullptr) plan_->timer->OnMoment(cursor_ - 1, called - waited_);
  CollectNeeds(uses);
  trace_.EndOperator(called);
  GANTRY_RETURN_IF_ERROR(Pin(Tier::kDevice, needs_, name));
  trace_.BeginOperator(name, phase, *manager_);
  Lease lease = LeaseAccess::Make(this, phase);
  FinishLease(lease, uses);
  if (!settled_) {
    for (const Need& need : needs_) mover_->SetKey(need.block, NextKey(need.block));
    NoteLeaving(needs_);
    if (expected < cursor_ - 1) DropSkipped(expected, cursor_ - 1);
    RefreshLookAhead();
    // An error does not concern this lease, whose blocks are there: the next call returns it.
    static_cast<void>(PumpLocked());
  }
  ++open_leases_;
  return lease;
}

void EngineImpl::CollectNeeds(std::span<const ParameterUse> uses) {
  needs_.clear();
  const auto add = [&](StateKind kind, ChunkId chunk, Need::Mode mode)
                       GANTRY_NO_THREAD_SAFETY_ANALYSIS {
                         const BlockIndex block = Index(kind, chunk);
                         for (const Need& need : needs_) {
                           if (need.block == block) return;
                         }
                         needs_.push_back({block, mode, chunk});
                       };
  for (const ParameterUse& use : uses) {
    const auto [first, last] = chunks_of_tensor_[static_cast<size_t>(use.tensor.value())];
    for (int64_t c = first.value(); c <= last.value(); ++c) {
      const ChunkId chunk(c);
      if (use.access != ParameterAccess::kGradient) {
        add(StateKind::kParameter, chunk, Need::Mode::kRead);
      }
      if (use.access != ParameterAccess::kRead) {
        const bool begun = updates_->phase(chunk) == UpdateQueue::GradientPhase::kAccumulating;
        add(StateKind::kGradient, chunk, begun ? Need::Mode::kWrite : Need::Mode::kCreate);
      }
    }
  }
}

bool EngineImpl::AnyPending(std::span<const Need> needs) const {
  for (const Need& need : needs) {
    if (need.chunk != kNoChunk && updates_->Pending(need.chunk)) return true;
  }
  return false;
}

bool EngineImpl::AwaitsContent(BlockIndex block) const {
  if (manager_->block(block).content == BlockContent::kUndefined) return true;
  if (!manager_->IsActivation(block)) return updates_->Pending(manager_->IdOf(block).chunk);
  return std::ranges::find(used_up_, block) != used_up_.end();
}

absl::StatusOr<bool> EngineImpl::TryPin(Tier tier, std::span<const Need> needs) {
  for (const Need& need : needs) {
    if (need.chunk != kNoChunk && updates_->Pending(need.chunk)) return false;
    if (manager_->copy(need.block, tier).phase != CopyPhase::kValid) return false;
    if (need.mode != Need::Mode::kRead && !mover_->Writable(need.block, tier)) return false;
  }
  for (const Need& need : needs) {
    if (need.mode != Need::Mode::kRead) {
      const absl::Status begun = mover_->BeginWrite(need.block, tier);
      if (!begun.ok()) {
        Fail(begun);
        return begun;
      }
      continue;
    }
    mover_->CancelEviction(need.block, tier);
    ++manager_->copy(need.block, tier).pins;
  }
  return true;
}

absl::Status EngineImpl::Pin(Tier tier, std::span<const Need> needs, std::string_view name) {
  GANTRY_ASSIGN_OR_RETURN(const bool pinned, TryPin(tier, needs));
  if (pinned) return absl::OkStatus();
  const absl::Status status = WaitAndPin(tier, needs, name);
  mover_->SetWants(WantPriority::kDemand, {});
  return status;
}

absl::Status EngineImpl::WaitAndPin(Tier tier, std::span<const Need> needs, std::string_view name) {
  bool waited = false;
  while (true) {
    const bool pending = AnyPending(needs);
    std::vector<Want> wants;
    if (!pending) {
      for (const Need& need : needs) {
        wants.push_back({.block = need.block,
                         .tier = tier,
                         .source = need.mode == Need::Mode::kCreate ? Want::Source::kNothing
                                                                    : Want::Source::kContent});
      }
    }
    mover_->SetWants(WantPriority::kDemand, std::move(wants));
    GANTRY_RETURN_IF_ERROR(PumpLocked());
    GANTRY_ASSIGN_OR_RETURN(const bool pinned, TryPin(tier, needs));
    if (pinned) return absl::OkStatus();
    // Room for a new gradient that was there at once is no wait.
    if (!std::exchange(waited, true)) {
      ++lease_counts_.waited;
      ++waits_this_step_;
      settled_ = false;
    }
    const Nanoseconds begin = options_.clock->Now();
    GANTRY_RETURN_IF_ERROR(
        WaitForChange(pending ? "an optimizer update" : "its parameters and gradients", name));
    const Nanoseconds end = options_.clock->Now();
    const StallCause cause = pending ? StallCause::kUpdate : StallCause::kParameter;
    AddStall(cause, begin, end);
  }
}

void EngineImpl::Unpin(Tier tier, std::span<const Need> needs) {
  for (const Need& need : needs) {
    if (need.mode != Need::Mode::kRead) {
      mover_->EndWrite(need.block, tier);
      continue;
    }
    BlockCopy& copy = manager_->copy(need.block, tier);
    GANTRY_CHECK_GT(copy.pins, 0) << manager_->Describe(need.block);
    --copy.pins;
  }
}

absl::Status EngineImpl::PumpLocked() {
  for (int round = 0; round < kPumpRoundsMax; ++round) {
    mover_->SetWants(WantPriority::kUpdate, updates_->Wants());
    const absl::StatusOr<int64_t> progress = mover_->Pump();
    if (!progress.ok()) {
      Fail(progress.status());
      return progress.status();
    }
    if (*progress == 0) break;
  }
  WakeUpdates();
  return absl::OkStatus();
}

// Advances the cursor to the moment behind the given lease.
void EngineImpl::FollowPlan(std::span<const ParameterUse> uses, Phase phase) {
  ++lease_counts_.all;
  ++moment_clock_;
  if (plan_ == nullptr) return;
  const std::vector<uint64_t>& signatures = plan_->step.signatures;
  const auto count = static_cast<int64_t>(signatures.size());
  const uint64_t signature = LeaseSignature(uses, phase);
  course_.leases = course_.leases * 0x100000001b3ull + signature;
  course_.lease_on_plan = true;
  if (cursor_ < count && signatures[static_cast<size_t>(cursor_)] == signature) {
    ++cursor_;
  } else {
    ++lease_counts_.off_plan;
    course_.strayed = true;
    const int64_t end = std::min(count, cursor_ + kResyncWindow);
    int64_t next = cursor_;
    while (next < end && signatures[static_cast<size_t>(next)] != signature) ++next;
    course_.lease_on_plan = next < end;
    if (next < end) cursor_ = next + 1;
  }
  if (!settled_ && cursor_ > 0) {
    const int64_t keep = plan_->step.activation_after[static_cast<size_t>(cursor_ - 1)];
    if (arena_->mapped_slots() > keep) arena_->Trim(keep);
  }
}

// When the block just used leaves: by its next use in the plan, or by its last use.
int64_t EngineImpl::NextKey(BlockIndex block) const {
  if (plan_ == nullptr || placement_.eviction == EvictionOrder::kLeastRecentlyUsed) {
    return -moment_clock_;
  }
  const int64_t now = std::max<int64_t>(cursor_ - 1, 0);
  const int64_t next = plan_->next_use->NextUse(block, now);
  if (next == NextUseIndex::kNever) return std::numeric_limits<int64_t>::max();
  return moment_clock_ + (next - now);
}

void EngineImpl::RefreshLookAhead() {
  std::vector<Want> wants;
  if (follower_ != nullptr && !settled_) {
    follower_->Ahead(
        cursor_,
        [this](BlockIndex block) GANTRY_NO_THREAD_SAFETY_ANALYSIS { return PresenceOf(block); },
        ahead_);
    for (const PlanFollower::Fetch& fetch : ahead_) {
      wants.push_back({.block = fetch.block,
                       .tier = Tier::kDevice,
                       .need_time = moment_clock_ + fetch.distance + 1});
    }
  } else if (plan_ != nullptr && !settled_ && options_.look_ahead > 0) {
    const Trace& trace = plan_->step.trace;
    const auto leases = static_cast<int64_t>(plan_->step.signatures.size());
    const int64_t total = plan_->next_use->moment_count();
    for (int64_t ahead = 0; ahead < std::min(options_.look_ahead, leases); ++ahead) {
      const bool wraps = cursor_ + ahead >= leases;
      const int64_t moment = wraps ? cursor_ + ahead - leases : cursor_ + ahead;
      const int64_t distance = ahead + 1 + (wraps ? total - leases : 0);
      for (const BlockUse& use : trace.uses_of(trace.moments[static_cast<size_t>(moment)])) {
        if (use.access == BlockAccess::kCreate) continue;
        if (AwaitsContent(use.block)) continue;
        wants.push_back(
            {.block = use.block, .tier = Tier::kDevice, .need_time = moment_clock_ + distance});
      }
    }
  }
  mover_->SetWants(WantPriority::kPrefetch, std::move(wants));
}

void EngineImpl::FinishLease(Lease& lease, std::span<const ParameterUse> uses) {
  for (const Need& need : needs_) {
    if (need.mode == Need::Mode::kCreate) BeginGradient(need.chunk);
  }
  EnterChunks(uses);
  for (const ParameterUse& use : uses) {
    const auto t = static_cast<size_t>(use.tensor.value());
    LeasedTensor leased = leased_[t];
    if (use.access == ParameterAccess::kGradient) leased.parameter = nullptr;
    if (use.access == ParameterAccess::kRead) leased.gradient = nullptr;
    if (progress_.contributed[t] != 0) leased.gradient_content = GradientContent::kPartial;
    LeaseAccess::Add(lease, use.access, leased);
  }
}

// The first gradient of the step in this chunk: padding must be zero for the norm.
void EngineImpl::BeginGradient(ChunkId chunk) {
  if (updates_->phase(chunk) == UpdateQueue::GradientPhase::kAccumulating) return;
  updates_->OnGradientBegun(chunk);
  const BlockId id{StateKind::kGradient, chunk};
  const int64_t size = SizeOf(layout_->dtype_of(id));
  std::byte* home = manager_->Home(manager_->IndexOf(id));
  int64_t end = 0;
  for (const TensorSlice& slice : layout_->SlicesIn(chunk)) {
    FillWithZeros(home + end * size, (slice.chunk_begin - end) * size);
    end = slice.chunk_begin + slice.elements;
  }
  FillWithZeros(home + end * size, (layout_->chunk_elements() - end) * size);
}

// In the order of the device's work, as all that operators do there.
void EngineImpl::FillWithZeros(std::byte* address, int64_t bytes) {
  if (bytes == 0) return;
  const absl::Status filled = options_.device->queue().FillWithZeros(address, Bytes(bytes));
  if (!filled.ok()) Fail(filled);
}

void EngineImpl::EnterChunks(std::span<const ParameterUse> uses) {
  for (const ParameterUse& use : uses) {
    const auto [first, last] = chunks_of_tensor_[static_cast<size_t>(use.tensor.value())];
    for (int64_t c = first.value(); c <= last.value(); ++c) {
      if (chunk_leases_[static_cast<size_t>(c)]++ > 0) continue;
      manager_->state(ChunkId(c)).Transition(ChunkState::kCompute, moment_clock_);
    }
  }
}

void EngineImpl::LeaveChunk(ChunkId chunk) {
  if (--chunk_leases_[static_cast<size_t>(chunk.value())] > 0) return;
  const bool backward = updates_->phase(chunk) == UpdateQueue::GradientPhase::kAccumulating;
  manager_->state(chunk).Transition(backward ? ChunkState::kHoldAfterBackward : ChunkState::kHold,
                                    moment_clock_);
  CompleteIfReady(chunk);
}

void EngineImpl::ReleaseLease(const Lease& lease) {
  tracer_.OnRelease();
  if (dry_run()) return;
  Overlap();
  MutexLock lock(mutex_);
  --open_leases_;
  uses_scratch_.clear();
  for (int i = 0; i < lease.size(); ++i) {
    uses_scratch_.push_back({lease[i].tensor, LeaseAccess::access(lease, i)});
  }
  CollectNeeds(uses_scratch_);
  Unpin(Tier::kDevice, needs_);
  for (const ParameterUse& use : uses_scratch_) {
    if (use.access != ParameterAccess::kRead) {
      progress_.contributed[static_cast<size_t>(use.tensor.value())] = 1;
    }
  }
  for (const ParameterUse& use : uses_scratch_) {
    const auto [first, last] = chunks_of_tensor_[static_cast<size_t>(use.tensor.value())];
    for (int64_t c = first.value(); c <= last.value(); ++c) LeaveChunk(ChunkId(c));
  }
  if (settled_ || !failure_.ok()) return;
  DropLeaving(needs_);
  for (const Need& need : needs_) {
    if (need.block >= manager_->chunk_count()) continue;  // a gradient
    if (placement_.chunks[static_cast<size_t>(need.chunk.value())].parameter_on_device ==
        Residency::kTransient) {
      const absl::Status evicted = mover_->Evict(need.block, Tier::kDevice);
      if (!evicted.ok()) Fail(evicted);
    }
  }
}

absl::StatusOr<SlotId> EngineImpl::AcquireActivationSlot() {
  MutexLock lock(mutex_);
  if (plan_ != nullptr && !plan_->step.activation_after.empty()) {
    // What is allocated counts as live already.
    const int64_t moment = std::max<int64_t>(cursor_ - 1, 0);
    const int64_t most = plan_->step.activation_after[static_cast<size_t>(moment)];
    if (arena_->live_slots() > most) course_.strayed = true;
  }
  while (true) {
    const auto slot = manager_->pool(Tier::kDevice).TryAcquire(MemoryTag::kActivation);
    if (slot.has_value()) {
      mover_->SetActivationNeed(0);
      return *slot;
    }
    mover_->SetActivationNeed(1);
    const absl::Status pumped = PumpLocked();
    if (pumped.ok() && manager_->pool(Tier::kDevice).free_slots() > 0) continue;
    const Nanoseconds begin = options_.clock->Now();
    const absl::Status waited =
        pumped.ok() ? WaitForChange("device memory for an activation", "activation arena") : pumped;
    AddStall(StallCause::kRoom, begin, options_.clock->Now());
    if (!waited.ok()) {
      mover_->SetActivationNeed(0);
      return waited;
    }
  }
}

void EngineImpl::ReleaseActivationSlot(SlotId slot) {
  // Called by the arena, from Trim under the engine's mutex or from its destructor: the pool has a
  // lock of its own.
  manager_->pool(Tier::kDevice).Release(slot);
}

}  // namespace gantry
