// The training loop on the in-memory store, and once on the engine: resuming is bit exact, stops
// are honoured, and what goes wrong says so.
#include "trainer/booster/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/testing/status_matchers.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "device/device.h"
#include "gemini/engine.h"
#include "trainer/booster/gemini_plugin.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/run_data.h"
#include "trainer/booster/stop_source.h"
#include "trainer/booster/testing/tiny_run.h"
#include "trainer/checkpoint/manifest.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;

struct Outcome {
  TrainingSummary summary;
  std::vector<double> losses;
  std::string sample;
};

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() : directory_(::testing::TempDir() + "trainer_test") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    config_ = TinyConfig(directory_);
  }

  std::unique_ptr<RunData> Data(const RunConfig& config) {
    auto data = RunData::Open(files_, config, nullptr);
    GANTRY_CHECK_OK(data.status());
    return *std::move(data);
  }

  // One process's life on the in-memory store.
  absl::StatusOr<Outcome> Run(const RunConfig& config) {
    TinyMachine machine(config);
    const std::unique_ptr<RunData> data = Data(config);
    observer_ = RecordingObserver();
    observer_.on_step = on_step_;
    auto result = RunOver({.config = &config,
                           .training = &data->training(),
                           .validation = data->validation(),
                           .context = machine.context(),
                           .clock = &machine.clock(),
                           .logger = &machine.logger(),
                           .files = &files_,
                           .stop = stop_.get(),
                           .observer = &observer_,
                           .settings = settings_});
    messages_ = machine.logger().messages();
    return result;
  }

  absl::StatusOr<Outcome> RunOver(Trainer::Options options) {
    GANTRY_ASSIGN_OR_RETURN(auto trainer, Trainer::Create(std::move(options)));
    Outcome outcome;
    if (steps_per_turn_ == 0) {
      GANTRY_ASSIGN_OR_RETURN(outcome.summary, trainer->Run());
    } else {
      while (!trainer->finished()) GANTRY_RETURN_IF_ERROR(trainer->Advance(steps_per_turn_));
      GANTRY_ASSIGN_OR_RETURN(outcome.summary, trainer->Finish());
    }
    outcome.losses = observer_.losses();
    if (!stop_->requested()) {
      GANTRY_ASSIGN_OR_RETURN(outcome.sample, trainer->Sample("line", 8));
    }
    return outcome;
  }

  PosixFileCalls files_;
  std::string directory_;
  RunConfig config_;
  std::unique_ptr<StopSource> stop_ = std::make_unique<StopSource>();
  RecordingObserver observer_;
  std::function<void(const StepMetrics&)> on_step_;
  std::vector<std::string> messages_;
  int64_t steps_per_turn_ = 0;  // 0: all in one Run
  RunSettings settings_ = {{"model.layers", "2"}};
};

TEST_F(TrainerTest, LearnsARepetitiveText) {
  config_.train.steps = 60;
  const auto outcome = Run(config_);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_NEAR(outcome->losses.front(), std::log(256.0), 0.2);
  EXPECT_LT(outcome->losses.back(), 0.7 * outcome->losses.front());
  EXPECT_EQ(outcome->summary.loss_first, std::optional(outcome->losses.front()));
  EXPECT_EQ(outcome->summary.loss_last, std::optional(outcome->losses.back()));
  EXPECT_EQ(outcome->summary.step, 60);
  EXPECT_EQ(outcome->summary.tokens, 60 * 16 * 4);
  EXPECT_GT(outcome->summary.tokens_per_second(), 0.0);
  EXPECT_EQ(outcome->summary.end, RunEnd::kFinished);
  EXPECT_EQ(outcome->sample.size(), 8u);
}

TEST_F(TrainerTest, EveryOptimizerLearns) {
  struct Case {
    OptimizerKind kind;
    double peak;
  };
  config_.train.steps = 60;
  std::vector<std::string> hashes;
  for (const Case& c : {Case{OptimizerKind::kAdamW, 3e-3}, Case{OptimizerKind::kAdam, 3e-3},
                        Case{OptimizerKind::kSgd, 0.3}, Case{OptimizerKind::kLion, 1e-3}}) {
    SCOPED_TRACE(Name(c.kind));
    config_.optimizer.kind = c.kind;
    config_.schedule.peak = c.peak;
    const auto outcome = Run(config_);
    ASSERT_THAT(outcome, IsOk());
    EXPECT_LT(outcome->losses.back(), 0.8 * outcome->losses.front());
    for (const std::string& hash : hashes) EXPECT_NE(outcome->summary.parameter_hash, hash);
    hashes.push_back(outcome->summary.parameter_hash);
  }
}

