#include "gemini/optimizer_step.h"

#include <cmath>

#include "base/strings.h"

namespace gantry {

OptimizerHyper HyperOf(const OptimizerStep& step, const RegistrationOptions& tensor) {
  return {.kind = step.kind,
          .learning_rate = step.learning_rate * tensor.learning_rate_factor,
          .beta1 = step.beta1,
          .beta2 = step.beta2,
          .epsilon = step.epsilon,
          .weight_decay = step.weight_decay * tensor.weight_decay_factor,
          .step = step.step};
}

absl::Status ValidateOptimizerStep(const OptimizerStep& step, OptimizerKind store_kind) {
  if (step.kind != store_kind) {
    return InvalidArgument("the step is one of ", step.kind, ", the store holds the states of ",
                           store_kind);
  }
  if (!std::isfinite(step.max_gradient_norm) || step.max_gradient_norm < 0) {
    return InvalidArgument("max_gradient_norm must be finite and not negative, not ",
                           step.max_gradient_norm);
  }
  if (!std::isfinite(step.loss_scale) || step.loss_scale <= 0) {
    return InvalidArgument("loss_scale must be finite and positive, not ", step.loss_scale);
  }
  return ValidateOptimizer(HyperOf(step, RegistrationOptions{}));
}

absl::Status CheckUpdateOrder(OptimizerKind kind, UpdateOrder order) {
  if (FactorsVariance(kind) && order == UpdateOrder::kSpeculative) {
    return InvalidArgument("the optimizer ", kind,
                           " needs the factors of whole tensors before any update: its update "
                           "order can only be exact");
  }
  return absl::OkStatus();
}

}  // namespace gantry
