// Plain parts of the engine's implementation. Internal to the engine's target.
#ifndef GANTRY_GEMINI_ENGINE_PARTS_H_
#define GANTRY_GEMINI_ENGINE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "chunk/chunk_manager.h"
#include "gemini/engine.h"
#include "gemini/layer_activations.h"
#include "gemini/memory_tracer.h"
#include "gemini/plan_follower.h"
#include "gemini/step_record.h"
#include "gemini/step_times.h"
#include "placement_policy/policy.h"
#include "placement_policy/trace.h"

namespace gantry {

// Of blocks that belong to none: activations.
inline constexpr ChunkId kNoChunk(-1);

// How a block is needed by whoever pins it.
struct Need {
  enum class Mode : uint8_t { kRead, kWrite, kCreate };
  BlockIndex block;
  Mode mode;
  ChunkId chunk;
};

// What dry steps of one key showed.
struct DryRecords {
  StepRecord kept;                  // whatever may be kept is
  std::optional<StepRecord> again;  // whatever may run again does; of a second dry step
};

// A step whose trace is known, and what follows from it.
struct CompiledPlan {
  CompiledStep step;
  // Of a step with layers that a dry run showed: how its layers are saved in `step`, and the step
  // that keeps all, where that is another one.
  const DryRecords* records = nullptr;
  SavedMemory saved;
  std::vector<LayerSaving> savings;  // by pass
  std::unique_ptr<CompiledStep> kept;
  std::unique_ptr<NextUseIndex> next_use;
  std::unique_ptr<StepTimer> timer;
  // Of the key's last step, what it did, if that was not what the trace says; 0: it was.
  uint64_t strayed = 0;
  // With the policy `planned`, once the times of the step are known.
  std::unique_ptr<PlanFollower> follower;
  std::vector<ChunkPlacement> placement;  // that the follower goes with
  std::vector<bool> parameter_in_file;    // by chunk: it does not stay in host memory
  std::unique_ptr<PlannedStep> planned;   // what the follower was made from
  bool planning_failed = false;           // said once; the step goes on without a plan
  MovementReport report;

  // Whether layers are saved as dry steps showed that they can be, so that the step as it runs is
  // not all that it could be.
  bool rehearsed() const { return saved.blocks > 0 || kept != nullptr; }
};

// Bytes per second that are assumed where a rate is neither given nor measured: what most machines
// exceed.
inline constexpr int64_t kAssumedCopyRate = 10'000'000'000;
inline constexpr int64_t kAssumedFileRate = 1'000'000'000;
inline constexpr int64_t kAssumedUpdateRate = 10'000'000'000;

// A step as the planner sees it.
struct PlannerStep {
  Trace trace;                           // its activations are those of the layers that move
  std::vector<BlockIndex> first_blocks;  // of each
};

// Bytes to be written to one kind of state.
struct BlockBytes {
  StateKind kind;
  std::span<const std::byte> bytes;
};

// How far the running step is: by chunk or tensor.
struct StepProgress {
  std::vector<int32_t> gradients_missing;  // by chunk: tensors to be declared ready; -1: frozen
  std::vector<char> contributed;           // by tensor: a gradient was added to
  std::vector<char> ready;                 // by tensor: declared ready in this micro-batch
};

// The passes of layers of the running step. The compute thread's.
struct LayerPasses {
  struct Pass {
    LayerSaving saving = LayerSaving::kKeep;
    bool in_blocks = false;  // its blocks are not forgotten yet
    bool pinned = false;
    size_t allocations = 0;  // of its forward pass, so far
    int64_t live = 0;        // allocations in its blocks
  };
  const SavedMemory* saved = nullptr;  // of the step's plan; null: without one
  std::vector<Pass> passes;
  int64_t open = -1;      // whose forward pass it is
  int64_t backward = -1;  // whose backward pass it is
};

// What the running step does, beside what its trace says.
struct StepCourse {
  uint64_t leases = 0;  // a hash of them, in order
  bool strayed = false;
  bool lease_on_plan = false;  // the last one was the one that the trace expected

  uint64_t hash() const { return leases | 1; }  // never 0
};

struct LeaseCounts {
  int64_t all = 0;
  int64_t waited = 0;    // not served at once
  int64_t off_plan = 0;  // not the ones that the trace expected
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_ENGINE_PARTS_H_
