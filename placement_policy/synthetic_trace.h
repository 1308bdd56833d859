// The trace of a training step that nobody has run: from a model's shape and the step's settings,
// the moments, blocks, times and activations that gemini/MemoryTracer would record (for a model of
// ours tests/integration compares the two). So a model of any size can be planned without weights
// and without hardware.
//
// Moments. Each operator of the forward pass, cut into tiles (synthetic_layout.h), then each of the
// backward pass in reverse, then one update per trainable chunk in the order in which the next
// forward pass needs them, as gemini compiles a step. Attention has a moment of its own without
// blocks; a tracer would not see it. A moment's name is its operator's in both passes; moments that
// compute a layer again carry Phase::kBackward, as in trainer/autograd.
// Blocks. Numbered as in chunk/ChunkManager: kind x chunks + chunk, of parameter, gradient and
// three states.
// Times. Operations (operator_cost.h) over one rate; updates take 0, because the machine decides
// where and how fast they run. One rate for all operators is a simplification: small matrices and
// attention run below the rate of large ones.
// Activations. What operator_cost.h lists, rounded up to slots once per moment. Without recomputing
// each layer and micro-batch has two saved activations: its inside, which can be computed again
// from its input, and its input, which can be computed again from the tokens only. Recomputing
// leaves the inputs.
//
// Pure functions: equal arguments give equal traces.
#ifndef GANTRY_PLACEMENT_POLICY_SYNTHETIC_TRACE_H_
#define GANTRY_PLACEMENT_POLICY_SYNTHETIC_TRACE_H_

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/sharded_trace.h"
#include "placement_policy/trace.h"

namespace gantry {

enum class MicroBatchOrder : uint8_t {
  kMicroBatchMajor,  // each micro-batch goes forward and backward before the next begins
  kLayerMajor,       // each layer serves all micro-batches, the last first in the forward pass
};

enum class Recomputation : uint8_t {
  kNone,  // all that operators save is kept
  kFull,  // each layer's input is kept; the layer runs again in the backward pass
  // As kFull, but a plain feed-forward network's last product, which no gradient needs, is not made
  // again. This is what trainer/autograd does.
  kNeeded,
};

struct SyntheticOptions {
  int64_t chunk_elements = 0;  // 0: ChooseSyntheticChunkElements
  int64_t sequences = 1;       // of a micro-batch
  int64_t sequence_length = 2048;
  int64_t micro_batches = 1;
  MicroBatchOrder order = MicroBatchOrder::kMicroBatchMajor;
  Recomputation recomputation = Recomputation::kNone;
  DType parameter_dtype = DType::kBF16;
  DType gradient_dtype = DType::kBF16;  // kBF16 or kF32; f32 parameters have f32 gradients
  DType activation_dtype = DType::kBF16;
  // Slots per chunk of master, momentum and variance. {2, 2, 2}: AdamW in f32. {1, 2, 2}: split
  // master. {2, 1, 0}: 8-bit moments. {0, 2, 2}: f32 parameters, which are their own master.
  std::array<int8_t, 3> state_slots = {2, 2, 2};
  // 0: all parameters are trained. Otherwise the model is frozen and adapters of this rank on the
  // matrices of its layers are trained; there is nothing to go back to before the first layer.
  int64_t lora_rank = 0;
  double flops_per_second = 1e14;  // that operators reach
  ShardOptions shard = {};         // the trace is one rank's, and so are its tokens
};

// Errors: kInvalidArgument naming the option, its value and what is allowed; or the field of the
// shape.
absl::StatusOr<Trace> SyntheticTrace(const ModelShape& shape, const SyntheticOptions& options);

// Multiplies every time in the trace, rounding to nanoseconds: half the rate is a factor of 2.
// REQUIRES: 0 < factor, and no product exceeds the range of Nanoseconds.
void ScaleCompute(double factor, Trace& trace);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_SYNTHETIC_TRACE_H_
