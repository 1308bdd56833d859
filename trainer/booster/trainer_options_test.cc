// What a run can be told beyond steps and data: early stopping, keeping the best checkpoint, f16
// with a loss scale, groups of parameters, data of which not everything is scored. And that
// whatever it is told, a run that stops anywhere and resumes is the run that did not stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/status_macros.h"
#include "base/testing/status_matchers.h"
#include "gemini/parameter_store.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/booster/learning_rate.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/parameter_groups.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/run_data.h"
#include "trainer/booster/stop_source.h"
#include "trainer/booster/testing/tiny_run.h"
#include "trainer/booster/trainer.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_directory.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/data/token_source.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Another source with some of its sequences changed: a run whose data go bad, or of which not all
// is scored.
class ChangedSource final : public TokenSource {
 public:
  // Of sequence `number`: its tokens and targets.
  using Change =
      std::function<void(int64_t number, std::span<int32_t> tokens, std::span<int32_t> targets)>;
  ChangedSource(const TokenSource* inner, Change change)
      : inner_(inner), change_(std::move(change)) {}

  int64_t sequence_length() const override { return inner_->sequence_length(); }
  int64_t sequences_per_epoch() const override { return inner_->sequences_per_epoch(); }
  int64_t scored_tokens_per_epoch() const override { return inner_->scored_tokens_per_epoch(); }
  const std::string& fingerprint() const override { return inner_->fingerprint(); }
  absl::StatusOr<SampledTokens> Read(int64_t first, int64_t count) const override {
    GANTRY_ASSIGN_OR_RETURN(SampledTokens sampled, inner_->Read(first, count));
    const auto length = static_cast<size_t>(sampled.length);
    for (int64_t i = 0; i < count; ++i) {
      const size_t begin = static_cast<size_t>(i) * length;
      change_(first + i, std::span(sampled.tokens).subspan(begin, length),
              std::span(sampled.targets).subspan(begin, length));
    }
    sampled.scored_tokens =
        std::ssize(sampled.targets) - std::ranges::count(sampled.targets, kIgnoreTarget);
    return sampled;
  }
  absl::StatusOr<SampledTokens> ReadEvenly(EvenSequences range) const override {
    return inner_->ReadEvenly(range);
  }

 private:
  const TokenSource* inner_;
  Change change_;
};

struct Outcome {
  TrainingSummary summary;
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> scales;
  std::vector<int64_t> evaluated;
};

