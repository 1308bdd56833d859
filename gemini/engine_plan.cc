// The policy `planned`: from the second occurrence of a step on its times are known; then it gets a
// movement plan, and follows it.
#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/engine_impl.h"
#include "gemini/step_decision.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/planner.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

// Steps that are timed before there is a plan: the first one is disturbed by first touches.
constexpr int64_t kStepsTimed = 2;

// Bytes over time, where there was enough of both to say.
int64_t RateOf(const TransferCounters& counters) {
  if (counters.transfers < 4 || counters.busy < 1'000'000) return 0;
  return static_cast<int64_t>(static_cast<double>(counters.bytes) * 1e9 /
                              static_cast<double>(counters.busy));
}

int64_t FirstKnown(int64_t given, int64_t measured, int64_t assumed) {
  if (given > 0) return given;
  return measured > 0 ? measured : assumed;
}

}  // namespace

absl::Status EngineImpl::FollowMovementPlan(const StepOptions& options) {
  const bool follows = follower_ != nullptr;
  follower_ = nullptr;
  mover_->SetPrefetchReserve(-1);
  std::fill(leaves_.begin(), leaves_.end(), 0);
  if (!options.optimizer.has_value()) {
    if (follows) HoldKeepSet(*in_force_->follower);
    return absl::OkStatus();
  }
  if (plan_ != nullptr && plan_->follower == nullptr && !plan_->planning_failed &&
      plan_->timer->steps() >= kStepsTimed) {
    MakeMovementPlan(*plan_, options);
  }
  if (plan_ == nullptr || plan_->follower == nullptr) {
    LeaveMovementPlan();
    return absl::OkStatus();
  }
  if (in_force_ != plan_) GANTRY_RETURN_IF_ERROR(InstallPlacement(*plan_));
  if (in_force_ != plan_ || !follows) RestoreKeepSet(*plan_->follower);
  in_force_ = plan_;
  follower_ = plan_->follower.get();
  mover_->SetPrefetchReserve(follower_->write_reserve());
  return absl::OkStatus();
}

// What the plan kept may go now as anything else. Where updates run stays as it is.
void EngineImpl::LeaveMovementPlan() {
  follower_ = nullptr;
  mover_->SetPrefetchReserve(-1);
  if (in_force_ == nullptr) return;
  in_force_ = nullptr;
  for (BlockIndex block = 0; block < manager_->block_count(); ++block) {
    if (manager_->IdOf(block).kind > StateKind::kGradient) break;
    mover_->SetResidency(block, Tier::kDevice, Residency::kFloating);
  }
  std::fill(leaves_.begin(), leaves_.end(), 0);
}

void EngineImpl::HoldKeepSet(const PlanFollower& follower) {
  for (BlockIndex block = 0; block < manager_->chunk_count(); ++block) {
    mover_->SetResidency(block, Tier::kDevice,
                         follower.Holds(0, block) ? Residency::kPinned : Residency::kFloating);
  }
}

void EngineImpl::RestoreKeepSet(const PlanFollower& follower) {
  HoldKeepSet(follower);
  const std::vector<bool> there = follower.ThereAtStart();
  for (BlockIndex block = 0; block < manager_->chunk_count(); ++block) {
    // What waits for its update leaves, or stays, by that.
    if (there[static_cast<size_t>(block)] || updates_->Pending(ChunkId(block))) continue;
    const absl::Status evicted = mover_->Evict(block, Tier::kDevice);
    if (!evicted.ok()) return Fail(evicted);
  }
}

void EngineImpl::MakeMovementPlan(CompiledPlan& plan, const StepOptions& options) {
  const Nanoseconds begin = options_.clock->Now();
  FillTimes(plan.step, *plan.timer);
  Trace trace = TraceWithKeptSlots(plan.step);
  Machine machine = MakeBudgetInput().machine;
  machine.rates = MeasuredRates(trace);
  PlannerOptions planner;
  planner.wait_for_norm = WaitsForNorm(*options.optimizer);
  planner.keep_sets_only = true;
  // Here an update is never a part of the compute thread's work. It runs on the update thread, in
  // the order of the parameters' next uses and into the next forward pass as far as need be, so
  // there is none to put off.
  planner.next_forward = false;
  planner.free_buffers_first = false;  // updates are in the order of their next use
  planner.move_activations = false;
  // A discrete device is emulated: its updates would run on the same update thread, no faster than
  // the host's, beside states that take slots of the device. And the planner takes a device update
  // for a moment between operators, which it is not here.
  planner.host_updates_only = !machine.unified;
  const absl::StatusOr<MovementDecision> decision = PlanMovement(trace, machine, planner);
  plan.report.planning = options_.clock->Now() - begin;
  plan.report.rates = machine.rates;
  if (!decision.ok()) {
    plan.planning_failed = true;
    options_.logger->Warning(StrCat("no movement plan; blocks move on demand: ",
                                    std::string(decision.status().message())));
    return;
  }
  plan.follower =
      std::make_unique<PlanFollower>(trace, *decision, std::ssize(plan.step.signatures));
  plan.placement = PlacementOf(*plan.follower, *decision);
  plan.parameter_in_file.clear();
  for (const ChunkChoice& choice : decision->choices.chunks) {
    plan.parameter_in_file.push_back(choice.parameter_in_file);
  }
  plan.report.planned = true;
  plan.report.predicted = decision->predicted.elapsed;
  plan.report.compute = decision->predicted.compute;
  plan.report.bound = ComputeLowerBound(decision->training.problem, {}).total;
  plan.report.shape = decision->shape;
  plan.report.hash = decision->hash;
  plan.planned = std::make_unique<PlannedStep>(
      PlannedStep{.trace = std::move(trace), .machine = machine, .decision = *decision});
}

