#include "trainer/booster/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

LearningRateSchedule Schedule(ScheduleShape shape) {
  return {
      .shape = shape, .peak = 0.8, .final_fraction = 0.25, .warmup_steps = 4, .total_steps = 12};
}

TEST(LearningRate, WarmsUpLinearlyFromTheFirstStep) {
  for (const ScheduleShape shape :
       {ScheduleShape::kConstant, ScheduleShape::kLinear, ScheduleShape::kCosine}) {
    EXPECT_DOUBLE_EQ(LearningRateAt(Schedule(shape), 0), 0.2);
    EXPECT_DOUBLE_EQ(LearningRateAt(Schedule(shape), 1), 0.4);
    EXPECT_DOUBLE_EQ(LearningRateAt(Schedule(shape), 3), 0.8);
    EXPECT_DOUBLE_EQ(LearningRateAt(Schedule(shape), 4), 0.8);
  }
}

TEST(LearningRate, DecaysToTheFinalFraction) {
  const LearningRateSchedule linear = Schedule(ScheduleShape::kLinear);
  EXPECT_DOUBLE_EQ(LearningRateAt(linear, 8), 0.5);
  EXPECT_DOUBLE_EQ(LearningRateAt(linear, 10), 0.35);
  EXPECT_DOUBLE_EQ(LearningRateAt(linear, 12), 0.2);
  const LearningRateSchedule cosine = Schedule(ScheduleShape::kCosine);
  EXPECT_DOUBLE_EQ(LearningRateAt(cosine, 6), 0.2 + 0.6 * 0.5 * (1 + 0.70710678118654752));
  EXPECT_DOUBLE_EQ(LearningRateAt(cosine, 8), 0.5);
  EXPECT_DOUBLE_EQ(LearningRateAt(cosine, 12), 0.2);
  EXPECT_DOUBLE_EQ(LearningRateAt(Schedule(ScheduleShape::kConstant), 12), 0.8);
}

TEST(LearningRate, StaysWhereTheDecayEnds) {
  for (const int64_t step : {int64_t{13}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_DOUBLE_EQ(LearningRateAt(Schedule(ScheduleShape::kCosine), step), 0.2);
    EXPECT_DOUBLE_EQ(LearningRateAt(Schedule(ScheduleShape::kLinear), step), 0.2);
  }
}

TEST(LearningRate, StaysAtThePeakBeforeTheDecayOfWsd) {
  LearningRateSchedule schedule = Schedule(ScheduleShape::kWarmupStableDecay);
  schedule.total_steps = 20;
  schedule.decay_fraction = 0.41;  // 8 steps
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 0), 0.2);
  for (const int64_t step : {4, 11, 12}) EXPECT_DOUBLE_EQ(LearningRateAt(schedule, step), 0.8);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 14), 0.2 + 0.6 * 0.75);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 20), 0.2);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 21), 0.2);
  schedule.decay_shape = DecayShape::kCosine;
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 14), 0.2 + 0.6 * 0.5 * (1 + 0.70710678118654752));
  schedule.decay_shape = DecayShape::kSquareRoot;
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 12), 0.8);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 14), 0.2 + 0.6 * 0.5);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 20), 0.2);
}

TEST(LearningRate, WsdDecaysInAtLeastOneStepAndNotWithinTheWarmUp) {
  LearningRateSchedule schedule = Schedule(ScheduleShape::kWarmupStableDecay);
  schedule.decay_fraction = 0.001;
  EXPECT_THAT(ValidateSchedule(schedule), IsOk());
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 11), 0.8);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 12), 0.2);
  schedule.decay_fraction = 1.0;  // as linear
  for (int64_t step = 0; step < 14; ++step) {
    EXPECT_DOUBLE_EQ(LearningRateAt(schedule, step),
                     LearningRateAt(Schedule(ScheduleShape::kLinear), step));
  }
  for (const double fraction : {0.0, -0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    schedule.decay_fraction = fraction;
    EXPECT_THAT(ValidateSchedule(schedule), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(LearningRate, WithoutWarmUpTheFirstStepHasThePeak) {
  LearningRateSchedule schedule = Schedule(ScheduleShape::kCosine);
  schedule.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 0), 0.8);
  schedule.total_steps = 0;  // nothing to decay over
  EXPECT_THAT(ValidateSchedule(schedule), IsOk());
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 0), 0.8);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 1), 0.2);
}

TEST(LearningRate, RefusesImpossibleSchedules) {
  EXPECT_THAT(ValidateSchedule(Schedule(ScheduleShape::kCosine)), IsOk());
  for (const double peak : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    LearningRateSchedule schedule = Schedule(ScheduleShape::kConstant);
    schedule.peak = peak;
    EXPECT_THAT(ValidateSchedule(schedule), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  for (const double fraction : {-0.01, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    LearningRateSchedule schedule = Schedule(ScheduleShape::kConstant);
    schedule.final_fraction = fraction;
    EXPECT_THAT(ValidateSchedule(schedule), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  LearningRateSchedule schedule = Schedule(ScheduleShape::kLinear);
  schedule.warmup_steps = 13;
  EXPECT_THAT(ValidateSchedule(schedule),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "decay ends at step 12, before its warm-up of 13 steps does"));
  schedule.shape = ScheduleShape::kConstant;
  EXPECT_THAT(ValidateSchedule(schedule), IsOk());
  schedule.warmup_steps = -1;
  EXPECT_THAT(ValidateSchedule(schedule), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(LearningRateDeathTest, ChecksTheStep) {
  EXPECT_DEATH(LearningRateAt(Schedule(ScheduleShape::kCosine), -1), "step >= 0");
}

}  // namespace
}  // namespace gantry
