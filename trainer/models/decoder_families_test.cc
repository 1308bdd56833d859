// Every family: against the reference in double (loss, and every parameter's gradient by central
// differences), also over packed documents, and against itself under what must not change numbers:
// recomputation, threads, dry runs, packing, the side that padding is on.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/models/decoder.h"
#include "trainer/models/testing/decoder_bench.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 90125;
constexpr OptimizerStep kNoChange{.learning_rate = 0.0};
using Gradients = std::map<std::string, std::vector<float>>;

class DecoderFamiliesTest : public ::testing::TestWithParam<DecoderFamily> {
 protected:
  static DecoderConfig config() { return TinyDecoderConfig(GetParam()); }

  // The gradients of one step, and the loss sums of its micro-batches.
  struct Outcome {
    Gradients gradients;
    std::vector<double> losses;
  };
  static Outcome Run(const DecoderConfig& config, const TestBench::Options& options,
                     const std::vector<RandomBatch>& batches) {
    DecoderBench bench(config, options, {});
    bench.SealWithValues(kSeed);
    bench.BeginStep(kNoChange, static_cast<int64_t>(batches.size()));
    Outcome outcome;
    for (const RandomBatch& batch : batches) {
      outcome.losses.push_back(bench.MicroBatch(batch, 0.1).loss_sum);
    }
    outcome.gradients = bench.Gradients();
    bench.EndStep();
    return outcome;
  }
};

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

TEST_P(DecoderFamiliesTest, LossAndGradientsAreTheReferences) {
  SCOPED_TRACE(StrCat("seed ", kSeed));
  for (const std::vector<int32_t>& documents :
       {std::vector<int32_t>{}, std::vector<int32_t>{0, 2, 3, 6, 11}}) {
    DecoderBench bench(config(), {}, {});
    bench.SealWithValues(kSeed);
    RandomBatch batch(config(), 2, 6, kSeed);
    batch.documents = documents;
    const ReferenceParameters parameters = bench.Parameters();
    bench.BeginStep(kNoChange, 1);
    const LossSum loss = bench.MicroBatch(batch, 0.25);
    EXPECT_NEAR(loss.loss_sum, ReferenceLoss(parameters, config(), batch.view()), 1e-4);
    const Gradients gradients = bench.Gradients();
    EXPECT_EQ(gradients.size(), parameters.size());
    for (const auto& [name, gradient] : gradients) {
      const std::vector<double> expected = Differences(parameters, name, config(), batch.view());
      double largest = 0;
      for (const double value : expected) largest = std::max(largest, std::abs(value));
      // A bias of all keys adds the same to all scores of a query, unless they are rotated apart.
      const bool may_be_zero = name.find("k_proj.bias") != std::string::npos;
      EXPECT_TRUE(may_be_zero || largest > 1e-3) << name << " has no influence on the loss";
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(gradient[i], 0.25 * expected[i], 1e-4 * std::max(largest, 0.1))
            << name << " " << i;
      }
    }
    bench.EndStep();
  }
}

std::vector<std::string> StepEvents(DecoderBench& bench, const RandomBatch& batch) {
  bench.recording().TakeEvents();
  bench.BeginStep({.learning_rate = 1e-3}, 1);
  bench.MicroBatch(batch, 0.1);
  bench.EndStep();
  return bench.recording().TakeEvents();
}

TEST_P(DecoderFamiliesTest, DryRunMakesTheEventsOfRealStepsHoweverManyDocuments) {
  DecoderBench bench(config(), {}, {});
  RandomBatch batch(config(), 2, 6, kSeed);
  const std::vector<std::string> dry = StepEvents(bench, batch);
  bench.SealWithValues(kSeed);
  EXPECT_EQ(StepEvents(bench, batch), dry);
  batch.documents = {0, 1, 2, 3, 6, 7};
  EXPECT_EQ(StepEvents(bench, batch), dry);
}

TEST_P(DecoderFamiliesTest, RecomputationAndThreadsChangeNoBit) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    DecoderConfig plain = config();
    plain.parameter_dtype = dtype;
    DecoderConfig recompute = plain;
    recompute.recompute = Recompute::kLayer;
    std::vector<RandomBatch> batches = {{plain, 2, 7, 1}, {plain, 3, 5, 2}};
    batches[0].documents = {0, 3, 7, 9};
    const Outcome expected = Run(plain, {.compute_dtype = dtype}, batches);
    EXPECT_EQ(Run(recompute, {.compute_dtype = dtype}, batches).gradients, expected.gradients);
    EXPECT_EQ(Run(plain, {.compute_dtype = dtype, .threads = 1}, batches).gradients,
              expected.gradients);
  }
}