std::vector<ChunkPlacement> EngineImpl::PlacementOf(const PlanFollower& follower,
                                                    const MovementDecision& decision) const {
  std::vector<ChunkPlacement> placement = placement_.chunks;
  for (int64_t c = 0; c < layout_->chunk_count(); ++c) {
    const ChunkId chunk(c);
    ChunkPlacement& place = placement[static_cast<size_t>(c)];
    place.parameter_on_device = Residency::kFloating;
    if (!layout_->HasBlock({StateKind::kGradient, chunk})) continue;
    const ChunkChoice& choice = decision.choices.chunks[static_cast<size_t>(c)];
    const bool on_device = manager_->unified() || choice.place != UpdatePlace::kHost;
    const bool stays = on_device ? follower.StatesStay(chunk) : !choice.states_in_file;
    place.update_tier = on_device ? Tier::kDevice : Tier::kHost;
    place.optimizer_on_update_tier = stays ? Residency::kPinned : Residency::kTransient;
  }
  return placement;
}

absl::Status EngineImpl::InstallPlacement(const CompiledPlan& plan) {
  // Chunks change where they are updated only between updates.
  const auto moves = [&](int64_t c) GANTRY_NO_THREAD_SAFETY_ANALYSIS {
    const Tier tier = plan.placement[static_cast<size_t>(c)].update_tier;
    return tier != updates_->update_tier(ChunkId(c));
  };
  bool any_moves = false;
  for (int64_t c = 0; c < layout_->chunk_count(); ++c) any_moves = any_moves || moves(c);
  while (any_moves && !updates_->idle()) {
    GANTRY_RETURN_IF_ERROR(WaitForChange("the optimizer updates", "planning"));
  }
  bool updates_elsewhere = false;
  int64_t device_demand = budget_report_.activations_max.count() / layout_->slot_bytes().count();
  const std::vector<ChunkFacts> facts = FactsOf(*layout_);
  for (size_t c = 0; c < facts.size(); ++c) {
    const ChunkPlacement& place = plan.placement[c];
    device_demand += facts[c].parameter_slots + facts[c].gradient_slots;
    if (facts[c].gradient_slots == 0) continue;
    if (place.update_tier == Tier::kDevice) device_demand += facts[c].optimizer_slots;
    if (place.update_tier != Tier::kDevice) updates_elsewhere = true;
    // After its update such a parameter leaves for its file at once (OnUpdated).
    mover_->SetResidency(Index(StateKind::kParameter, ChunkId(static_cast<int64_t>(c))),
                         Tier::kHost,
                         plan.parameter_in_file[c] ? Residency::kTransient : Residency::kFloating);
    InstallChunk(ChunkId(static_cast<int64_t>(c)), place);
  }
  placement_.chunks = plan.placement;
  everything_fits_ = device_demand <= device_slots_ && !updates_elsewhere;
  return absl::OkStatus();
}

