// What one step does with its gradients, decided once from all of them: their global norm, the clip
// factor, and whether the step is skipped. A pure function, so that every store decides alike.
#ifndef GANTRY_GEMINI_STEP_DECISION_H_
#define GANTRY_GEMINI_STEP_DECISION_H_

#include <span>

#include "gemini/parameter_store.h"

namespace gantry {

struct StepDecision {
  double gradient_norm;   // of the unscaled gradients; not finite when a gradient is not
  double clip_factor;     // 1 when not clipped
  float gradient_factor;  // clip_factor / loss_scale: multiplied into each gradient
  bool skip;
};

// Whether updates must wait for all gradients (clipping, or skipping non-finite steps).
bool WaitsForNorm(const OptimizerStep& step);

// The gradient factor of a step that neither clips nor is skipped.
float AssumedFactor(const OptimizerStep& step);

// `partials`: sums of squares of the scaled gradients per 16384-element segment, group after group.
// Clips as torch.nn.utils.clip_grad_norm_ does: min(1, max_norm / (norm + 1e-6)).
StepDecision Decide(const OptimizerStep& step, std::span<const double> partials);

}  // namespace gantry

#endif  // GANTRY_GEMINI_STEP_DECISION_H_
