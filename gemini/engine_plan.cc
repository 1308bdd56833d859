// The policy `planned`: from the second occurrence of a step on its times are known; then it gets a
// movement plan, and follows it.
#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/engine_impl.h"
#include "gemini/step_decision.h"
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
  const bool followed = follower_ != nullptr;
  if (plan_ != nullptr && options.optimizer.has_value() && plan_->follower == nullptr &&
      !plan_->planning_failed && plan_->timer->steps() >= kStepsTimed) {
    // Chunks change where they are updated only between updates.
    while (!updates_->idle()) {
      GANTRY_RETURN_IF_ERROR(WaitForChange("the optimizer updates", "planning"));
    }
    MakeMovementPlan(*plan_, options);
  }
  follower_ = plan_ == nullptr ? nullptr : plan_->follower.get();
  mover_->SetPrefetchReserve(follower_ == nullptr ? -1 : follower_->write_reserve());
  if (followed && follower_ == nullptr) {
    // What the plan kept may go now as anything else.
    for (BlockIndex block = 0; block < manager_->block_count(); ++block) {
      if (manager_->IdOf(block).kind > StateKind::kGradient) break;
      mover_->SetResidency(block, Tier::kDevice, Residency::kFloating);
    }
    std::fill(leaves_.begin(), leaves_.end(), 0);
  }
  return absl::OkStatus();
}

void EngineImpl::MakeMovementPlan(CompiledPlan& plan, const StepOptions& options) {
  const Nanoseconds begin = options_.clock->Now();
  FillTimes(plan.step, *plan.timer);
  const Trace trace = TraceWithKeptSlots(plan.step);
  Machine machine = MakeBudgetInput().machine;
  machine.rates = MeasuredRates(trace);
  PlannerOptions planner;
  planner.wait_for_norm = WaitsForNorm(*options.optimizer);
  planner.keep_sets_only = true;
  planner.next_forward = false;
  planner.move_activations = false;
  // Updates on a discrete device would run on the host's update thread as well, and no faster.
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
  InstallPlacement(plan, *decision);
  plan.report.planned = true;
  plan.report.predicted = decision->predicted.elapsed;
  plan.report.compute = decision->predicted.compute;
  plan.report.shape = decision->shape;
  plan.report.hash = decision->hash;
}

void EngineImpl::InstallPlacement(const CompiledPlan& plan, const MovementDecision& decision) {
  bool updates_elsewhere = false;
  int64_t device_demand = budget_report_.activations_max.count() / layout_->slot_bytes().count();
  const std::vector<ChunkFacts> facts = FactsOf(*layout_);
  for (int64_t c = 0; c < layout_->chunk_count(); ++c) {
    const ChunkId chunk(c);
    const auto index = static_cast<size_t>(c);
    device_demand += facts[index].parameter_slots + facts[index].gradient_slots;
    if (facts[index].gradient_slots == 0) continue;
    const ChunkChoice& choice = decision.choices.chunks[index];
    const bool on_device = manager_->unified() || choice.place != UpdatePlace::kHost;
    const Tier tier = on_device ? Tier::kDevice : Tier::kHost;
    const bool stays = on_device ? plan.follower->StatesStay(chunk) : !choice.states_in_file;
    ChunkPlacement& place = placement_.chunks[index];
    place.update_tier = tier;
    place.optimizer_on_update_tier = stays ? Residency::kPinned : Residency::kTransient;
    place.parameter_on_device = Residency::kFloating;
    updates_->SetUpdateTier(chunk, tier);
    for (const StateKind kind : {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
      if (!layout_->HasBlock({kind, chunk})) continue;
      for (const Tier other : {Tier::kDevice, Tier::kHost}) {
        mover_->SetResidency(Index(kind, chunk), other, Residency::kFloating);
      }
      mover_->SetResidency(Index(kind, chunk), tier, place.optimizer_on_update_tier);
    }
    if (on_device) device_demand += facts[index].optimizer_slots;
    if (!on_device) updates_elsewhere = true;
  }
  everything_fits_ = device_demand <= device_slots_ && !updates_elsewhere;
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
  const int64_t moment = cursor_ - 1;
  const bool on_plan = moment >= 0 && moment < follower_->lease_moments();
  for (const Need& need : needs) {
    const bool stays = !on_plan || follower_->Stays(moment, need.block);
    leaves_[static_cast<size_t>(need.block)] = stays ? 0 : 1;
    mover_->SetResidency(need.block, Tier::kDevice,
                         stays ? Residency::kPinned : Residency::kFloating);
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

MovementReport EngineImpl::movement_report(std::string_view key) const {
  MutexLock lock(mutex_);
  const auto found = plans_.find(key);
  return found == plans_.end() ? MovementReport() : found->second.report;
}

}  // namespace gantry