class TrainerOptionsTest : public ::testing::Test {
 protected:
  TrainerOptionsTest() : directory_(::testing::TempDir() + "trainer_options_test") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    config_ = TinyConfig(directory_);
  }

  absl::StatusOr<Outcome> Run(const RunConfig& config, int64_t stop_after = 0) {
    TinyMachine machine(config);
    GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<RunData> data,
                            RunData::Open(files_, config, nullptr));
    const ChangedSource training(&data->training(), change_);
    StopSource stop;
    RecordingObserver observer;
    observer.on_step = [&](const StepMetrics& metrics) {
      if (metrics.step == stop_after) stop.Request();
    };
    GANTRY_ASSIGN_OR_RETURN(auto trainer, Trainer::Create({.config = &config,
                                                           .training = &training,
                                                           .validation = data->validation(),
                                                           .context = machine.context(),
                                                           .clock = &machine.clock(),
                                                           .logger = &machine.logger(),
                                                           .files = &files_,
                                                           .stop = &stop,
                                                           .observer = &observer,
                                                           .settings = {}}));
    Outcome outcome;
    GANTRY_ASSIGN_OR_RETURN(outcome.summary, trainer->Run());
    for (const StepMetrics& step : observer.steps) {
      outcome.losses.push_back(step.loss);
      outcome.norms.push_back(step.gradient_norm);
      outcome.scales.push_back(step.loss_scale.value_or(0.0));
    }
    for (const EvaluationMetrics& evaluation : observer.evaluations) {
      outcome.evaluated.push_back(evaluation.step);
    }
    return outcome;
  }

  // The run in pieces that stop after the given steps is the whole one.
  void ExpectResumesExactly(RunConfig config, const std::vector<int64_t>& stops) {
    config.train.checkpoint_dir = directory_ + "/whole";
    const auto whole = Run(config);
    ASSERT_THAT(whole, IsOk());
    config.train.checkpoint_dir = directory_ + "/pieces";
    Outcome pieces;
    for (const int64_t stop : stops) {
      const auto piece = Run(config, stop);
      ASSERT_THAT(piece, IsOk());
      pieces.losses.insert(pieces.losses.end(), piece->losses.begin(), piece->losses.end());
      pieces.norms.insert(pieces.norms.end(), piece->norms.begin(), piece->norms.end());
      pieces.scales.insert(pieces.scales.end(), piece->scales.begin(), piece->scales.end());
      pieces.evaluated.insert(pieces.evaluated.end(), piece->evaluated.begin(),
                              piece->evaluated.end());
      pieces.summary = piece->summary;
    }
    EXPECT_EQ(pieces.losses, whole->losses);
    EXPECT_EQ(pieces.norms, whole->norms);
    EXPECT_EQ(pieces.scales, whole->scales);
    EXPECT_EQ(pieces.evaluated, whole->evaluated);
    EXPECT_EQ(pieces.summary.parameter_hash, whole->summary.parameter_hash);
    EXPECT_EQ(pieces.summary.step, whole->summary.step);
    EXPECT_EQ(pieces.summary.end, whole->summary.end);
    const auto first = Checkpoint::Open(&files_, directory_ + "/whole");
    const auto second = Checkpoint::Open(&files_, directory_ + "/pieces");
    ASSERT_THAT(first, IsOk());
    ASSERT_THAT(second, IsOk());
    EXPECT_EQ(first->manifest().position, second->manifest().position);
  }

  // From this sequence on every token is said to be followed by a z.
  void GoBadAfter(int64_t sequences) {
    change_ = [sequences](int64_t number, std::span<int32_t>, std::span<int32_t> targets) {
      if (number >= sequences) std::ranges::fill(targets, 'z');
    };
  }

  PosixFileCalls files_;
  std::string directory_;
  RunConfig config_;
  ChangedSource::Change change_ = [](int64_t, std::span<int32_t>, std::span<int32_t>) {};
};

TEST_F(TrainerOptionsTest, StopsEarlyWhereTheValidationLossRises) {
  config_.train.steps = 40;
  config_.train.eval_every = 2;
  config_.train.early_stop_evaluations = 3;
  const auto never = Run(config_);
  ASSERT_THAT(never, IsOk());
  EXPECT_EQ(never->summary.end, RunEnd::kFinished);

  GoBadAfter(10 * config_.data.batch_size);
  const auto stopped = Run(config_);
  ASSERT_THAT(stopped, IsOk());
  EXPECT_EQ(stopped->summary.end, RunEnd::kStoppedEarly);
  EXPECT_LT(stopped->summary.step, 40);
  ASSERT_TRUE(stopped->summary.validation_best.has_value());
  EXPECT_EQ(stopped->summary.validation_best->step, stopped->summary.step - 3 * 2);
  EXPECT_LT(stopped->summary.validation_best->loss, stopped->summary.validation_last->loss);
  EXPECT_FALSE(stopped->summary.validation_last->best);
  EXPECT_DOUBLE_EQ(stopped->summary.validation_last->perplexity(),
                   std::exp(stopped->summary.validation_last->loss));
}

// Nothing improves by a hundred nats, so only the first evaluation counts as an improvement.
TEST_F(TrainerOptionsTest, SmallImprovementsDoNotCount) {
  config_.train.steps = 40;
  config_.train.eval_every = 2;
  config_.train.early_stop_evaluations = 3;
  config_.train.early_stop_improvement = 100.0;
  const auto stopped = Run(config_);
  ASSERT_THAT(stopped, IsOk());
  EXPECT_EQ(stopped->summary.end, RunEnd::kStoppedEarly);
  EXPECT_EQ(stopped->summary.step, 8);
  EXPECT_EQ(stopped->summary.validation_best->step, 8);
}

TEST_F(TrainerOptionsTest, EarlyStoppingResumesExactly) {
  config_.train.steps = 40;
  config_.train.eval_every = 2;
  config_.train.early_stop_evaluations = 3;
  GoBadAfter(10 * config_.data.batch_size);
  // Among them stops where an evaluation is due, which the next piece makes up for.
  ExpectResumesExactly(config_, {3, 10, 12, 0});
  // It has ended: once more there is nothing to do, and with more patience it goes on.
  config_.train.checkpoint_dir = directory_ + "/pieces";
  const auto again = Run(config_);
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->losses, IsEmpty());
  EXPECT_EQ(again->summary.end, RunEnd::kStoppedEarly);
  config_.train.early_stop_evaluations = 4;
  const auto further = Run(config_);
  ASSERT_THAT(further, IsOk());
  EXPECT_EQ(further->losses.size(), 2U);
}