// Within 0.02 nats after a hundred steps, which bring the loss from 5.5 to below 1.7.
TEST_F(TrainerTest, EightBitMomentsLearnAsWell) {
  config_.train.steps = 100;
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kLion}) {
    SCOPED_TRACE(Name(kind));
    config_.optimizer.kind = kind;
    config_.schedule.peak = kind == OptimizerKind::kLion ? 1e-3 : 3e-3;
    config_.optimizer.state_format = StateFormat::kF32;
    const auto f32 = Run(config_);
    ASSERT_THAT(f32, IsOk());
    config_.optimizer.state_format = StateFormat::kEightBit;
    const auto eight_bit = Run(config_);
    ASSERT_THAT(eight_bit, IsOk());
    EXPECT_LT(f32->losses.back(), 0.3 * f32->losses.front());
    EXPECT_NEAR(eight_bit->losses.back(), f32->losses.back(), 0.02);
    EXPECT_NE(eight_bit->summary.parameter_hash, f32->summary.parameter_hash);
  }
}

TEST_F(TrainerTest, InPiecesItIsTheSameRun) {
  config_.train.steps = 7;
  const auto whole = Run(config_);
  ASSERT_THAT(whole, IsOk());
  steps_per_turn_ = 3;
  const auto pieces = Run(config_);
  ASSERT_THAT(pieces, IsOk());
  EXPECT_EQ(pieces->losses, whole->losses);
  EXPECT_EQ(pieces->summary.parameter_hash, whole->summary.parameter_hash);
  EXPECT_EQ(pieces->summary.step, 7);
  EXPECT_EQ(pieces->summary.tokens, whole->summary.tokens);
  EXPECT_EQ(observer_.starts.size(), 1u);
}

TEST_F(TrainerTest, ToldWhatHappens) {
  config_.train.steps = 5;
  config_.train.eval_every = 2;
  config_.train.eval_batches = 2;
  config_.train.checkpoint_dir = directory_ + "/checkpoints";
  config_.train.checkpoint_every = 3;
  ASSERT_THAT(Run(config_), IsOk());
  ASSERT_EQ(observer_.starts.size(), 1u);
  EXPECT_EQ(observer_.starts[0].tokens_per_step, 64);
  EXPECT_GT(observer_.starts[0].parameters, 256 * 32);
  EXPECT_THAT(observer_.starts[0].resumed_from, IsEmpty());
  ASSERT_EQ(observer_.steps.size(), 5u);
  EXPECT_DOUBLE_EQ(observer_.steps[0].learning_rate, 1.5e-3);
  EXPECT_DOUBLE_EQ(observer_.steps[4].learning_rate, 3e-3);
  EXPECT_GT(observer_.steps[0].gradient_norm, 0.0);
  ASSERT_EQ(observer_.evaluations.size(), 3u);  // after 2, 4, and the last
  EXPECT_EQ(observer_.evaluations[2].step, 5);
  EXPECT_EQ(observer_.evaluations[0].tokens, 2 * 64);
  EXPECT_THAT(observer_.evaluations[0].loss, AllOf(Gt(4.0), Lt(6.0)));
  ASSERT_EQ(observer_.checkpoints.size(), 2u);
  EXPECT_EQ(observer_.checkpoints[0].step, 3);
  EXPECT_EQ(observer_.checkpoints[1].path, config_.train.checkpoint_dir + "/step-00000005");
}

TEST_F(TrainerTest, EvaluationChangesNothing) {
  const auto without = Run(config_);
  config_.train.eval_every = 1;
  const auto with = Run(config_);
  ASSERT_THAT(with, IsOk());
  EXPECT_EQ(observer_.evaluations.size(), 6u);
  EXPECT_EQ(with->losses, without->losses);
  EXPECT_EQ(with->summary.parameter_hash, without->summary.parameter_hash);
}

