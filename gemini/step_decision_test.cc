// Clipping as torch.nn.utils.clip_grad_norm_ does it, loss scale, skipping, and what is not finite.
#include "gemini/step_decision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace gantry {
namespace {

using enum OptimizerStep::NonFinite;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

OptimizerStep Step(double max_norm, double loss_scale = 1.0,
                   OptimizerStep::NonFinite non_finite = kSkipStep) {
  return {.learning_rate = 0.1,
          .max_gradient_norm = max_norm,
          .loss_scale = loss_scale,
          .non_finite = non_finite};
}

TEST(StepDecisionTest, TheNormIsTheRootOfTheSumOfAllSegments) {
  const std::vector<double> partials = {9.0, 0.0, 16.0};
  const StepDecision decision = Decide(Step(0.0), partials);
  EXPECT_DOUBLE_EQ(decision.gradient_norm, 5.0);
  EXPECT_EQ(decision.clip_factor, 1.0);
  EXPECT_EQ(decision.gradient_factor, 1.0F);
  EXPECT_FALSE(decision.skip);
}

TEST(StepDecisionTest, NoGradientsHaveNormZeroAndAreNotClipped) {
  const StepDecision decision = Decide(Step(1.0), {});
  EXPECT_EQ(decision.gradient_norm, 0.0);
  EXPECT_EQ(decision.clip_factor, 1.0);
  EXPECT_FALSE(decision.skip);
}

// clip_coef = max_norm / (total_norm + 1e-6), clamped to at most 1.
TEST(StepDecisionTest, ClipsAsTorchDoes) {
  const std::vector<double> partials = {25.0};
  EXPECT_DOUBLE_EQ(Decide(Step(1.0), partials).clip_factor, 1.0 / (5.0 + 1e-6));
  EXPECT_DOUBLE_EQ(Decide(Step(0.5), partials).clip_factor, 0.5 / (5.0 + 1e-6));
  // Just below the limit torch still scales, because of the 1e-6; a little further it does not.
  EXPECT_DOUBLE_EQ(Decide(Step(5.0), partials).clip_factor, 5.0 / (5.0 + 1e-6));
  EXPECT_LT(Decide(Step(5.0), partials).clip_factor, 1.0);
  EXPECT_EQ(Decide(Step(5.00001), partials).clip_factor, 1.0);
  EXPECT_EQ(Decide(Step(0.0), partials).clip_factor, 1.0);
}

TEST(StepDecisionTest, TheLossScaleIsTakenOutBeforeClipping) {
  const std::vector<double> partials = {100.0};  // norm 10, scaled by 4
  const StepDecision unclipped = Decide(Step(0.0, 4.0), partials);
  EXPECT_DOUBLE_EQ(unclipped.gradient_norm, 2.5);
  EXPECT_EQ(unclipped.gradient_factor, 0.25F);
  const StepDecision clipped = Decide(Step(1.0, 4.0), partials);
  EXPECT_DOUBLE_EQ(clipped.clip_factor, 1.0 / (2.5 + 1e-6));
  EXPECT_EQ(clipped.gradient_factor, static_cast<float>(clipped.clip_factor / 4.0));
}

TEST(StepDecisionTest, NonFiniteGradientsSkipTheStepIfAsked) {
  for (const double bad : {kInfinity, kNaN}) {
    const std::vector<double> partials = {1.0, bad};
    EXPECT_TRUE(Decide(Step(1.0), partials).skip) << bad;
    EXPECT_TRUE(Decide(Step(0.0), partials).skip) << bad;
    EXPECT_FALSE(Decide(Step(1.0, 1.0, kUpdateAnyway), partials).skip) << bad;
    EXPECT_FALSE(std::isfinite(Decide(Step(1.0), partials).gradient_norm)) << bad;
  }
}

// torch: an infinite norm makes every finite gradient 0, a NaN norm makes every gradient NaN.
TEST(StepDecisionTest, AnUpdateAnywayWithANonFiniteNormClipsAsTorchDoes) {
  const std::vector<double> infinite = {1.0, kInfinity};
  EXPECT_EQ(Decide(Step(1.0, 1.0, kUpdateAnyway), infinite).clip_factor, 0.0);
  EXPECT_EQ(Decide(Step(1.0, 1.0, kUpdateAnyway), infinite).gradient_factor, 0.0F);
  const std::vector<double> nan = {1.0, kNaN};
  EXPECT_TRUE(std::isnan(Decide(Step(1.0, 1.0, kUpdateAnyway), nan).clip_factor));
  EXPECT_TRUE(std::isnan(Decide(Step(1.0, 1.0, kUpdateAnyway), nan).gradient_factor));
  EXPECT_EQ(Decide(Step(0.0, 1.0, kUpdateAnyway), nan).clip_factor, 1.0);
}

TEST(StepDecisionTest, UpdatesWaitForTheNormOnlyWhereItDecidesSomething) {
  EXPECT_TRUE(WaitsForNorm(Step(1.0)));
  EXPECT_TRUE(WaitsForNorm(Step(0.0)));
  EXPECT_TRUE(WaitsForNorm(Step(1.0, 1.0, kUpdateAnyway)));
  EXPECT_FALSE(WaitsForNorm(Step(0.0, 1.0, kUpdateAnyway)));
}

}  // namespace
}  // namespace gantry
