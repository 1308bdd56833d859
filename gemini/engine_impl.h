// The Engine's implementation; see engine.h for what it is. Split over engine.cc (creation, Seal),
// engine_background.cc (threads, waiting), engine_lease.cc (leases, look-ahead), engine_plan.cc
// (the policy `planned`), engine_step.cc (steps, gradients) and engine_state.cc (access to states).
#ifndef GANTRY_GEMINI_ENGINE_IMPL_H_
#define GANTRY_GEMINI_ENGINE_IMPL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_calls.h"
#include "base/mutex.h"
#include "chunk/chunk_manager.h"
#include "device/activation_arena.h"
#include "gemini/block_mover.h"
#include "gemini/budget.h"
#include "gemini/engine.h"
#include "gemini/engine_data.h"
#include "gemini/engine_parts.h"
#include "gemini/memory_tracer.h"
#include "gemini/plan_follower.h"
#include "gemini/step_times.h"
#include "gemini/update_queue.h"
#include "placement_policy/planner.h"

namespace gantry {

class EngineImpl final : public Engine,
                         private SlotSource,
                         private ArenaDetour,
                         private LayerActivations,
                         private EngineData {
 public:
  explicit EngineImpl(const EngineOptions& options);
  ~EngineImpl() override;

  absl::StatusOr<TensorId> Register(const TensorSpec& spec,
                                    const RegistrationOptions& options) override;
  absl::Status Alias(std::string_view name, TensorId tensor) override;
  absl::Status Seal() override;
  bool dry_run() const override { return manager_ == nullptr; }
  const ChunkLayout& layout() const override;
  ActivationArena& arena() override { return *arena_; }
  LayerActivations& layer_activations() override { return *this; }

  absl::Status BeginStep(const StepOptions& options) override;
  absl::Status BeginMicroBatch() override;
  absl::StatusOr<Lease> Acquire(std::span<const ParameterUse> uses, std::string_view name,
                                Phase phase) override;
  void GradientReady(TensorId tensor) override;
  absl::StatusOr<StepResult> EndStep() override;
  absl::Status ReadState(StateKind kind, TensorId tensor, int64_t first,
                         std::span<std::byte> bytes) override;
  absl::Status WriteState(StateKind kind, TensorId tensor, int64_t first,
                          std::span<const std::byte> bytes) override;

  absl::StatusOr<Nanoseconds> MovementTime(std::string_view key) override;
  absl::Status Drain() override;
  EngineStatistics statistics() const override;
  void ResetStatistics() override;
  BudgetReport budget_report() const override { return budget_report_; }
  const Trace* trace(std::string_view key) override;
  MovementReport movement_report(std::string_view key) const override;
  const PlannedStep* planned_step(std::string_view key) const override;

  absl::Status Prepare();

 private:
  static void IndexPlan(CompiledPlan& plan);

  // engine.cc
  absl::Status ChooseLayout();
  // `planned`: how layers are saved whose saving is the plan's.
  absl::StatusOr<std::vector<CompiledPlan>> TryChunkSize(int64_t elements,
                                                         const PlacementPolicy& policy,
                                                         LayerSaving planned);
  absl::Status CreateTiers();
  void DestroyTiers();
  LeasedTensor MakeLeased(TensorId tensor) const;
  bool HasTensor(TensorId tensor) const {
    return tensor.value() >= 0 && tensor.value() < static_cast<int64_t>(specs_.size());
  }
  BudgetInput MakeBudgetInput() const;
  absl::StatusOr<ChunkLayout> MakeLayout(int64_t chunk_elements) const;

  // engine_background.cc
  absl::Status StartBackground();
  void StopBackground();
  void MoverLoop();
  void UpdateLoop();
  void Fail(const absl::Status& status) GANTRY_REQUIRES(mutex_);
  void TakeCompletions(std::span<const TransferCompletion> completions) GANTRY_REQUIRES(mutex_);
  // A job that can run, or nothing; an error ends the engine.
  std::optional<UpdateQueue::Job> TakeJob() GANTRY_REQUIRES(mutex_);
  Nanoseconds RunJob(const UpdateQueue::Job& job);  // how long it took
  void FinishJob(const UpdateQueue::Job& job, Nanoseconds time) GANTRY_REQUIRES(mutex_);
  void WakeUpdates() GANTRY_REQUIRES(mutex_);
  // In a simulation: what the mover thread would do; and how long a job takes.
  void OnSimulatedCompletion() GANTRY_EXCLUDES(mutex_);
  Nanoseconds SimulatedTime(const UpdateQueue::Job& job) const;
  // In a simulation: lets some of what goes on behind the caller happen now.
  void Overlap() GANTRY_EXCLUDES(mutex_);
  // One turn of a wait: pumps and sleeps until something changed. Errors: the engine's failure, or
  // kResourceExhausted when nothing can change any more.
  absl::Status WaitForChange(std::string_view what, std::string_view name) GANTRY_REQUIRES(mutex_);
  absl::Status StuckError(std::string_view what, std::string_view name) GANTRY_REQUIRES(mutex_);
  void AddStall(StallCause cause, Nanoseconds begin, Nanoseconds end) GANTRY_REQUIRES(mutex_);

  // engine_lease.cc
  absl::StatusOr<Lease> DryLease(std::span<const ParameterUse> uses, Phase phase);
  void ReleaseLease(const Lease& lease) override;
  absl::StatusOr<SlotId> AcquireActivationSlot() override;
  void ReleaseActivationSlot(SlotId slot) override;
  absl::Status CheckUses(std::span<const ParameterUse> uses, std::string_view name) const
      GANTRY_REQUIRES(mutex_);
  void CollectNeeds(std::span<const ParameterUse> uses) GANTRY_REQUIRES(mutex_);
  bool AnyPending(std::span<const Need> needs) const GANTRY_REQUIRES(mutex_);
  // Whether the block's next content is still to be made.
  bool AwaitsContent(BlockIndex block) const GANTRY_REQUIRES(mutex_);
  absl::StatusOr<bool> TryPin(Tier tier, std::span<const Need> needs) GANTRY_REQUIRES(mutex_);
  // Blocks until all needs are on `tier`, then pins them.
  absl::Status Pin(Tier tier, std::span<const Need> needs, std::string_view name)
      GANTRY_REQUIRES(mutex_);
  absl::Status WaitAndPin(Tier tier, std::span<const Need> needs, std::string_view name)
      GANTRY_REQUIRES(mutex_);
  void Unpin(Tier tier, std::span<const Need> needs) GANTRY_REQUIRES(mutex_);
  // An error ends the engine: it is kept, and every later call returns it.
  absl::Status PumpLocked() GANTRY_REQUIRES(mutex_);
  void FollowPlan(std::span<const ParameterUse> uses, Phase phase) GANTRY_REQUIRES(mutex_);
  int64_t NextKey(BlockIndex block) const GANTRY_REQUIRES(mutex_);
  void RefreshLookAhead() GANTRY_REQUIRES(mutex_);
  void FinishLease(Lease& lease, std::span<const ParameterUse> uses) GANTRY_REQUIRES(mutex_);
  void EnterChunks(std::span<const ParameterUse> uses) GANTRY_REQUIRES(mutex_);
  void LeaveChunk(ChunkId chunk) GANTRY_REQUIRES(mutex_);
  void BeginGradient(ChunkId chunk) GANTRY_REQUIRES(mutex_);
  void FillWithZeros(std::byte* address, int64_t bytes) GANTRY_REQUIRES(mutex_);

  // engine_layers.cc
  absl::StatusOr<LayerPass> BeginLayer(int32_t layer, LayerSaving wanted) override;
  absl::Status EndLayer(const LayerPass& pass, const std::byte* output) override;
  absl::Status BeginLayerBackward(const LayerPass& pass) override;
  absl::Status EndLayerBackward(const LayerPass& pass) override;
  std::byte* OnAllocate(int64_t bytes) override;
  void OnFree(const std::byte* data, int64_t bytes) override;
  LayerSaving DecideSaving(int64_t pass, int32_t layer, LayerSaving wanted) GANTRY_EXCLUDES(mutex_);
  void KeepDryRecord(const std::string& key, StepRecord record);
  bool CanMoveActivations() const;
  std::vector<LayerSaving> LayerCandidates() const;
  absl::StatusOr<CompiledPlan> CompilePlan(const DryRecords& records, LayerSaving planned) const;
  absl::Status Recompile(CompiledPlan& plan, std::vector<LayerSaving> savings) const;
  void CollectLayerNeeds(int64_t pass, Need::Mode mode) GANTRY_REQUIRES(mutex_);
  absl::Status ForgetSaved(int64_t pass) GANTRY_REQUIRES(mutex_);
  absl::Status ForgetUsedUp() GANTRY_REQUIRES(mutex_);
  void EndLayers() GANTRY_REQUIRES(mutex_);

  // engine_plan.cc
  bool planned() const { return options_.policy == kPlannedPolicy; }
  // Gives the step that begins its movement plan, or goes back to moving on demand.
  absl::Status FollowMovementPlan(const StepOptions& options) GANTRY_REQUIRES(mutex_);
  void LeaveMovementPlan() GANTRY_REQUIRES(mutex_);
  void MakeMovementPlan(CompiledPlan& plan, const StepOptions& options) GANTRY_REQUIRES(mutex_);
  // engine_layer_plan.cc
  PlannerStep StepForPlanner(const CompiledPlan& plan) const;
  absl::StatusOr<MovementDecision> PlanLayersAndMovement(CompiledPlan& plan, const Machine& machine,
                                                         PlannerOptions planner)
      GANTRY_REQUIRES(mutex_);
  std::vector<LayerSaving> ChooseSavings(const CompiledPlan& plan, const Machine& machine,
                                         PlannerOptions planner) const;
  absl::Status CheckPlans() GANTRY_REQUIRES(mutex_);
  std::vector<ChunkPlacement> PlacementOf(const PlanFollower& follower,
                                          const MovementDecision& decision) const;
  absl::Status InstallPlacement(const CompiledPlan& plan) GANTRY_REQUIRES(mutex_);
  void InstallChunk(ChunkId chunk, const ChunkPlacement& place) GANTRY_REQUIRES(mutex_);
  // Parameters on the device are what the plan has there when its step begins; others leave.
  void RestoreKeepSet(const PlanFollower& follower) GANTRY_REQUIRES(mutex_);
  // While something else than the plan's step runs, what it keeps leaves last.
  void HoldKeepSet(const PlanFollower& follower) GANTRY_REQUIRES(mutex_);
  void FillTimes(CompiledPlan& plan) const GANTRY_REQUIRES(mutex_);
  MachineRates MeasuredRates(const Trace& trace) const GANTRY_REQUIRES(mutex_);
  PlanFollower::Presence PresenceOf(BlockIndex block) const GANTRY_REQUIRES(mutex_);
  void NoteLeaving(std::span<const Need> needs) GANTRY_REQUIRES(mutex_);
  // Moments [first, last) of the plan did not come: what leaves after them leaves now.
  void DropSkipped(int64_t first, int64_t last) GANTRY_REQUIRES(mutex_);
  void DropLeaving(std::span<const Need> needs) GANTRY_REQUIRES(mutex_);

  // engine_step.cc
  void CompleteIfReady(ChunkId chunk) GANTRY_REQUIRES(mutex_);
  absl::Status ZeroUntouched(ChunkId chunk) GANTRY_REQUIRES(mutex_);
  absl::Status OnUpdated(ChunkId chunk, int64_t start_clock) GANTRY_REQUIRES(mutex_);
  // Whether the step that ends was not what its trace says; notes it.
  void NoteCourse() GANTRY_REQUIRES(mutex_);
  void FinishRecording();
  void DropRecording();

  // engine_state.cc
  absl::Status CheckStateAccess(StateKind kind, TensorId tensor, int64_t first,
                                int64_t bytes) const;
  template <typename Visit>
  absl::Status ForEachChunkOf(TensorId tensor, int64_t first, int64_t count, Visit visit)
      GANTRY_REQUIRES(mutex_);
  // Elements of one chunk from `element` on, as the interface shows them.
  absl::Status ReadSlice(StateKind kind, ChunkId chunk, int64_t element, std::span<std::byte> bytes)
      GANTRY_REQUIRES(mutex_);
  absl::Status ReadSplitMaster(ChunkId chunk, int64_t element, std::span<std::byte> bytes)
      GANTRY_REQUIRES(mutex_);
  absl::Status WriteSlice(StateKind kind, ChunkId chunk, int64_t element,
                          std::span<const std::byte> bytes) GANTRY_REQUIRES(mutex_);
  absl::Status WriteSplitMaster(StateKind kind, ChunkId chunk, int64_t element,
                                std::span<const std::byte> bytes) GANTRY_REQUIRES(mutex_);
  absl::Status WriteSplitVariance(ChunkId chunk, int64_t element, std::span<const std::byte> bytes)
      GANTRY_REQUIRES(mutex_);
  absl::StatusOr<std::span<float>> Factors(TensorId tensor) GANTRY_REQUIRES(mutex_);
  void NoteMasters(ChunkId chunk, int64_t element, int64_t count) GANTRY_REQUIRES(mutex_);
  absl::Status ReadEightBit(BlockId moment, int64_t element, std::span<std::byte> bytes)
      GANTRY_REQUIRES(mutex_);
  absl::Status WriteEightBit(BlockId moment, int64_t element, std::span<const std::byte> bytes)
      GANTRY_REQUIRES(mutex_);
  // Gives blocks that were just written back to the device, where it is their home.
  absl::Status SettleWritten(ChunkId chunk, std::vector<Need> needs) GANTRY_REQUIRES(mutex_);
  // As the blocks hold them.
  absl::Status ReadBlock(StateKind kind, ChunkId chunk, int64_t element, std::span<std::byte> bytes)
      GANTRY_REQUIRES(mutex_);
  absl::Status WriteBlocks(ChunkId chunk, int64_t element, std::span<const BlockBytes> writes)
      GANTRY_REQUIRES(mutex_);

  BlockIndex Index(StateKind kind, ChunkId chunk) const { return manager_->IndexOf({kind, chunk}); }
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_ENGINE_IMPL_H_
