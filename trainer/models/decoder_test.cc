// The whole model: against the reference in double (loss, and every parameter's gradient by central
// differences), and against itself under what must not change numbers (recomputation, threads,
// chunk size, dry runs) or only a little (bf16, accumulation).
#include "trainer/models/decoder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/models/testing/decoder_bench.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 4711;
constexpr OptimizerStep kNoChange{.learning_rate = 0.0};

struct Variant {
  const char* name;
  bool tied;
  Recompute recompute;
};

class DecoderVariantTest : public ::testing::TestWithParam<Variant> {
 protected:
  static DecoderConfig config() {
    DecoderConfig config = TinyLlamaConfig();
    config.tie_embeddings = GetParam().tied;
    config.recompute = GetParam().recompute;
    return config;
  }
};

// Central differences of the reference by every element of one parameter.
std::vector<double> Differences(ReferenceParameters parameters, const std::string& name,
                                const DecoderConfig& config, const TokenBatch& batch) {
  constexpr double kStep = 1e-5;
  std::vector<double> result;
  for (double& value : parameters.at(name)) {
    const double center = value;
    value = center + kStep;
    const double above = ReferenceLoss(parameters, config, batch);
    value = center - kStep;
    const double below = ReferenceLoss(parameters, config, batch);
    value = center;
    result.push_back((above - below) / (2 * kStep));
  }
  return result;
}

TEST_P(DecoderVariantTest, LossAndGradientsAreTheReferences) {
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const DecoderConfig config = DecoderVariantTest::config();
  DecoderBench bench(config, {}, {});
  bench.SealWithValues(kSeed);
  const RandomBatch batch(config, 2, 5, kSeed);
  const ReferenceParameters parameters = bench.Parameters();
  bench.BeginStep(kNoChange, 1);
  const LossSum loss = bench.MicroBatch(batch, 0.25);
  EXPECT_EQ(loss.valid_tokens, batch.valid_tokens());
  EXPECT_NEAR(loss.loss_sum, ReferenceLoss(parameters, config, batch.view()), 1e-4);
  const auto gradients = bench.Gradients();
  EXPECT_EQ(gradients.size(), parameters.size());
  for (const auto& [name, gradient] : gradients) {
    const std::vector<double> expected = Differences(parameters, name, config, batch.view());
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    EXPECT_GT(largest, 1e-3) << name << " has no influence on the loss";
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(gradient[i], 0.25 * expected[i], 1e-4 * std::max(largest, 0.1))
          << name << " " << i;
    }
  }
  bench.EndStep();
}

std::vector<std::string> StepEvents(DecoderBench& bench, const RandomBatch& batch) {
  bench.recording().TakeEvents();
  bench.BeginStep({.learning_rate = 1e-3}, 2);
  bench.MicroBatch(batch, 0.1);
  bench.MicroBatch(batch, 0.1);
  bench.EndStep();
  return bench.recording().TakeEvents();
}

TEST_P(DecoderVariantTest, DryRunMakesTheEventsOfRealSteps) {
  const DecoderConfig config = DecoderVariantTest::config();
  DecoderBench bench(config, {}, {});
  const RandomBatch batch(config, 2, 5, kSeed);
  ASSERT_TRUE(bench.recording().dry_run());
  const std::vector<std::string> dry = StepEvents(bench, batch);
  bench.SealWithValues(kSeed);
  EXPECT_EQ(StepEvents(bench, batch), dry);
  EXPECT_EQ(StepEvents(bench, batch), dry);
  const auto ready = std::ranges::count_if(
      dry, [](const std::string& event) { return event.starts_with("ready"); });
  EXPECT_EQ(ready, 2 * static_cast<int64_t>(bench.model().weights().tensors.size()));
}

