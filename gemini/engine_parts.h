// Plain parts of the engine's implementation. Internal to the engine's target.
#ifndef GANTRY_GEMINI_ENGINE_PARTS_H_
#define GANTRY_GEMINI_ENGINE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "chunk/chunk_manager.h"
#include "gemini/engine.h"
#include "gemini/memory_tracer.h"
#include "gemini/plan_follower.h"
#include "gemini/step_times.h"
#include "placement_policy/policy.h"
#include "placement_policy/trace.h"

namespace gantry {

// How a block is needed by whoever pins it.
struct Need {
  enum class Mode : uint8_t { kRead, kWrite, kCreate };
  BlockIndex block;
  Mode mode;
  ChunkId chunk;
};

// A step whose trace is known, and what follows from it.
struct CompiledPlan {
  CompiledStep step;
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
};

// Bytes per second that are assumed where a rate is neither given nor measured: what most machines
// exceed.
inline constexpr int64_t kAssumedCopyRate = 10'000'000'000;
inline constexpr int64_t kAssumedFileRate = 1'000'000'000;
inline constexpr int64_t kAssumedUpdateRate = 10'000'000'000;

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
