#include "trainer/booster/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

// The first step that is below the peak, but for rounding.
int64_t DecayBegin(const LearningRateSchedule& schedule) {
  if (schedule.shape != ScheduleShape::kWarmupStableDecay) return schedule.warmup_steps;
  const auto steps =
      static_cast<int64_t>(schedule.decay_fraction * static_cast<double>(schedule.total_steps));
  return std::max(schedule.warmup_steps, schedule.total_steps - std::max<int64_t>(steps, 1));
}

double Cosine(double progress) { return 0.5 * (1.0 + std::cos(std::numbers::pi * progress)); }

// Of the way from the peak to the end, what is left after `progress` of the decay.
double Remaining(const LearningRateSchedule& schedule, double progress) {
  switch (schedule.shape) {
    case ScheduleShape::kLinear:
      return 1.0 - progress;
    case ScheduleShape::kCosine:
      return Cosine(progress);
    case ScheduleShape::kConstant:
    case ScheduleShape::kWarmupStableDecay:
      break;
  }
  switch (schedule.decay_shape) {
    case DecayShape::kCosine:
      return Cosine(progress);
    case DecayShape::kSquareRoot:
      return 1.0 - std::sqrt(progress);
    case DecayShape::kLinear:
      break;
  }
  return 1.0 - progress;
}

}  // namespace

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
  if (schedule.shape == ScheduleShape::kConstant) return absl::OkStatus();
  if (schedule.total_steps < schedule.warmup_steps) {
    return InvalidArgument("the learning rate's decay ends at step ", schedule.total_steps,
                           ", before its warm-up of ", schedule.warmup_steps, " steps does");
  }
  if (schedule.shape != ScheduleShape::kWarmupStableDecay) return absl::OkStatus();
  if (!(schedule.decay_fraction > 0.0 && schedule.decay_fraction <= 1.0)) {
    return InvalidArgument("the share of steps in which the learning rate decays must be above 0 ",
                           "and at most 1, not ", schedule.decay_fraction);
  }
  return absl::OkStatus();
}

double LearningRateAt(const LearningRateSchedule& schedule, int64_t step) {
  GANTRY_CHECK_GE(step, 0);
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.shape == ScheduleShape::kConstant) return schedule.peak;
  const int64_t begin = DecayBegin(schedule);
  if (step < begin) return schedule.peak;
  const int64_t decay_steps = std::max<int64_t>(schedule.total_steps - begin, 1);
  const double progress =
      std::min(1.0, static_cast<double>(step - begin) / static_cast<double>(decay_steps));
  return schedule.peak * (schedule.final_fraction +
                          (1.0 - schedule.final_fraction) * Remaining(schedule, progress));
}

}  // namespace gantry