TEST_P(DecoderVariantTest, LossFallsOnAToySequence) {
  DecoderConfig config = DecoderVariantTest::config();
  config.parameter_dtype = DType::kBF16;
  DecoderBench bench(config, {.compute_dtype = DType::kBF16}, {});
  ASSERT_THAT(bench.store().Seal(), IsOk());
  ASSERT_THAT(bench.model().InitializeWeights(kSeed), IsOk());
  RandomBatch batch(config, 1, 16, kSeed);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    batch.tokens[i] = static_cast<int32_t>(i * i % 7);
    batch.targets[i] = static_cast<int32_t>((i + 1) * (i + 1) % 7);
  }
  double first = 0;
  double last = 0;
  for (int64_t step = 1; step <= 30; ++step) {
    bench.BeginStep({.learning_rate = 0.02, .step = step, .max_gradient_norm = 1.0}, 1);
    last = bench.MicroBatch(batch, 1.0 / 16).loss_sum / 16;
    if (step == 1) first = last;
    EXPECT_EQ(bench.EndStep().outcome, StepResult::Outcome::kUpdated);
  }
  EXPECT_NEAR(first, std::log(23.0), 0.1);  // nothing learned yet
  EXPECT_LT(last, 0.3 * first);
}

INSTANTIATE_TEST_SUITE_P(Variants, DecoderVariantTest,
                         ::testing::Values(Variant{"Plain", false, Recompute::kNone},
                                           Variant{"Recompute", false, Recompute::kLayer},
                                           Variant{"Tied", true, Recompute::kNone},
                                           Variant{"TiedRecompute", true, Recompute::kLayer}),
                         [](const auto& info) { return std::string(info.param.name); });

// Parameters after three steps of two micro-batches.
ReferenceParameters Train(const DecoderConfig& config, const TestBench::Options& options) {
  DecoderBench bench(config, options, {});
  bench.SealWithValues(kSeed);
  for (int64_t step = 1; step <= 3; ++step) {
    bench.BeginStep({.learning_rate = 1e-2, .step = step, .max_gradient_norm = 1.0}, 2);
    const auto batch = static_cast<uint64_t>(2 * step);
    bench.MicroBatch(RandomBatch(config, 2, 7, batch), 0.05);
    bench.MicroBatch(RandomBatch(config, 2, 7, batch + 1), 0.05);
    bench.EndStep();
  }
  return bench.Parameters();
}

class DecoderTypeTest : public ::testing::TestWithParam<DType> {
 protected:
  static DecoderConfig config() {
    DecoderConfig config = TinyLlamaConfig();
    config.parameter_dtype = GetParam();
    return config;
  }
};

TEST_P(DecoderTypeTest, RecomputationThreadsAndChunksChangeNoBit) {
  const DecoderConfig plain = config();
  const ReferenceParameters expected = Train(plain, {.compute_dtype = GetParam()});
  DecoderConfig recompute = plain;
  recompute.recompute = Recompute::kLayer;
  EXPECT_EQ(Train(recompute, {.compute_dtype = GetParam()}), expected);
  EXPECT_EQ(Train(plain, {.compute_dtype = GetParam(), .threads = 1}), expected);
  EXPECT_EQ(
      Train(plain, {.compute_dtype = GetParam(), .chunk_elements = 3 * kChunkGranularityElements}),
      expected);
}