TEST_F(TrainerOptionsTest, KeepsTheBestCheckpoint) {
  config_.train.steps = 39;
  config_.train.eval_every = 2;
  config_.train.checkpoint_every = 3;
  config_.train.checkpoint_dir = directory_ + "/best";
  config_.train.keep = 1;
  config_.train.keep_best = true;
  GoBadAfter(10 * config_.data.batch_size);
  const auto outcome = Run(config_);
  ASSERT_THAT(outcome, IsOk());
  const BestEvaluation best = *outcome->summary.validation_best;
  EXPECT_LT(best.step, 36);
  const auto checkpoint = Checkpoint::Open(&files_, config_.train.checkpoint_dir + "/best");
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->manifest().position.step, best.step);
  EXPECT_EQ(checkpoint->manifest().position.best, best);
  EXPECT_EQ(Checkpoint::Open(&files_, config_.train.checkpoint_dir)->manifest().position.step, 39);
  EXPECT_EQ(ListCheckpoints(files_, config_.train.checkpoint_dir)->size(), 2U);

  // Resumed from it, the run finds it the best still.
  config_.train.resume = config_.train.checkpoint_dir + "/best";
  const auto again = Run(config_);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->summary.first_step, best.step);
  EXPECT_EQ(again->summary.parameter_hash, outcome->summary.parameter_hash);
  EXPECT_EQ(again->summary.validation_best, best);
}

// A crash between the save and naming it the best: the next run names it.
TEST_F(TrainerOptionsTest, ResumingNamesTheBestThatACrashDidNot) {
  config_.train.steps = 4;
  config_.train.eval_every = 2;
  config_.train.checkpoint_dir = directory_ + "/crash";
  config_.train.keep_best = true;
  ASSERT_THAT(Run(config_), IsOk());
  std::filesystem::remove(config_.train.checkpoint_dir + "/best");
  ASSERT_THAT(Run(config_), IsOk());
  EXPECT_EQ(BestCheckpoint(files_, config_.train.checkpoint_dir).value(), "step-00000004");
}

TEST_F(TrainerOptionsTest, F16LearnsAsF32Does) {
  config_.train.steps = 40;
  config_.model.parameter_dtype = DType::kF32;
  const auto f32 = Run(config_);
  ASSERT_THAT(f32, IsOk());
  EXPECT_EQ(f32->scales.front(), 0.0);
  config_.model.parameter_dtype = DType::kF16;
  for (const int64_t accumulation : {1, 2}) {
    SCOPED_TRACE(accumulation);
    config_.data.accumulation = accumulation;
    config_.data.batch_size = 4 / accumulation;
    const auto f16 = Run(config_);
    ASSERT_THAT(f16, IsOk());
    EXPECT_EQ(f16->scales.front(), 65536.0);
    EXPECT_NEAR(f16->losses.front(), f32->losses.front(), 1e-3);
    EXPECT_NEAR(f16->losses.back(), f32->losses.back(), 0.02);
    EXPECT_NE(f16->summary.parameter_hash, f32->summary.parameter_hash);
  }
}

// A scale at which the first gradients are beyond the range of f16.
TEST_F(TrainerOptionsTest, AScaleThatIsTooLargeFallsUntilStepsCount) {
  config_.train.steps = 20;
  config_.model.parameter_dtype = DType::kF16;
  config_.optimizer.loss_scale = {.initial = 0x1p24, .growth_steps = 4};
  const auto outcome = Run(config_);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_GT(outcome->summary.skipped_steps, 0);
  EXPECT_LT(outcome->summary.skipped_steps, 15);
  EXPECT_EQ(outcome->scales[0], 0x1p24);
  EXPECT_EQ(outcome->scales[1], 0x1p23);
  EXPECT_LT(outcome->losses.back(), outcome->losses.front());
  EXPECT_TRUE(std::isfinite(outcome->losses.back()));
}

