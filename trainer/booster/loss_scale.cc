#include "trainer/booster/loss_scale.h"

#include <algorithm>

#include "absl/status/status.h"
#include "base/strings.h"
#include "gemini/parameter_store.h"
#include "trainer/checkpoint/manifest.h"

namespace gantry {
namespace {

constexpr double kLeast = 0x1p-14;
constexpr double kMost = 0x1p24;

}  // namespace

absl::Status ValidateLossScale(const LossScaleOptions& options) {
  if (options.initial >= kLeast && options.initial <= kMost) return absl::OkStatus();
  return InvalidArgument("a loss scale must be from ", kLeast, " to ", kMost, ", not ",
                         options.initial);
}

LossScale NextLossScale(const LossScale& scale, StepResult::Outcome outcome,
                        const LossScaleOptions& options) {
  if (outcome == StepResult::Outcome::kSkippedNonFinite) {
    return {.scale = std::max(scale.scale * options.backoff, kLeast), .good_steps = 0};
  }
  const LossScale next{.scale = scale.scale, .good_steps = scale.good_steps + 1};
  if (next.good_steps < options.growth_steps) return next;
  return {.scale = std::min(scale.scale * options.growth, kMost), .good_steps = 0};
}

}  // namespace gantry
