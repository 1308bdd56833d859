// One step as it happened, in terms of tensors and bytes: leases, activation memory, passes of
// layers. And what can be made of it without running it again: where the saved activations of
// layers lie that may leave the device, and the same step with other layers run again or moved.
// Plain data and pure functions.
#ifndef GANTRY_GEMINI_STEP_RECORD_H_
#define GANTRY_GEMINI_STEP_RECORD_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "gemini/layer_activations.h"
#include "gemini/parameter_store.h"
#include "placement_policy/trace.h"

namespace gantry {

struct StepRecord {
  struct Event {
    enum class Kind : uint8_t {
      kAcquire,
      kRelease,
      kAllocate,
      kFree,
      kGradientReady,
      kMicroBatch,
      kBeginLayer,
      kEndLayer,
      kBeginLayerBackward,
      kEndLayerBackward,
    };
    Kind kind;
    Phase phase = Phase::kForward;  // kAcquire
    int32_t name = 0;               // kAcquire: index into names
    int32_t first_use = 0;          // kAcquire: index into uses
    int32_t use_count = 0;          // kAcquire
    // kAcquire, when composed: which lease of the kept record takes as long. A lease in the
    // backward pass may repeat one of the forward pass.
    int32_t origin = -1;
    // kAllocate, kFree: bytes from the arena's base; kGradientReady: tensor; of layers: the pass.
    int64_t offset = 0;
    int64_t bytes = 0;  // kAllocate, kFree
  };
  struct Layer {
    int32_t layer = 0;
    LayerSaving wanted = LayerSaving::kKeep;
    LayerSaving saving = LayerSaving::kKeep;
    int64_t output = -1;  // bytes from the arena's base
  };
  std::vector<Event> events;
  std::vector<ParameterUse> uses;
  std::vector<std::string> names;
  std::vector<Layer> layers;  // by pass
  int64_t micro_batches = 0;
  bool optimizer = false;
};

// What the passes of a step's layers save, and where it lies when it may leave the device: in
// blocks of one slot, a pass's own while it is alive.
struct SavedMemory {
  struct Allocation {
    int64_t bytes = 0;
    int64_t offset = -1;  // within the pass's blocks; -1: in the arena
  };
  struct Pass {
    std::vector<Allocation> allocations;  // of the forward pass, in order
    int64_t bytes = 0;                    // saved
    int64_t first_block = 0;
    int64_t blocks = 0;  // 0: it cannot move
  };
  std::vector<Pass> passes;
  int64_t blocks = 0;  // of all
};
// `kept`: a record in which no layer runs again or moves. Only passes that want kMove or kPlanned
// get blocks.
SavedMemory LayOutSaved(const StepRecord& kept, Bytes slot);

// The step of `kept` with its layers saved as `savings` says, by pass: the events that a step with
// these choices makes, but that memory of moved passes does not appear. `again` is a record of the
// same step in which the layers to be run again are; null: there are none.
// Errors: kFailedPrecondition when the two records do not agree outside the layers.
absl::StatusOr<StepRecord> ComposeRecord(const StepRecord& kept, const StepRecord* again,
                                         const SavedMemory& saved,
                                         std::span<const LayerSaving> savings);

}  // namespace gantry

#endif  // GANTRY_GEMINI_STEP_RECORD_H_