TEST_F(TrainerTest, SeedsDecide) {
  const auto first = Run(config_);
  const auto again = Run(config_);
  EXPECT_EQ(first->losses, again->losses);
  EXPECT_EQ(first->summary.parameter_hash, again->summary.parameter_hash);
  EXPECT_EQ(first->sample, again->sample);
  RunConfig other = config_;
  other.data.seed = 2;
  EXPECT_NE(Run(other)->summary.parameter_hash, first->summary.parameter_hash);
  other = config_;
  other.train.seed = 2;
  EXPECT_NE(Run(other)->losses[0], first->losses[0]);
}

TEST_F(TrainerTest, ResumingIsBitExact) {
  for (const int64_t accumulation : {1, 3}) {
    SCOPED_TRACE(accumulation);
    RunConfig config = config_;
    config.data.accumulation = accumulation;
    const auto whole = Run(config);
    ASSERT_THAT(whole, IsOk());

    config.train.checkpoint_dir = directory_ + "/resume" + std::to_string(accumulation);
    on_step_ = [&](const StepMetrics& metrics) {
      if (metrics.step == 4) stop_->Request();
    };
    const auto first = Run(config);
    ASSERT_THAT(first, IsOk());
    EXPECT_EQ(first->summary.end, RunEnd::kStopped);
    EXPECT_EQ(first->summary.step, 4);
    EXPECT_EQ(first->summary.checkpoint, config.train.checkpoint_dir + "/step-00000004");

    on_step_ = nullptr;
    stop_ = std::make_unique<StopSource>();
    const auto second = Run(config);
    ASSERT_THAT(second, IsOk());
    EXPECT_EQ(second->summary.first_step, 4);
    EXPECT_THAT(observer_.starts[0].resumed_from, HasSubstr("step-00000004"));
    std::vector<double> losses = first->losses;
    losses.insert(losses.end(), second->losses.begin(), second->losses.end());
    EXPECT_EQ(losses, whole->losses);
    EXPECT_EQ(second->summary.parameter_hash, whole->summary.parameter_hash);
    EXPECT_EQ(second->sample, whole->sample);
    EXPECT_THAT(messages_, IsEmpty());
  }
}

TEST_F(TrainerTest, ADoneRunHasNothingToDo) {
  config_.train.checkpoint_dir = directory_ + "/done";
  const auto first = Run(config_);
  const auto again = Run(config_);
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->losses, IsEmpty());
  EXPECT_EQ(again->summary.loss_first, std::nullopt);
  EXPECT_EQ(again->summary.parameter_hash, first->summary.parameter_hash);
  EXPECT_THAT(observer_.checkpoints, IsEmpty());
}

TEST_F(TrainerTest, ResumesFromANamedCheckpoint) {
  config_.train.checkpoint_dir = directory_ + "/named";
  config_.train.checkpoint_every = 2;
  config_.train.keep = 0;
  const auto whole = Run(config_);
  config_.train.resume = config_.train.checkpoint_dir + "/step-00000002";
  const auto again = Run(config_);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->summary.first_step, 2);
  EXPECT_EQ(again->summary.parameter_hash, whole->summary.parameter_hash);
}

TEST_F(TrainerTest, NeverMeansAFreshDirectory) {
  config_.train.checkpoint_dir = directory_ + "/never";
  config_.train.resume = "never";
  ASSERT_THAT(Run(config_), IsOk());
  EXPECT_THAT(Run(config_), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     AllOf(HasSubstr("step-00000006"), HasSubstr("resume=auto"))));
}

TEST_F(TrainerTest, OtherSettingsAreNamed) {
  config_.train.checkpoint_dir = directory_ + "/settings";
  ASSERT_THAT(Run(config_), IsOk());
  settings_["model.layers"] = "3";
  settings_["schedule.peak"] = "1";
  config_.train.steps = 7;
  ASSERT_THAT(Run(config_), IsOk());
  EXPECT_THAT(messages_,
              ElementsAre(AllOf(HasSubstr("model.layers, schedule.peak"), HasSubstr("warning"))));
}

TEST_F(TrainerTest, AnotherModelIsRefused) {
  config_.train.checkpoint_dir = directory_ + "/other";
  ASSERT_THAT(Run(config_), IsOk());
  config_.model.layers = 3;
  EXPECT_THAT(Run(config_), StatusIs(absl::StatusCode::kInvalidArgument, "is from another model"));
}