TEST_F(TrainerOptionsTest, LossScalesResumeExactly) {
  config_.train.steps = 20;
  config_.model.parameter_dtype = DType::kF16;
  config_.optimizer.loss_scale = {.initial = 0x1p24, .growth_steps = 4};
  config_.schedule.shape = ScheduleShape::kWarmupStableDecay;
  ExpectResumesExactly(config_, {1, 6, 7, 13, 0});
}

TEST_F(TrainerOptionsTest, GroupsDecideRateAndDecay) {
  config_.train.steps = 3;
  const auto plain = Run(config_);
  ASSERT_THAT(plain, IsOk());
  const auto hash_with = [&](std::vector<ParameterGroup> groups, double weight_decay) {
    RunConfig config = config_;
    config.optimizer.groups = std::move(groups);
    config.optimizer.weight_decay = weight_decay;
    const auto outcome = Run(config);
    EXPECT_THAT(outcome, IsOk());
    return outcome.ok() ? outcome->summary.parameter_hash : "";
  };
  const std::string& as_it_was = plain->summary.parameter_hash;
  EXPECT_EQ(hash_with({}, 0.1), as_it_was);
  // What groups say that is so anyway changes no bit.
  EXPECT_EQ(hash_with({{.match = "*norm*", .weight_decay = 0.0}}, 0.1), as_it_was);
  EXPECT_EQ(hash_with({{.match = "*", .learning_rate_factor = 1.0}}, 0.1), as_it_was);
  EXPECT_EQ(hash_with({{.match = "*", .weight_decay = 0.0}}, 0.1), hash_with({}, 0.0));
  EXPECT_EQ(hash_with({{.match = "*_proj.weight", .weight_decay = 0.1},
                       {.match = "*embed*", .weight_decay = 0.1},
                       {.match = "lm_head*", .weight_decay = 0.1}},
                      0.0),
            as_it_was);
  EXPECT_NE(hash_with({{.match = "lm_head*", .weight_decay = 0.5}}, 0.1), as_it_was);
  // A rate of nothing: whatever the steps, the parameters are the first ones.
  const std::string frozen = hash_with({{.match = "*", .learning_rate_factor = 0.0}}, 0.1);
  config_.train.steps = 1;
  EXPECT_EQ(hash_with({{.match = "*", .learning_rate_factor = 0.0}}, 0.1), frozen);
  EXPECT_NE(frozen, as_it_was);
  EXPECT_THAT(
      [&] {
        RunConfig config = config_;
        config.optimizer.groups = {{.match = "head"}};
        return Run(config).status();
      }(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("optimizer.groups: 'head' matches no")));
}

// Scored tokens lie unevenly over the micro-batches; the loss is their mean all the same.
TEST_F(TrainerOptionsTest, MicroBatchesCountByTheirScoredTokens) {
  config_.model.parameter_dtype = DType::kF32;
  config_.train.steps = 3;
  change_ = [](int64_t number, std::span<int32_t>, std::span<int32_t> targets) {
    const size_t scored = number % 4 == 0 ? targets.size() : static_cast<size_t>(number % 4);
    std::ranges::fill(targets.subspan(scored), kIgnoreTarget);
  };
  const auto one = Run(config_);
  ASSERT_THAT(one, IsOk());
  config_.data.batch_size = 2;
  config_.data.accumulation = 2;
  const auto two = Run(config_);
  ASSERT_THAT(two, IsOk());
  config_.data.batch_size = 1;
  config_.data.accumulation = 4;
  const auto four = Run(config_);
  ASSERT_THAT(four, IsOk());
  for (size_t i = 0; i < one->losses.size(); ++i) {
    EXPECT_NEAR(two->losses[i], one->losses[i], 1e-5 * one->losses[i]);
    EXPECT_NEAR(two->norms[i], one->norms[i], 1e-4 * one->norms[i]);
    EXPECT_NEAR(four->losses[i], one->losses[i], 1e-5 * one->losses[i]);
    EXPECT_NEAR(four->norms[i], one->norms[i], 1e-4 * one->norms[i]);
  }
}

TEST_F(TrainerOptionsTest, AStepThatScoresNothingIsAnErrorAndNoNaN) {
  change_ = [this](int64_t number, std::span<int32_t>, std::span<int32_t> targets) {
    if (number < 2 * config_.data.batch_size) return;
    std::ranges::fill(targets, kIgnoreTarget);
  };
  EXPECT_THAT(Run(config_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no token of step 3")));
}

}  // namespace
}  // namespace gantry
