// What the engine's implementation holds; see engine_impl.h. Internal to the engine's target.
#ifndef GANTRY_GEMINI_ENGINE_DATA_H_
#define GANTRY_GEMINI_ENGINE_DATA_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "chunk/chunk_manager.h"
#include "device/activation_arena.h"
#include "gemini/block_mover.h"
#include "gemini/engine.h"
#include "gemini/engine_parts.h"
#include "gemini/engine_trace.h"
#include "gemini/memory_tracer.h"
#include "gemini/plan_follower.h"
#include "gemini/step_times.h"
#include "gemini/update_queue.h"

namespace gantry {

class EngineImpl;

struct EngineData {
  explicit EngineData(const EngineOptions& engine_options)
      : options_(engine_options), trace_(engine_options.trace_sink, engine_options.clock) {}

  const EngineOptions options_;

  // The compute thread's own.
  std::vector<TensorSpec> specs_;
  std::vector<RegistrationOptions> registrations_;
  std::vector<std::pair<std::string, std::string>> aliases_;
  MemoryTracer tracer_;
  std::map<std::string, DryRecords, std::less<>> dry_records_;  // plans point into it
  LayerPasses layers_;
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
  int64_t activation_blocks_ = 0;  // behind those of chunks
  int64_t moved_blocks_ = 0;       // of these, most that steps use
  int64_t activation_slots_ = 0;   // most that steps hold at once beside those
  bool everything_fits_ = false;   // the device holds all that any step uses, updates too
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
  CompiledPlan* plan_ GANTRY_GUARDED_BY(mutex_) = nullptr;  // of the current step
  StepCourse course_ GANTRY_GUARDED_BY(mutex_);
  const PlanFollower* follower_ GANTRY_GUARDED_BY(mutex_) = nullptr;  // of plan_
  // Whose keep set and placement are in force, if any; follower_ is its own, or null while another
  // step runs.
  const CompiledPlan* in_force_ GANTRY_GUARDED_BY(mutex_) = nullptr;
  std::vector<char> leaves_ GANTRY_GUARDED_BY(mutex_);  // by block: dropped after its lease
  std::vector<PlanFollower::Fetch> ahead_ GANTRY_GUARDED_BY(mutex_);
  const CompiledPlan* training_plan_ GANTRY_GUARDED_BY(mutex_) = nullptr;  // updates may still run
  int64_t cursor_ GANTRY_GUARDED_BY(mutex_) = 0;        // next lease moment of plan_
  int64_t moment_clock_ GANTRY_GUARDED_BY(mutex_) = 0;  // lease moments since Seal
  int64_t step_start_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::vector<Need> needs_ GANTRY_GUARDED_BY(mutex_);          // of the lease being made
  std::vector<Need> layer_needs_ GANTRY_GUARDED_BY(mutex_);    // of the layer's pass
  std::vector<BlockIndex> used_up_ GANTRY_GUARDED_BY(mutex_);  // a transfer still reads them
  int64_t open_leases_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::vector<int32_t> chunk_leases_ GANTRY_GUARDED_BY(mutex_);
  StepProgress progress_ GANTRY_GUARDED_BY(mutex_);
  std::array<Nanoseconds, kStallCauseCount> stalls_ GANTRY_GUARDED_BY(mutex_){};
  Nanoseconds waited_ GANTRY_GUARDED_BY(mutex_) = 0;                   // all stalls since Seal
  std::optional<RecentTimes> update_times_ GANTRY_GUARDED_BY(mutex_);  // by chunk
  LeaseCounts lease_counts_ GANTRY_GUARDED_BY(mutex_);
  LayerCounts layer_counts_ GANTRY_GUARDED_BY(mutex_);
  int64_t waits_this_step_ GANTRY_GUARDED_BY(mutex_) = 1;
  bool settled_ GANTRY_GUARDED_BY(mutex_) = false;  // everything is resident: nothing to fetch
  std::array<TransferCounters, kTransferLaneCount> lanes_base_ GANTRY_GUARDED_BY(mutex_){};
  Nanoseconds update_busy_ GANTRY_GUARDED_BY(mutex_) = 0;
  EngineTrace trace_ GANTRY_GUARDED_BY(mutex_);

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

#endif  // GANTRY_GEMINI_ENGINE_DATA_H_