TEST_F(TrainerTest, AnotherOptimizerIsRefused) {
  config_.train.checkpoint_dir = directory_ + "/optimizer";
  ASSERT_THAT(Run(config_), IsOk());
  config_.optimizer.kind = OptimizerKind::kLion;
  EXPECT_THAT(Run(config_), StatusIs(absl::StatusCode::kInvalidArgument,
                                     "holds the states of adamw, not of lion"));
  config_.optimizer.state_format = StateFormat::kSplitMaster;
  EXPECT_THAT(ValidateTraining(config_),
              StatusIs(absl::StatusCode::kInvalidArgument, "optimizer: "));
}

TEST_F(TrainerTest, AStopBeforeTheFirstStepDoesNothing) {
  stop_->Request();
  config_.train.checkpoint_dir = directory_ + "/stopped";
  const auto outcome = Run(config_);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->summary.end, RunEnd::kStopped);
  EXPECT_EQ(outcome->summary.step, 0);
  EXPECT_THAT(observer_.steps, IsEmpty());
  EXPECT_THAT(observer_.checkpoints, IsEmpty());
}

TEST_F(TrainerTest, ConfigsThatContradictThemselvesAreRefused) {
  RunConfig config = config_;
  config.data.sequence_length = 65;
  TinyMachine machine(config_);
  const std::unique_ptr<RunData> data = Data(config_);
  EXPECT_THAT(Trainer::Create({.config = &config,
                               .training = &data->training(),
                               .validation = data->validation(),
                               .context = machine.context(),
                               .clock = &machine.clock(),
                               .logger = &machine.logger(),
                               .files = &files_,
                               .settings = {}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "data.sequence_length: 65 tokens are more than model.max_sequence, 64"));
}

// The engine with a budget that makes everything move, interrupted, and resumed over other tiers
// and with another form of the master.
TEST_F(TrainerTest, TheEngineResumesAcrossBudgets) {
  config_.train.eval_every = 3;
  const auto expected = Run(config_);
  ASSERT_THAT(expected, IsOk());

  config_.train.checkpoint_dir = directory_ + "/engine";
  config_.memory = {.device = DeviceTopology::kDiscrete,
                    .device_memory = 4_MiB,
                    .host_memory = 4_MiB,
                    .spill_dirs = {directory_, directory_},
                    .spill_shares = {1.0, 3.0},
                    .chunk_elements = kChunkGranularityElements};
  std::vector<double> losses;
  Outcome last;
  for (const int64_t steps : {3, 6}) {
    config_.train.steps = steps;
    config_.optimizer.state_format = StateFormat::kSplitMaster;  // no number changes
    if (steps == 6) {
      config_.optimizer.state_format = StateFormat::kF32;
      config_.memory = {.device = DeviceTopology::kUnified, .device_memory = 64_MiB};
    }
    MonotonicClock clock;
    MemoryLogger logger;
    const auto plugin = GeminiPlugin::Create({.memory = &config_.memory,
                                              .threads = 1,
                                              .compute_dtype = DType::kBF16,
                                              .gradient_dtype = GradientDTypeOf(config_),
                                              .optimizer = config_.optimizer.kind,
                                              .state_format = config_.optimizer.state_format,
                                              .clock = &clock,
                                              .logger = &logger,
                                              .files = &files_});
    ASSERT_THAT(plugin, IsOk());
    const std::unique_ptr<RunData> data = Data(config_);
    observer_ = RecordingObserver();
    auto outcome = RunOver({.config = &config_,
                            .training = &data->training(),
                            .validation = data->validation(),
                            .context = (*plugin)->context(),
                            .engine = &(*plugin)->engine(),
                            .clock = &clock,
                            .logger = &logger,
                            .files = &files_,
                            .observer = &observer_,
                            .settings = settings_});
    ASSERT_THAT(outcome, IsOk());
    losses.insert(losses.end(), outcome->losses.begin(), outcome->losses.end());
    const EngineStatistics statistics = outcome->summary.engine.value_or(EngineStatistics{});
    EXPECT_GT(statistics.leases, 0);
    if (steps == 3) {
      ASSERT_EQ(statistics.stripes.size(), 2U);
      EXPECT_EQ(statistics.stripes[0].share, 0.25);
    }
    last = *std::move(outcome);
  }
  EXPECT_EQ(losses, expected->losses);
  EXPECT_EQ(last.summary.parameter_hash, expected->summary.parameter_hash);
  EXPECT_EQ(last.sample, expected->sample);
}

}  // namespace
}  // namespace gantry
