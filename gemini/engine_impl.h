// The Engine's implementation; see engine.h for what it is. Split over engine.cc (creation, Seal),
// engine_background.cc (threads, waiting), engine_lease.cc (leases, look-ahead), engine_plan.cc
// (the policy `planned`), engine_step.cc (steps, gradients) and engine_state.cc (access to states).
#ifndef GANTRY_GEMINI_ENGINE_IMPL_H_
#define GANTRY_GEMINI_ENGINE_IMPL_H_

#include <array>
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
#include "gemini/engine_parts.h"
#include "gemini/memory_tracer.h"
#include "gemini/plan_follower.h"
#include "gemini/step_times.h"
#include "gemini/update_queue.h"

namespace gantry {

class EngineImpl final : public Engine, private SlotSource {
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

  absl::Status Prepare();

 private:
  static CompiledPlan MakePlan(CompiledStep step);

  // engine.cc
  absl::Status ChooseLayout();
  absl::StatusOr<std::vector<CompiledStep>> TryChunkSize(int64_t elements,
                                                         const PlacementPolicy& policy);
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
  void AddStall(StallCause cause, Nanoseconds time) GANTRY_REQUIRES(mutex_);

  // engine_lease.cc
  absl::StatusOr<Lease> DryLease(std::span<const ParameterUse> uses, Phase phase);
  void ReleaseLease(const Lease& lease) override;
  absl::StatusOr<SlotId> AcquireActivationSlot() override;
  void ReleaseActivationSlot(SlotId slot) override;
  absl::Status CheckUses(std::span<const ParameterUse> uses, std::string_view name) const
      GANTRY_REQUIRES(mutex_);
  void CollectNeeds(std::span<const ParameterUse> uses) GANTRY_REQUIRES(mutex_);
  bool AnyPending(std::span<const Need> needs) const GANTRY_REQUIRES(mutex_);
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

  // engine_plan.cc
  bool planned() const { return options_.policy == kPlannedPolicy; }
  // Gives the step that begins its movement plan, or goes back to moving on demand.
  absl::Status FollowMovementPlan(const StepOptions& options) GANTRY_REQUIRES(mutex_);
  void MakeMovementPlan(CompiledPlan& plan, const StepOptions& options) GANTRY_REQUIRES(mutex_);
  void InstallPlacement(const CompiledPlan& plan, const MovementDecision& decision)
      GANTRY_REQUIRES(mutex_);
  void FillTimes(CompiledStep& step, const StepTimer& timer) const GANTRY_REQUIRES(mutex_);
  MachineRates MeasuredRates(const Trace& trace) const GANTRY_REQUIRES(mutex_);
  PlanFollower::Presence PresenceOf(BlockIndex block) const GANTRY_REQUIRES(mutex_);
  void NoteLeaving(std::span<const Need> needs) GANTRY_REQUIRES(mutex_);
  void DropLeaving(std::span<const Need> needs) GANTRY_REQUIRES(mutex_);

  // engine_step.cc
  void CompleteIfReady(ChunkId chunk) GANTRY_REQUIRES(mutex_);
  absl::Status ZeroUntouched(ChunkId chunk) GANTRY_REQUIRES(mutex_);
  absl::Status OnUpdated(ChunkId chunk, int64_t start_clock) GANTRY_REQUIRES(mutex_);
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

  const EngineOptions options_;

  // The compute thread's own.
  std::vector<TensorSpec> specs_;
  std::vector<RegistrationOptions> registrations_;
  std::vector<std::pair<std::string, std::string>> aliases_;
  MemoryTracer tracer_;
  std::map<std::string, StepRecord, std::less<>> dry_records_;
  std::optional<StepOptions> step_;  // set between BeginStep and EndStep
  int64_t micro_batch_ = 0;          // 1-based within the step
  BudgetReport budget_report_;
  std::vector<ParameterUse> uses_scratch_;
  std::string recording_key_;  // of the step that tracer_ records

  // Set by Seal, constant afterwards; a movement plan changes where updates run.
  std::optional<ChunkLayout> layout_;
  Placement placement_;
  int64_t device_slots_ = 0;
  int64_t host_slots_ = 0;
  bool everything_fits_ = false;  // the device holds all that any step uses, updates too
  std::vector<ChunkLayout::ChunkRange> chunks_of_tensor_;
  std::vector<LeasedTensor> leased_;  // per tensor, with both addresses

  mutable Mutex mutex_;
  CondVar changed_;      // a transfer or an update finished, or the engine failed
  CondVar update_work_;  // a job may be runnable
  bool stopping_ GANTRY_GUARDED_BY(mutex_) = false;
  std::shared_ptr<EngineImpl*> simulated_self_;  // for events of the loop; null once stopped
  bool simulated_job_ = false;  // the event loop holds a job; the caller's thread only
  absl::Status failure_ GANTRY_GUARDED_BY(mutex_);
  std::map<std::string, CompiledPlan, std::less<>> plans_ GANTRY_GUARDED_BY(mutex_);
  CompiledPlan* plan_ GANTRY_GUARDED_BY(mutex_) = nullptr;            // of the current step
  const PlanFollower* follower_ GANTRY_GUARDED_BY(mutex_) = nullptr;  // of plan_
  std::vector<char> leaves_ GANTRY_GUARDED_BY(mutex_);  // by block: dropped after its lease
  std::vector<PlanFollower::Fetch> ahead_ GANTRY_GUARDED_BY(mutex_);
  const CompiledPlan* training_plan_ GANTRY_GUARDED_BY(mutex_) = nullptr;  // updates may still run
  int64_t cursor_ GANTRY_GUARDED_BY(mutex_) = 0;        // next lease moment of plan_
  int64_t moment_clock_ GANTRY_GUARDED_BY(mutex_) = 0;  // lease moments since Seal
  int64_t step_start_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::vector<Need> needs_ GANTRY_GUARDED_BY(mutex_);  // of the lease being made
  int64_t open_leases_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::vector<int32_t> chunk_leases_ GANTRY_GUARDED_BY(mutex_);
  StepProgress progress_ GANTRY_GUARDED_BY(mutex_);
  std::array<Nanoseconds, kStallCauseCount> stalls_ GANTRY_GUARDED_BY(mutex_){};
  Nanoseconds waited_ GANTRY_GUARDED_BY(mutex_) = 0;                   // all stalls since Seal
  std::optional<RecentTimes> update_times_ GANTRY_GUARDED_BY(mutex_);  // by chunk
  LeaseCounts lease_counts_ GANTRY_GUARDED_BY(mutex_);
  int64_t waits_this_step_ GANTRY_GUARDED_BY(mutex_) = 1;
  bool settled_ GANTRY_GUARDED_BY(mutex_) = false;  // everything is resident: nothing to fetch
  std::array<TransferCounters, kTransferLaneCount> lanes_base_ GANTRY_GUARDED_BY(mutex_){};

  std::unique_ptr<ChunkManager> manager_;
  std::unique_ptr<TransferEngine> transfers_;
  std::unique_ptr<BlockMover> mover_;
  std::unique_ptr<UpdateQueue> updates_;
  std::unique_ptr<Slab> dry_slab_;
  std::unique_ptr<ActivationArena> arena_;
  // thread: completions and updates must go on while the compute thread is inside a kernel.
  std::thread mover_thread_;
  std::thread update_thread_;
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_ENGINE_IMPL_H_
