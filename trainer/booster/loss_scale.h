// Dynamic loss scaling. Gradients of f16 parameters are f16, in which small ones vanish; so the
// loss carries a factor that the update takes out again. The factor falls when a gradient
// overflows, whose step is skipped, and rises after a stretch of steps without. Pure functions.
#ifndef GANTRY_TRAINER_BOOSTER_LOSS_SCALE_H_
#define GANTRY_TRAINER_BOOSTER_LOSS_SCALE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "gemini/parameter_store.h"
#include "trainer/checkpoint/manifest.h"

namespace gantry {

struct LossScaleOptions {
  double initial = 65536.0;
  int64_t growth_steps = 2000;  // good steps in a row until it grows
  double growth = 2.0;
  double backoff = 0.5;
};

// Errors: kInvalidArgument for an initial scale outside [2^-14, 2^24].
absl::Status ValidateLossScale(const LossScaleOptions& options);

// The scale of the step after one that ended so. It stays within [2^-14, 2^24], so that neither
// runs of skipped steps nor endless growth leave the range of the numbers.
LossScale NextLossScale(const LossScale& scale, StepResult::Outcome outcome,
                        const LossScaleOptions& options);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_LOSS_SCALE_H_
