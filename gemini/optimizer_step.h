// From the hyperparameters of a step (OptimizerStep) to those of a kernel (OptimizerHyper).
#ifndef GANTRY_GEMINI_OPTIMIZER_STEP_H_
#define GANTRY_GEMINI_OPTIMIZER_STEP_H_

#include "absl/status/status.h"
#include "chunk/optimizer_states.h"
#include "gemini/parameter_store.h"
#include "offload/optimizer.h"

namespace gantry {

// With a tensor's factors.
OptimizerHyper HyperOf(const OptimizerStep& step, const RegistrationOptions& tensor);

// Errors: kInvalidArgument for another kind than the store's, or naming the bad value.
absl::Status ValidateOptimizerStep(const OptimizerStep& step, OptimizerKind store_kind);

// Adafactor's updates need the factors of whole tensors, so none can run before the norm is known.
// Errors: kInvalidArgument for it with kSpeculative.
absl::Status CheckUpdateOrder(OptimizerKind kind, UpdateOrder order);

}  // namespace gantry

#endif  // GANTRY_GEMINI_OPTIMIZER_STEP_H_