INSTANTIATE_TEST_SUITE_P(Types, DecoderTypeTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

using Gradients = std::map<std::string, std::vector<float>>;

TEST(DecoderTest, BF16IsCloseToF32) {
  DecoderConfig config = TinyLlamaConfig();
  const RandomBatch batch(config, 2, 9, kSeed);
  DecoderBench exact(config, {}, {});
  exact.SealWithValues(kSeed);
  exact.BeginStep(kNoChange, 1);
  const LossSum expected = exact.MicroBatch(batch, 1.0);
  config.parameter_dtype = DType::kBF16;
  for (const DType gradient_dtype : {DType::kF32, DType::kBF16}) {
    DecoderBench rounded(config, {.compute_dtype = DType::kBF16, .gradient_dtype = gradient_dtype},
                         {});
    rounded.SealWithValues(kSeed);
    rounded.BeginStep(kNoChange, 1);
    const LossSum loss = rounded.MicroBatch(batch, 1.0);
    EXPECT_NEAR(loss.loss_sum, expected.loss_sum, 0.02 * expected.loss_sum);
    const double distance = RelativeDistance(rounded.Gradients(), exact.Gradients());
    EXPECT_LT(distance, 0.05) << Name(gradient_dtype);
    EXPECT_GT(distance, 1e-4) << "bf16 took no effect";
  }
}

TEST(DecoderTest, AccumulationEqualsTheLargeBatch) {
  const DecoderConfig config = TinyLlamaConfig();
  const RandomBatch whole(config, 6, 5, kSeed);
  const double scale = 1.0 / static_cast<double>(whole.valid_tokens());
  DecoderBench once(config, {}, {});
  once.SealWithValues(kSeed);
  once.BeginStep(kNoChange, 1);
  const LossSum expected = once.MicroBatch(whole, scale);
  DecoderBench thrice(config, {}, {});
  thrice.SealWithValues(kSeed);
  thrice.BeginStep(kNoChange, 3);
  LossSum sum;
  for (int64_t i = 0; i < 3; ++i) {
    RandomBatch part(config, 2, 5, kSeed);
    std::copy_n(whole.tokens.begin() + i * 10, 10, part.tokens.begin());
    std::copy_n(whole.targets.begin() + i * 10, 10, part.targets.begin());
    const LossSum loss = thrice.MicroBatch(part, scale);
    sum.loss_sum += loss.loss_sum;
    sum.valid_tokens += loss.valid_tokens;
  }
  EXPECT_NEAR(sum.loss_sum, expected.loss_sum, 1e-5 * expected.loss_sum);
  EXPECT_EQ(sum.valid_tokens, expected.valid_tokens);
  EXPECT_LT(RelativeDistance(thrice.Gradients(), once.Gradients()), 1e-5);
  const double once_norm = once.EndStep().gradient_norm;
  EXPECT_NEAR(thrice.EndStep().gradient_norm, once_norm, 1e-5 * once_norm);
}

TEST(DecoderTest, EvaluationGivesTheTrainingLoss) {
  const DecoderConfig config = TinyLlamaConfig();
  DecoderBench bench(config, {}, {});
  bench.SealWithValues(kSeed);
  const RandomBatch batch(config, 3, 4, kSeed);
  bench.BeginStep(kNoChange, 1);
  const LossSum training = bench.MicroBatch(batch, 1.0);
  bench.EndStep();
  ASSERT_THAT(bench.recording().BeginStep({}), IsOk());
  ASSERT_THAT(bench.recording().BeginMicroBatch(), IsOk());
  const auto evaluation = bench.model().Loss(batch.view());
  ASSERT_THAT(evaluation, IsOk());
  EXPECT_EQ(evaluation->loss_sum, training.loss_sum);
  EXPECT_EQ(evaluation->valid_tokens, training.valid_tokens);
  std::vector<float> log_probabilities(12, 1.0F);
  ASSERT_THAT(bench.model().LogProbabilities(batch.view(), log_probabilities), IsOk());
  double sum = 0;
  for (const float value : log_probabilities) sum -= value;
  EXPECT_DOUBLE_EQ(sum, training.loss_sum);
  EXPECT_EQ(bench.EndStep().outcome, StepResult::Outcome::kEvaluated);
}

TEST(DecoderTest, AnyLossOfTheLogProbabilities) {
  const DecoderConfig config = TinyLlamaConfig();
  const RandomBatch batch(config, 2, 5, kSeed);
  DecoderBench sum(config, {}, {});
  sum.SealWithValues(kSeed);
  sum.BeginStep(kNoChange, 1);
  sum.MicroBatch(batch, 3.0);
  DecoderBench any(config, {}, {});
  any.SealWithValues(kSeed);
  any.BeginStep(kNoChange, 1);
  ASSERT_THAT(any.recording().BeginMicroBatch(), IsOk());
  ASSERT_THAT(any.model().ForwardBackward(batch.view(),
                                          TokenLoss([](std::span<const float> log_probabilities,
                                                       std::span<float> gradients) {
                                            EXPECT_EQ(log_probabilities.size(), 10U);
                                            std::ranges::fill(gradients, -3.0F);
                                            return absl::OkStatus();
                                          })),
              IsOk());
  EXPECT_EQ(any.Gradients(), sum.Gradients());
}

TEST(DecoderTest, FrozenTensorsCostNothingBackward) {
  const DecoderConfig config = TinyLlamaConfig();
  const RandomBatch batch(config, 2, 5, kSeed);
  DecoderBench full(config, {}, {});
  full.SealWithValues(kSeed);
  full.BeginStep(kNoChange, 1);
  full.MicroBatch(batch, 1.0);
  const auto is_trained = [](std::string_view name) {
    return name == "model.layers.1.mlp.down_proj.weight" || name == "model.norm.weight";
  };
  DecoderBench some(config, {}, {.trainability = [&](std::string_view name) {
                      return is_trained(name) ? Trainability::kTrainable : Trainability::kFrozen;
                    }});
  some.SealWithValues(kSeed);
  some.recording().TakeEvents();
  some.BeginStep(kNoChange, 1);
  some.MicroBatch(batch, 1.0);
  Gradients expected = full.Gradients();
  std::erase_if(expected, [&](const auto& entry) { return !is_trained(entry.first); });
  EXPECT_EQ(some.Gradients(), expected);
  std::vector<std::string> backward;
  for (const std::string& event : some.recording().TakeEvents()) {
    if (event.find(" backward ") != std::string::npos) backward.push_back(event);
  }
  EXPECT_THAT(backward, ::testing::ElementsAre("acquire head backward t20:r",
                                               "acquire rms_norm backward t19:rg=",
                                               "acquire mlp.down_proj backward t18:g="));
}

TEST(DecoderTest, BadBatchesAreErrors) {
  const DecoderConfig config = TinyLlamaConfig();
  DecoderBench bench(config, {}, {});
  bench.SealWithValues(kSeed);
  bench.BeginStep(kNoChange, 1);
  ASSERT_THAT(bench.recording().BeginMicroBatch(), IsOk());
  const auto expect_error = [&](RandomBatch batch, const char* message) {
    EXPECT_THAT(bench.model().ForwardBackward(batch.view(), 1.0),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
    EXPECT_THAT(bench.model().Loss(batch.view()),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  const RandomBatch good(config, 2, 5, kSeed);
  RandomBatch batch = good;
  batch.tokens[3] = 23;
  expect_error(batch, "token 3 of the batch is 23");
  batch = good;
  batch.tokens[0] = -1;
  expect_error(batch, "token 0 of the batch is -1");
  batch = good;
  batch.targets[9] = -2;
  expect_error(batch, "target 9 of the batch is -2");
  batch = good;
  batch.tokens.pop_back();
  expect_error(batch, "2 x 5 has 9 tokens and 10 targets");
  batch = good;
  batch.sequences = 0;
  expect_error(batch, "0 sequences");
  expect_error(RandomBatch(config, 1, 33, kSeed), "33 tokens; the model takes 1 to 32");
}

TEST(DecoderTest, RunningOutOfMemoryIsAnError) {
  const DecoderConfig config = TinyLlamaConfig();
  DecoderBench bench(config, {.activation_slots = 1}, {});
  bench.SealWithValues(kSeed);
  bench.BeginStep(kNoChange, 1);
  ASSERT_THAT(bench.recording().BeginMicroBatch(), IsOk());
  const RandomBatch batch(config, 8, 32, kSeed);
  EXPECT_THAT(bench.model().ForwardBackward(batch.view(), 1.0),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(bench.store().open_leases(), 0);
  EXPECT_EQ(bench.store().arena().live_slots(), 0);
}

TEST(DecoderTest, RejectsF16) {
  TestBench bench({});
  ExecutionContext context = bench.context();
  context.compute_dtype = DType::kF16;
  EXPECT_THAT(DecoderModel::Create(context, TinyLlamaConfig(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "f16"));
}

}  // namespace
}  // namespace gantry
