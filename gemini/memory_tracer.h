// Records one step as it happens (leases, activation memory, gradient readiness) and compiles the
// record into a placement_policy::Trace for a given layout. Tensors and byte offsets are recorded,
// not blocks and slots, so one dry run serves every chunk size that is considered.
#ifndef GANTRY_GEMINI_MEMORY_TRACER_H_
#define GANTRY_GEMINI_MEMORY_TRACER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "chunk/chunk_layout.h"
#include "device/activation_arena.h"
#include "gemini/parameter_store.h"
#include "placement_policy/trace.h"

namespace gantry {

// One step, in terms of tensors and bytes. Plain data.
struct StepRecord {
  struct Event {
    enum class Kind : uint8_t { kAcquire, kRelease, kAllocate, kFree, kGradientReady, kMicroBatch };
    Kind kind;
    Phase phase = Phase::kForward;  // kAcquire
    int32_t name = 0;               // kAcquire: index into names
    int32_t first_use = 0;          // kAcquire: index into uses
    int32_t use_count = 0;          // kAcquire
    int64_t offset = 0;             // kAllocate, kFree: bytes; kGradientReady: tensor
    int64_t bytes = 0;              // kAllocate, kFree
  };
  std::vector<Event> events;
  std::vector<ParameterUse> uses;
  std::vector<std::string> names;
  int64_t micro_batches = 0;
  bool optimizer = false;
};

// A compiled step: the trace, and per moment what identifies its lease when it comes again.
struct CompiledStep {
  Trace trace;  // block numbers are ChunkManager's BlockIndex; compute times are 0, unknown
  std::vector<uint64_t> signatures;       // of the lease moments, in order
  std::vector<int64_t> activation_after;  // most activation slots needed from moment i on, for the
                                          // next kTrimWindow moments
  std::vector<int64_t> chunk_order;       // chunk -> rank of its first use in the step
  std::vector<int64_t> update_moment;     // chunk -> its optimizer moment; -1 without one
  static constexpr int64_t kTrimWindow = 32;
};

// Identifies a lease by what it asks for.
uint64_t LeaseSignature(std::span<const ParameterUse> uses, Phase phase);

// Thread-compatible; used by the compute thread.
class MemoryTracer final : public ArenaObserver {
 public:
  void Begin(const StepOptions& options);
  // The record of what happened since Begin.
  StepRecord End();
  bool recording() const { return recording_; }

  void OnMicroBatch();
  void OnAcquire(std::span<const ParameterUse> uses, std::string_view name, Phase phase);
  void OnRelease();
  void OnGradientReady(TensorId tensor);
  void OnAllocate(int64_t offset, int64_t bytes) override;
  void OnFree(int64_t offset, int64_t bytes) override;

 private:
  void Add(const StepRecord::Event& event);

  bool recording_ = false;
  StepRecord record_;
};

// Translates a record to blocks and slots. The optimizer's moments follow the backward pass, in
// the order in which the next forward pass uses the parameters.
CompiledStep CompileStep(const StepRecord& record, const ChunkLayout& layout);

// The step's trace as the pool sees it: the arena keeps slots that activations of the next moments
// will need again.
Trace TraceWithKeptSlots(const CompiledStep& step);

}  // namespace gantry

#endif  // GANTRY_GEMINI_MEMORY_TRACER_H_
