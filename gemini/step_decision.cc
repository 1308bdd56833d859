#include "gemini/step_decision.h"

#include <cmath>

#include "offload/gradient_norm.h"

namespace gantry {

bool WaitsForNorm(const OptimizerStep& step) {
  return step.max_gradient_norm > 0.0 || step.non_finite == OptimizerStep::NonFinite::kSkipStep;
}

float AssumedFactor(const OptimizerStep& step) { return static_cast<float>(1.0 / step.loss_scale); }

StepDecision Decide(const OptimizerStep& step, std::span<const double> partials) {
  StepDecision decision{};
  decision.gradient_norm = std::sqrt(CombineSegments(partials)) / step.loss_scale;
  decision.skip = step.non_finite == OptimizerStep::NonFinite::kSkipStep &&
                  !std::isfinite(decision.gradient_norm);
  decision.clip_factor = 1.0;
  if (step.max_gradient_norm > 0.0) {
    // Not std::min, which would turn NaN into 1.
    const double factor = step.max_gradient_norm / (decision.gradient_norm + 1e-6);
    decision.clip_factor = factor > 1.0 ? 1.0 : factor;
  }
  decision.gradient_factor = static_cast<float>(decision.clip_factor / step.loss_scale);
  return decision;
}

}  // namespace gantry
