#include "trainer/booster/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/strings.h"

namespace gantry {

absl::Status ValidateSchedule(const LearningRateSchedule& schedule) {
  if (!std::isfinite(schedule.peak) || schedule.peak <= 0.0) {
    return InvalidArgument("the learning rate must be finite and positive, not ", schedule.peak);
  }
  if (!(schedule.final_fraction >= 0.0 && schedule.final_fraction <= 1.0)) {
    return InvalidArgument("the final fraction of the learning rate must be in [0, 1], not ",
                           schedule.final_fraction);
  }
  if (schedule.warmup_steps < 0) {
    return InvalidArgument("a warm-up of ", schedule.warmup_steps, " steps");
  }
  if (schedule.shape != DecayShape::kConstant && schedule.total_steps < schedule.warmup_steps) {
    return InvalidArgument("the learning rate's decay ends at step ", schedule.total_steps,
                           ", before its warm-up of ", schedule.warmup_steps, " steps does");
  }
  return absl::OkStatus();
}

double LearningRateAt(const LearningRateSchedule& schedule, int64_t step) {
  GANTRY_CHECK_GE(step, 0);
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.shape == DecayShape::kConstant) return schedule.peak;
  const int64_t decay_steps = std::max<int64_t>(schedule.total_steps - schedule.warmup_steps, 1);
  const double progress = std::min(
      1.0, static_cast<double>(step - schedule.warmup_steps) / static_cast<double>(decay_steps));
  const double shape = schedule.shape == DecayShape::kLinear
                           ? 1.0 - progress
                           : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return schedule.peak * (schedule.final_fraction + (1.0 - schedule.final_fraction) * shape);
}

}  // namespace gantry
