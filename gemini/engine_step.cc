// Steps: gradient readiness, the global decision, and updates.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/engine_impl.h"
#include "gemini/optimizer_step.h"
#include "gemini/step_decision.h"

namespace gantry {

absl::Status EngineImpl::BeginStep(const StepOptions& options) {
  if (step_.has_value()) return FailedPrecondition("BeginStep was called inside a step");
  if (options.micro_batches < 1) {
    return InvalidArgument("a step has ", options.micro_batches, " micro-batches; at least 1");
  }
  if (options.optimizer.has_value()) {
    GANTRY_RETURN_IF_ERROR(ValidateOptimizerStep(*options.optimizer, options_.optimizer));
  }
  if (dry_run()) {
    step_ = options;
    micro_batch_ = 0;
    layers_ = {};
    tracer_.Begin(options);
    return absl::OkStatus();
  }
  MutexLock lock(mutex_);
  GANTRY_RETURN_IF_ERROR(failure_);
  step_ = options;
  micro_batch_ = 0;
  const auto found = plans_.find(options.trace_key);
  plan_ = found == plans_.end() ? nullptr : &found->second;
  cursor_ = 0;
  step_start_ = moment_clock_;
  layers_ = {};
  if (plan_ != nullptr && plan_->records != nullptr) layers_.saved = &plan_->saved;
  course_ = StepCourse();
  if (plan_ == nullptr || (plan_->strayed != 0 && !plan_->rehearsed())) {
    tracer_.Begin(options);
    recording_key_ = options.trace_key;
    arena_->SetObserver(&tracer_);
  }
  if (plan_ != nullptr) plan_->timer->Begin(options_.clock->Now() - waited_);
  if (planned()) GANTRY_RETURN_IF_ERROR(FollowMovementPlan(options));
  settled_ = everything_fits_ && waits_this_step_ == 0;
  waits_this_step_ = 0;
  if (!options.optimizer.has_value()) return absl::OkStatus();
  training_plan_ = plan_;
  std::fill(progress_.contributed.begin(), progress_.contributed.end(), 0);
  std::fill(progress_.ready.begin(), progress_.ready.end(), 0);
  for (int64_t c = 0; c < layout_->chunk_count(); ++c) {
    const bool trainable = layout_->HasBlock({StateKind::kGradient, ChunkId(c)});
    progress_.gradients_missing[static_cast<size_t>(c)] =
        trainable ? static_cast<int32_t>(layout_->SlicesIn(ChunkId(c)).size()) : -1;
  }
  updates_->BeginStep(*options.optimizer, step_start_,
                      plan_ == nullptr ? std::span<const int64_t>()
                                       : std::span<const int64_t>(plan_->step.chunk_order));
  return absl::OkStatus();
}

absl::Status EngineImpl::BeginMicroBatch() {
  if (!step_.has_value()) return FailedPrecondition("BeginMicroBatch outside a step");
  if (micro_batch_ == step_->micro_batches) {
    return FailedPrecondition("the step was begun for ", step_->micro_batches, " micro-batches");
  }
  ++micro_batch_;
  tracer_.OnMicroBatch();
  MutexLock lock(mutex_);
  std::fill(progress_.ready.begin(), progress_.ready.end(), 0);
  return absl::OkStatus();
}

void EngineImpl::GradientReady(TensorId tensor) {
  const auto t = static_cast<size_t>(tensor.value());
  GANTRY_CHECK(HasTensor(tensor)) << tensor;
  GANTRY_CHECK(step_.has_value()) << "gradient of " << specs_[t].name << " outside a step";
  GANTRY_CHECK(step_->optimizer.has_value()) << specs_[t].name << " in an evaluation";
  tracer_.OnGradientReady(tensor);
  if (dry_run()) return;
  Overlap();
  MutexLock lock(mutex_);
  GANTRY_CHECK(specs_[t].trainability == Trainability::kTrainable) << specs_[t].name;
  GANTRY_CHECK_EQ(static_cast<int>(progress_.ready[t]), 0)
      << specs_[t].name << " was ready already";
  progress_.ready[t] = 1;
  // A tensor that is declared ready without a contribution counts as untouched: zeroed at EndStep.
  if (micro_batch_ < step_->micro_batches || progress_.contributed[t] == 0) return;
  const auto [first, last] = chunks_of_tensor_[t];
  for (int64_t c = first.value(); c <= last.value(); ++c) {
    --progress_.gradients_missing[static_cast<size_t>(c)];
    CompleteIfReady(ChunkId(c));
  }
  if (!failure_.ok() || settled_) return;
  static_cast<void>(PumpLocked());  // the next call returns an error
}

// Hands a chunk's gradient over once every tensor of it is ready and nobody holds a lease.
void EngineImpl::CompleteIfReady(ChunkId chunk) {
  const auto c = static_cast<size_t>(chunk.value());
  if (progress_.gradients_missing[c] != 0 || chunk_leases_[c] > 0) return;
  if (updates_->phase(chunk) != UpdateQueue::GradientPhase::kAccumulating) return;
  manager_->state(chunk).Transition(ChunkState::kReadyForReduce, moment_clock_);
  updates_->OnGradientComplete(chunk);
  if (updates_->update_tier(chunk) != Tier::kDevice) {
    // The gradient goes down to its states; the parameter's old version is not needed again.
    const BlockIndex parameter = Index(StateKind::kParameter, chunk);
    absl::Status status = mover_->Evict(Index(StateKind::kGradient, chunk), Tier::kDevice);
    if (manager_->HasOtherCopy(parameter, Tier::kDevice)) {
      status.Update(mover_->Evict(parameter, Tier::kDevice));
    }
    if (!status.ok()) Fail(status);
  }
  RefreshLookAhead();  // without this chunk, whose next version is to come
  WakeUpdates();
}

// Tensors of the chunk without a contribution count as zero gradient.
absl::Status EngineImpl::ZeroUntouched(ChunkId chunk) {
  const BlockIndex block = Index(StateKind::kGradient, chunk);
  const bool begun = updates_->phase(chunk) == UpdateQueue::GradientPhase::kAccumulating;
  const Need need{block, begun ? Need::Mode::kWrite : Need::Mode::kCreate, chunk};
  GANTRY_RETURN_IF_ERROR(Pin(Tier::kDevice, std::span(&need, 1), "zero gradients"));
  BeginGradient(chunk);
  const int64_t size = SizeOf(layout_->dtype_of(manager_->IdOf(block)));
  for (const TensorSlice& slice : layout_->SlicesIn(chunk)) {
    const auto t = static_cast<size_t>(slice.tensor.value());
    if (progress_.contributed[t] != 0) continue;
    FillWithZeros(manager_->Home(block) + slice.chunk_begin * size, slice.elements * size);
  }
  Unpin(Tier::kDevice, std::span(&need, 1));
  progress_.gradients_missing[static_cast<size_t>(chunk.value())] = 0;
  CompleteIfReady(chunk);
  return absl::OkStatus();
}

absl::StatusOr<StepResult> EngineImpl::EndStep() {
  if (!step_.has_value()) return FailedPrecondition("EndStep outside a step");
  {
    MutexLock lock(mutex_);
    if (open_leases_ > 0) {
      return FailedPrecondition("EndStep with ", open_leases_, " live lease(s)");
    }
    EndLayers();
  }
  const StepOptions step = *std::exchange(step_, std::nullopt);
  if (micro_batch_ != step.micro_batches) {
    DropRecording();
    return FailedPrecondition("the step had ", micro_batch_, " of its ", step.micro_batches,
                              " micro-batches");
  }
  if (dry_run()) {
    KeepDryRecord(step.trace_key, tracer_.End());
    return StepResult{};
  }
  MutexLock lock(mutex_);
  trace_.EndOperator(options_.clock->Now());
  GANTRY_RETURN_IF_ERROR(failure_);
  if (plan_ != nullptr) {
    plan_->timer->End(options_.clock->Now() - waited_);
    moment_clock_ = step_start_ + plan_->next_use->moment_count();
  }
  NoteCourse();
  cursor_ = 0;  // of the next step: what is fetched ahead from here on belongs to it
  if (!step.optimizer.has_value()) return StepResult{};
  for (int64_t c = 0; c < layout_->chunk_count(); ++c) {
    if (progress_.gradients_missing[static_cast<size_t>(c)] > 0) {
      GANTRY_RETURN_IF_ERROR(ZeroUntouched(ChunkId(c)));
    }
  }
  while (!updates_->NormsComplete()) {
    const Nanoseconds begin = options_.clock->Now();
    GANTRY_RETURN_IF_ERROR(WaitForChange("gradients on their way to the optimizer", "end of step"));
    AddStall(StallCause::kNorm, begin, options_.clock->Now());
  }
  const StepDecision decision = updates_->DecideStep();
  std::fill(progress_.ready.begin(), progress_.ready.end(), 0);
  while (updates_->tentative() > 0) {
    GANTRY_RETURN_IF_ERROR(updates_->SettleTentative());
    if (updates_->tentative() == 0) break;
    GANTRY_RETURN_IF_ERROR(WaitForChange("speculative updates", "end of step"));
  }
  while (decision.skip && !updates_->idle()) {
    GANTRY_RETURN_IF_ERROR(updates_->SkipStep());
    if (updates_->idle()) break;
    GANTRY_RETURN_IF_ERROR(WaitForChange("the gradients of a skipped step", "end of step"));
  }
  GANTRY_RETURN_IF_ERROR(PumpLocked());
  return StepResult{.gradient_norm = decision.gradient_norm,
                    .clip_factor = decision.clip_factor,
                    .outcome = decision.skip ? StepResult::Outcome::kSkippedNonFinite
                                             : StepResult::Outcome::kUpdated};
}

// What was recorded of a step that was given up is no plan.
void EngineImpl::DropRecording() {
  if (!tracer_.recording()) return;
  if (!dry_run()) arena_->SetObserver(nullptr);
  static_cast<void>(tracer_.End());
}

// A step that was recorded as it ran has a plan from now on: at its first occurrence, and when it
// left its trace twice in a row in the same way. A step that strays once keeps its trace, and so
// does one whose layers' savings were chosen from what dry steps showed.
void EngineImpl::NoteCourse() {
  if (plan_ == nullptr) return FinishRecording();
  const auto leases = static_cast<int64_t>(plan_->step.signatures.size());
  const bool strayed = course_.strayed || cursor_ != leases;
  if (cursor_ < leases) DropSkipped(cursor_, leases);
  const bool again = strayed && plan_->strayed == course_.hash() && !plan_->rehearsed();
  plan_->strayed = strayed ? course_.hash() : 0;
  if (again) return FinishRecording();
  DropRecording();
}

void EngineImpl::FinishRecording() {
  if (!tracer_.recording()) return;
  arena_->SetObserver(nullptr);
  const StepRecord record = tracer_.End();
  if (record.events.empty()) return;
  CompiledPlan plan;
  plan.step = CompileStep(record, *layout_);
  IndexPlan(plan);
  const auto found = plans_.find(recording_key_);
  if (found != plans_.end() && in_force_ == &found->second) LeaveMovementPlan();
  plans_.insert_or_assign(recording_key_, std::move(plan));
}

absl::Status EngineImpl::OnUpdated(ChunkId chunk, int64_t start_clock) {
  const ChunkPlacement& place = placement_.chunks[static_cast<size_t>(chunk.value())];
  const Tier tier = updates_->update_tier(chunk);
  for (int kind = 0; kind < kStateKindCount; ++kind) {
    const BlockId id{static_cast<StateKind>(kind), chunk};
    if (id.kind == StateKind::kGradient || !layout_->HasBlock(id)) continue;
    const BlockIndex block = manager_->IndexOf(id);
    int64_t next = -moment_clock_;
    if (placement_.eviction == EvictionOrder::kFurthestNextUse && training_plan_ != nullptr) {
      const auto& moments = training_plan_->step.update_moment;
      const int64_t moment = std::max<int64_t>(moments[static_cast<size_t>(chunk.value())], 0);
      const int64_t use = training_plan_->next_use->NextUse(block, moment);
      // As in NextKey: one past the moment of the use, in absolute time.
      next =
          use == NextUseIndex::kNever ? std::numeric_limits<int64_t>::max() : start_clock + use + 1;
    }
    mover_->SetKey(block, next);
    bool leaves = place.optimizer_on_update_tier == Residency::kTransient;
    if (id.kind == StateKind::kParameter) {
      leaves = in_force_ != nullptr &&
               (tier == Tier::kDevice
                    ? !in_force_->follower->StaysAfterUpdate(chunk)
                    : in_force_->parameter_in_file[static_cast<size_t>(chunk.value())]);
    }
    if (leaves) GANTRY_RETURN_IF_ERROR(mover_->Evict(block, tier));
  }
  RefreshLookAhead();
  return absl::OkStatus();
}

}  // namespace gantry
