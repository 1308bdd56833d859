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
#include "gemini/layer_activations.h"
#include "gemini/parameter_store.h"
#include "gemini/step_record.h"
#include "placement_policy/trace.h"

namespace gantry {

// A compiled step: the trace, and per moment what identifies its lease when it comes again.
struct CompiledStep {
  Trace trace;  // block numbers are ChunkManager's BlockIndex; compute times are 0, unknown
  std::vector<uint64_t> signatures;       // of the lease moments, in order
  std::vector<int64_t> activation_after;  // most activation slots needed from moment i on, for the
                                          // next kTrimWindow moments
  std::vector<int64_t> arena_slots;       // of the moments' activation slots, those of the arena
  std::vector<int64_t> chunk_order;       // chunk -> rank of its first use in the step
  std::vector<int64_t> update_moment;     // chunk -> its optimizer moment; -1 without one
  std::vector<int32_t> origins;           // of lease moments: StepRecord::Event::origin
  static constexpr int64_t kTrimWindow = 32;

  // A pass of a layer. Its backward pass begins with moment `used`; -1: it has none, or no lease
  // comes between or after.
  struct Layer {
    LayerSaving saving = LayerSaving::kKeep;
    int32_t first = -1;    // moment
    int32_t created = -1;  // last moment of the forward pass
    int32_t used = -1;
  };
  std::vector<Layer> layers;  // by pass
  int64_t moved_blocks = 0;   // slots of all moved layers together: what has no place on the device
                              // may be elsewhere

  // How an activation is made: by the forward moments of its micro-batch in this range.
  struct Remaking {
    int32_t first;
    int32_t last;
    int64_t pass;  // that saves it; -1: a layer's output
  };
  std::vector<Remaking> remakings;  // by activation
  // Sets each activation's time to compute it again from the moments' times.
  void FillRecompute();
};

// Identifies a lease by what it asks for.
uint64_t LeaseSignature(std::span<const ParameterUse> uses, Phase phase);

// Thread-compatible; used by the compute thread.
class MemoryTracer final : public ArenaObserver {
 public:
  void Begin(const StepOptions& options);
  // The record of what happened since Begin.
  StepRecord End();
  const StepRecord& record() const { return record_; }  // so far
  bool recording() const { return recording_; }

  void OnMicroBatch();
  void OnAcquire(std::span<const ParameterUse> uses, std::string_view name, Phase phase);
  void OnRelease();
  void OnGradientReady(TensorId tensor);
  // `pass` counts the calls of OnBeginLayer.
  void OnBeginLayer(const StepRecord::Layer& layer);
  void OnEndLayer(int64_t pass, int64_t output);
  void OnBeginLayerBackward(int64_t pass);
  void OnEndLayerBackward(int64_t pass);
  void OnAllocate(int64_t offset, int64_t bytes) override;
  void OnFree(int64_t offset, int64_t bytes) override;

 private:
  void Add(const StepRecord::Event& event);

  bool recording_ = false;
  StepRecord record_;
};

// Translates a record to blocks and slots. The optimizer's moments follow the backward pass, in
// the order in which the next forward pass uses the parameters.
//
// The trace's activations are what each kept layer saves, and each layer's output. Where the record
// is composed and layers move, `saved` says in which blocks: these come behind the layout's, are
// created by the last moment of the forward pass and consumed by the first of the backward pass,
// and count as activations in the other moments of the two.
CompiledStep CompileStep(const StepRecord& record, const ChunkLayout& layout,
                         const SavedMemory* saved = nullptr);

// The step's trace as the pool sees it: the arena keeps slots that activations of the next moments
// will need again.
Trace TraceWithKeptSlots(const CompiledStep& step);

}  // namespace gantry

#endif  // GANTRY_GEMINI_MEMORY_TRACER_H_