void EngineImpl::InstallChunk(ChunkId chunk, const ChunkPlacement& place) {
  if (updates_->update_tier(chunk) != place.update_tier) {
    updates_->SetUpdateTier(chunk, place.update_tier);
  }
  mover_->SetHome(Index(StateKind::kGradient, chunk), place.update_tier);
  for (const StateKind kind : {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
    if (!layout_->HasBlock({kind, chunk})) continue;
    const BlockIndex block = Index(kind, chunk);
    for (const Tier other : {Tier::kDevice, Tier::kHost}) {
      mover_->SetResidency(block, other, Residency::kFloating);
    }
    mover_->SetResidency(block, place.update_tier, place.optimizer_on_update_tier);
    mover_->SetHome(block, place.update_tier);
  }
}

void EngineImpl::FillTimes(CompiledStep& step, const StepTimer& timer) const {
  for (size_t i = 0; i < step.signatures.size(); ++i) {
    step.trace.moments[i].compute = timer.Median(static_cast<int64_t>(i));
  }
  for (size_t c = 0; c < step.update_moment.size() && update_times_.has_value(); ++c) {
    if (step.update_moment[c] < 0) continue;
    step.trace.moments[static_cast<size_t>(step.update_moment[c])].compute =
        update_times_->Median(static_cast<int64_t>(c));
  }
}

// Lanes by what they moved so far; updates by their times.
MachineRates EngineImpl::MeasuredRates(const Trace& trace) const {
  MachineRates rates = options_.rates;
  const auto lane = [this](TransferLane which) { return RateOf(transfers_->counters(which)); };
  const auto set = [](Lane& target, int64_t measured, int64_t assumed) {
    target.bytes_per_second = FirstKnown(target.bytes_per_second, measured, assumed);
  };
  set(rates.host_to_device, lane(TransferLane::kHostToDevice), kAssumedCopyRate);
  set(rates.device_to_host, lane(TransferLane::kDeviceToHost), kAssumedCopyRate);
  set(rates.file_read, lane(TransferLane::kFileRead), kAssumedFileRate);
  set(rates.file_write, lane(TransferLane::kFileWrite), kAssumedFileRate);
  int64_t bytes = 0;
  Nanoseconds time = 0;
  for (const Moment& moment : trace.moments) {
    if (moment.phase != Phase::kOptimizer || moment.compute == 0) continue;
    time += moment.compute;
    for (const BlockUse& use : trace.uses_of(moment)) {
      const int64_t slots = trace.block_slots[static_cast<size_t>(use.block)];
      bytes += slots * trace.slot_bytes.count() * (use.access == BlockAccess::kWrite ? 2 : 1);
    }
  }
  const int64_t measured =
      time == 0
          ? 0
          : static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(time));
  rates.host_update_bytes_per_second =
      FirstKnown(rates.host_update_bytes_per_second, measured, kAssumedUpdateRate);
  // A device that is the host's memory updates as fast as the host does.
  if (rates.device_memory_bytes_per_second == 0) {
    rates.device_memory_bytes_per_second = rates.host_update_bytes_per_second;
  }
  return rates;
}

PlanFollower::Presence EngineImpl::PresenceOf(BlockIndex block) const {
  const BlockCopy& copy = manager_->copy(block, Tier::kDevice);
  if (copy.phase == CopyPhase::kFilling) return PlanFollower::Presence::kThere;
  if (copy.phase == CopyPhase::kValid) {
    return copy.evicting ? PlanFollower::Presence::kNotYet : PlanFollower::Presence::kThere;
  }
  if (updates_->Pending(manager_->IdOf(block).chunk) ||
      manager_->block(block).content == BlockContent::kUndefined) {
    return PlanFollower::Presence::kNotYet;
  }
  return PlanFollower::Presence::kAbsent;
}

void EngineImpl::NoteLeaving(std::span<const Need> needs) {
  if (follower_ == nullptr) return;
  for (const Need& need : needs) {
    bool stays = true;
    if (course_.lease_on_plan) {
      stays = follower_->Stays(cursor_ - 1, need.block);
    } else if (need.block < manager_->chunk_count()) {
      stays = follower_->Holds(cursor_, need.block);  // a gradient stays until it is complete
    }
    leaves_[static_cast<size_t>(need.block)] = stays ? 0 : 1;
    mover_->SetResidency(need.block, Tier::kDevice,
                         stays ? Residency::kPinned : Residency::kFloating);
  }
}

void EngineImpl::DropSkipped(int64_t first, int64_t last) {
  if (follower_ == nullptr) return;
  const Trace& trace = plan_->step.trace;
  for (int64_t m = first; m < last; ++m) {
    for (const BlockUse& use : trace.uses_of(trace.moments[static_cast<size_t>(m)])) {
      if (use.block >= manager_->chunk_count() || follower_->Holds(last, use.block)) continue;
      mover_->SetResidency(use.block, Tier::kDevice, Residency::kFloating);
      const absl::Status evicted = mover_->Evict(use.block, Tier::kDevice);
      if (!evicted.ok()) return Fail(evicted);
    }
  }
}

void EngineImpl::DropLeaving(std::span<const Need> needs) {
  if (follower_ == nullptr) return;
  for (const Need& need : needs) {
    if (leaves_[static_cast<size_t>(need.block)] == 0) continue;
    // A copy that another lease still has is not idle, and stays.
    const absl::Status evicted = mover_->Evict(need.block, Tier::kDevice);
    if (!evicted.ok()) return Fail(evicted);
  }
}

const PlannedStep* EngineImpl::planned_step(std::string_view key) const {
  MutexLock lock(mutex_);
  const auto found = plans_.find(key);
  return found == plans_.end() ? nullptr : found->second.planned.get();
}

MovementReport EngineImpl::movement_report(std::string_view key) const {
  MutexLock lock(mutex_);
  const auto found = plans_.find(key);
  return found == plans_.end() ? MovementReport() : found->second.report;
}

}  // namespace gantry
