#include "trainer/booster/loss_scale.h"

#include <gtest/gtest.h>

#include <limits>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"
#include "gemini/parameter_store.h"
#include "trainer/checkpoint/manifest.h"

namespace gantry {
namespace {

using enum StepResult::Outcome;

// As torch.amp.GradScaler with its defaults.
TEST(LossScaleTest, HalvesOnOverflowAndDoublesAfterAStretchWithout) {
  const LossScaleOptions options;
  LossScale scale{.scale = options.initial, .good_steps = 0};
  for (int i = 0; i < 1999; ++i) scale = NextLossScale(scale, kUpdated, options);
  EXPECT_EQ(scale, (LossScale{.scale = 65536.0, .good_steps = 1999}));
  EXPECT_EQ(NextLossScale(scale, kUpdated, options),
            (LossScale{.scale = 131072.0, .good_steps = 0}));
  // One overflow, and the stretch begins anew.
  scale = NextLossScale(scale, kSkippedNonFinite, options);
  EXPECT_EQ(scale, (LossScale{.scale = 32768.0, .good_steps = 0}));
  for (int i = 0; i < 2000; ++i) scale = NextLossScale(scale, kUpdated, options);
  EXPECT_EQ(scale, (LossScale{.scale = 65536.0, .good_steps = 0}));
}

TEST(LossScaleTest, StaysWithinItsRange) {
  const LossScaleOptions options{.growth_steps = 1};
  LossScale scale{.scale = 1.0, .good_steps = 0};
  for (int i = 0; i < 100; ++i) scale = NextLossScale(scale, kSkippedNonFinite, options);
  EXPECT_EQ(scale.scale, 0x1p-14);
  for (int i = 0; i < 100; ++i) scale = NextLossScale(scale, kUpdated, options);
  EXPECT_EQ(scale.scale, 0x1p24);
}

TEST(LossScaleTest, RefusesScalesOutsideIt) {
  for (const double initial : {0x1p-14, 1.0, 0x1p24}) {
    EXPECT_THAT(ValidateLossScale({.initial = initial}), IsOk());
  }
  for (const double initial : {0.0, -1.0, 0x1p-15, 0x1p25, std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(ValidateLossScale({.initial = initial}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace gantry
