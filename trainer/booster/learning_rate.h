// The learning rate of each step: a linear warm-up, then constant, or down to a fraction of the
// peak along a line or half a cosine, at once or after a stretch at the peak (WSD: warm-up, stable,
// decay). Pure functions.
#ifndef GANTRY_TRAINER_BOOSTER_LEARNING_RATE_H_
#define GANTRY_TRAINER_BOOSTER_LEARNING_RATE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace gantry {

enum class ScheduleShape : uint8_t { kConstant, kLinear, kCosine, kWarmupStableDecay };
// Of the last part of kWarmupStableDecay; x goes from 0 to 1 in it.
enum class DecayShape : uint8_t {
  kLinear,      // 1 - x
  kCosine,      // (1 + cos(pi x)) / 2
  kSquareRoot,  // 1 - sqrt(x)
};

struct LearningRateSchedule {
  ScheduleShape shape = ScheduleShape::kCosine;
  double peak = 3e-4;
  double final_fraction = 0.1;  // of the peak, where the decay ends
  int64_t warmup_steps = 0;     // step i < warmup_steps has peak * (i + 1) / warmup_steps
  int64_t total_steps = 0;      // where the decay ends; later steps stay there
  // Of kWarmupStableDecay: the share of total_steps in which it decays, rounded down to steps, at
  // least one, and only after the warm-up; and how.
  double decay_fraction = 0.2;
  DecayShape decay_shape = DecayShape::kLinear;
};

// Errors: kInvalidArgument for a peak that is not finite and positive, a final fraction outside
// [0, 1], a decay fraction outside (0, 1], a negative warm-up, or a decay that would end before the
// warm-up does.
absl::Status ValidateSchedule(const LearningRateSchedule& schedule);

// REQUIRES: a valid schedule, step >= 0 (the first step is 0).
double LearningRateAt(const LearningRateSchedule& schedule, int64_t step);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_LEARNING_RATE_H_