// Token n of the result is token from[n] of `batch`, or, where that is -1, padding.
RandomBatch Rearranged(const RandomBatch& batch, const std::vector<int64_t>& from,
                       int64_t sequences) {
  RandomBatch result = batch;
  result.documents.clear();
  result.sequences = sequences;
  result.length = static_cast<int64_t>(from.size()) / sequences;
  result.tokens.assign(from.size(), 7);
  result.targets.assign(from.size(), kIgnoreTarget);
  for (size_t n = 0; n < from.size(); ++n) {
    if (from[n] < 0) continue;
    result.tokens[n] = batch.tokens[static_cast<size_t>(from[n])];
    result.targets[n] = batch.targets[static_cast<size_t>(from[n])];
  }
  return result;
}

// Three documents of 6, 3 and 2 tokens: one after the other in one sequence, padded behind in three
// sequences of 6, padded in front, and each in a micro-batch of its own.
TEST_P(DecoderFamiliesTest, PackingAndPaddingChangeNoLossAndNoGradient) {
  const DecoderConfig config = DecoderFamiliesTest::config();
  RandomBatch packed(config, 1, 11, kSeed);
  packed.documents = {0, 6, 9};
  const RandomBatch behind =
      Rearranged(packed, {0, 1, 2, 3, 4, 5, 6, 7, 8, -1, -1, -1, 9, 10, -1, -1, -1, -1}, 3);
  RandomBatch in_front =
      Rearranged(packed, {0, 1, 2, 3, 4, 5, -1, -1, -1, 6, 7, 8, -1, -1, -1, -1, 9, 10}, 3);
  in_front.documents = {0, 6, 9, 12, 16};
  const std::vector<RandomBatch> apart = {Rearranged(packed, {0, 1, 2, 3, 4, 5}, 1),
                                          Rearranged(packed, {6, 7, 8}, 1),
                                          Rearranged(packed, {9, 10}, 1)};
  const bool by_length = config.rope_scaling.kind == RopeScalingKind::kDynamic;
  const Outcome expected = Run(config, {}, {packed});
  const Outcome padded = Run(config, {}, {behind});
  const Outcome shifted = Run(config, {}, {in_front});
  const Outcome one_by_one = Run(config, {}, apart);
  EXPECT_LT(RelativeDistance(shifted.gradients, padded.gradients), 1e-6);
  EXPECT_NEAR(shifted.losses[0], padded.losses[0], 1e-6 * padded.losses[0]);
  if (by_length) return;  // frequencies of sequences of 11 tokens are others than of 6
  EXPECT_LT(RelativeDistance(padded.gradients, expected.gradients), 1e-6);
  EXPECT_LT(RelativeDistance(one_by_one.gradients, expected.gradients), 1e-6);
  const double sum = one_by_one.losses[0] + one_by_one.losses[1] + one_by_one.losses[2];
  EXPECT_NEAR(padded.losses[0], expected.losses[0], 1e-6 * expected.losses[0]);
  EXPECT_NEAR(sum, expected.losses[0], 1e-6 * expected.losses[0]);
}

TEST_P(DecoderFamiliesTest, MicroBatchesSumToTheLargeBatch) {
  const DecoderConfig config = DecoderFamiliesTest::config();
  const RandomBatch whole(config, 4, 5, kSeed);
  std::vector<RandomBatch> parts;
  for (int64_t i = 0; i < 4; ++i) {
    parts.push_back(Rearranged(whole, {5 * i, 5 * i + 1, 5 * i + 2, 5 * i + 3, 5 * i + 4}, 1));
  }
  EXPECT_LT(RelativeDistance(Run(config, {}, parts).gradients, Run(config, {}, {whole}).gradients),
            1e-6);
}

TEST_P(DecoderFamiliesTest, BadDocumentsAreErrors) {
  DecoderBench bench(config(), {}, {});
  bench.SealWithValues(kSeed);
  bench.BeginStep(kNoChange, 1);
  ASSERT_THAT(bench.recording().BeginMicroBatch(), IsOk());
  const struct {
    const char* message;
    std::vector<int32_t> documents;
  } cases[] = {
      {"starts at token 0", {1, 5}},    {"starts at token 5", {0, 3}},
      {"starts at token 5", {0, 4, 6}}, {"starts at 3 behind one at 3", {0, 3, 3, 5}},
      {"starts at -1", {-1, 0, 5}},     {"starts at 10", {0, 5, 10}},
  };
  for (const auto& bad : cases) {
    RandomBatch batch(config(), 2, 5, kSeed);
    batch.documents = bad.documents;
    EXPECT_THAT(bench.model().ForwardBackward(batch.view(), 1.0),
                StatusIs(absl::StatusCode::kInvalidArgument, bad.message));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DecoderFamiliesTest,
                         ::testing::Values(DecoderFamily::kGpt2, DecoderFamily::kLlama,
                                           DecoderFamily::kMistral, DecoderFamily::kQwen2,
                                           DecoderFamily::kQwen3),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace gantry
