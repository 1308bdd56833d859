#include "trainer/booster/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/testing/status_matchers.h"
#include "chunk/optimizer_states.h"
#include "device/device.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/learning_rate.h"

namespace gantry {
namespace {

RunConfig Valid() {
  RunConfig config;
  config.data.files = {"text"};
  return config;
}

TEST(RunConfig, TheDefaultsNeedOnlyText) {
  EXPECT_THAT(ValidateTraining(Valid()), IsOk());
  EXPECT_THAT(ValidateModel(RunConfig()), IsOk());
  EXPECT_THAT(ValidateTraining(RunConfig()),
              StatusIs(absl::StatusCode::kInvalidArgument, "data.files: name the text"));
}

TEST(RunConfig, ContradictionsNameTheKey) {
  struct Case {
    const char* message;
    std::function<void(RunConfig&)> change;
  };
  const Case cases[] = {
      {"model: ", [](RunConfig& c) { c.model.kv_heads = 3; }},
      {"model.vocabulary: ", [](RunConfig& c) { c.model.vocabulary = 257; }},
      {"memory.device_memory: ", [](RunConfig& c) { c.memory.device_memory = 0_B; }},
      {"memory.host_memory: ",
       [](RunConfig& c) {
         c.memory.device = DeviceTopology::kDiscrete;
         c.memory.host_memory = 0_B;
       }},
      {"optimizer: ",
       [](RunConfig& c) {
         c.optimizer.kind = OptimizerKind::kAdafactor;
         c.optimizer.state_format = StateFormat::kEightBit;
       }},
      {"memory.update_order: ",
       [](RunConfig& c) {
         c.optimizer.kind = OptimizerKind::kAdafactor;
         c.memory.update_order = UpdateOrder::kSpeculative;
       }},
      {"memory.spill_shares: there must be as many as memory.spill_dirs, 0, not 1",
       [](RunConfig& c) { c.memory.spill_shares = {1.0}; }},
      {"memory.spill_shares: there must be as many as memory.spill_dirs, 2, not 3",
       [](RunConfig& c) {
         c.memory.spill_dirs = {"a", "b"};
         c.memory.spill_shares = {1.0, 2.0, 3.0};
       }},
      {"memory.chunk_elements: ", [](RunConfig& c) { c.memory.chunk_elements = 12345; }},
      {"generate: ", [](RunConfig& c) { c.generate.sampling.top_p = 0; }},
      {"schedule: ",
       [](RunConfig& c) {
         c.schedule.warmup_steps = 11;
         c.schedule.total_steps = 10;
       }},
      {"train.early_stop_evaluations: needs evaluations: set train.eval_every",
       [](RunConfig& c) {
         c.train.early_stop_evaluations = 1;
         c.train.eval_every = 0;
       }},
      {"train.keep_best: needs text to evaluate on: set data.validation_fraction",
       [](RunConfig& c) {
         c.train.keep_best = true;
         c.data.validation_fraction = 0.0;
       }},
      {"train.keep_best: needs a folder to keep it in: set train.checkpoint_dir",
       [](RunConfig& c) { c.train.keep_best = true; }},
      {"optimizer.initial_loss_scale: a loss scale must be",
       [](RunConfig& c) {
         c.model.parameter_dtype = DType::kF16;
         c.optimizer.loss_scale.initial = 0x1p25;
       }},
      {"data.sequence_length: ", [](RunConfig& c) { c.data.sequence_length = 1025; }},
      {"data: sequence_length x batch_size", [](RunConfig& c) { c.data.batch_size = 1 << 19; }},
  };
  for (const Case& item : cases) {
    SCOPED_TRACE(item.message);
    RunConfig config = Valid();
    item.change(config);
    EXPECT_THAT(ValidateTraining(config),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::StartsWith(item.message)));
  }
}

TEST(RunConfig, SharesAreForEachSpillFolderOrNone) {
  RunConfig config = Valid();
  config.memory.spill_dirs = {"a", "b"};
  EXPECT_THAT(ValidateTraining(config), IsOk());
  config.memory.spill_shares = {3.5, 1e9};
  EXPECT_THAT(ValidateTraining(config), IsOk());
}

TEST(RunConfig, AUnifiedDeviceNeedsNoHostMemory) {
  RunConfig config = Valid();
  config.memory.host_memory = 0_B;
  EXPECT_THAT(ValidateTraining(config), IsOk());
}

TEST(RunConfig, WhatFollowsFromIt) {
  RunConfig config = Valid();
  EXPECT_EQ(ScheduleOf(config).total_steps, config.train.steps);
  config.schedule.warmup_steps = config.train.steps + 5;
  EXPECT_EQ(ScheduleOf(config).total_steps, config.train.steps + 5);
  EXPECT_THAT(ValidateTraining(config), IsOk());
  config.schedule.total_steps = 7;
  EXPECT_EQ(ScheduleOf(config).total_steps, 7);
  EXPECT_EQ(GradientDTypeOf(config), DType::kBF16);
  config.data.accumulation = 2;
  EXPECT_EQ(GradientDTypeOf(config), DType::kF32);
  config.data = {.files = {}, .sequence_length = 3, .batch_size = 5, .accumulation = 7};
  EXPECT_EQ(TokensPerStep(config.data), 105);
  config.train.threads = 3;
  EXPECT_EQ(ThreadsOf(config.train), 3);
  config.train.threads = 0;
  EXPECT_GE(ThreadsOf(config.train), 1);
}

}  // namespace
}  // namespace gantry
