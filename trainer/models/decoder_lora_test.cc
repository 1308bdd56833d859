// Decoders with adapters against themselves: what must not change numbers (recomputation, threads,
// micro-batches, dry runs), dropout's part, starting values, and bad settings.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/models/decoder.h"
#include "trainer/models/testing/decoder_bench.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 60457;
using Gradients = std::map<std::string, std::vector<float>>;

LoraConfig Lora(double dropout) {
  return {.rank = 3,
          .alpha = 6,
          .dropout = dropout,
          .magnitudes = true,
          .targets = {"q_proj", "v_proj", "up_proj", "down_proj"},
          .seed = 5};
}

// A bench whose adapters have values too: all of them normal with deviation 0.3.
void SealWithValues(DecoderBench& bench) {
  bench.SealWithValues(kSeed);
  for (const RegisteredTensor& tensor : bench.model().weights().adapters) {
    const Random random({.seed = kSeed, .stream = static_cast<uint64_t>(tensor.tensor.value())});
    std::vector<float> values;
    for (int64_t i = 0; i < tensor.elements; ++i) {
      values.push_back(static_cast<float>(0.3 * random.Normal(static_cast<uint64_t>(i))));
    }
    ASSERT_THAT(bench.store().WriteState(StateKind::kParameter, tensor.tensor, 0,
                                         std::as_bytes(std::span(values))),
                IsOk());
  }
}

struct Outcome {
  Gradients gradients;  // of adapters
  double loss = 0.0;
};

// One step over these batches.
Outcome RunStep(const DecoderConfig& config, const LoraConfig& lora,
                const TestBench::Options& options, const std::vector<TokenBatch>& batches) {
  DecoderBench bench(config, options, {.lora = lora});
  SealWithValues(bench);
  bench.BeginStep({.learning_rate = 0.0}, static_cast<int64_t>(batches.size()));
  Outcome outcome;
  for (const TokenBatch& batch : batches) {
    EXPECT_THAT(bench.recording().BeginMicroBatch(), IsOk());
    const auto loss = bench.model().ForwardBackward(batch, 0.1);
    EXPECT_THAT(loss, IsOk());
    outcome.loss += loss->loss_sum;
  }
  for (const RegisteredTensor& tensor : bench.model().weights().adapters) {
    const auto gradient = bench.store().Gradient(tensor.tensor);
    EXPECT_THAT(gradient, IsOk());
    outcome.gradients[tensor.name] = *gradient;
  }
  bench.EndStep();
  return outcome;
}

TEST(DecoderLoraTest, RecomputationAndThreadsChangeNoBit) {
  const DecoderConfig plain = TinyLlamaConfig();
  DecoderConfig recompute = plain;
  recompute.recompute = Recompute::kLayer;
  const RandomBatch batch(plain, 2, 7, 1);
  for (const double dropout : {0.0, 0.3}) {
    const Outcome expected = RunStep(plain, Lora(dropout), {}, {batch.view()});
    EXPECT_EQ(RunStep(recompute, Lora(dropout), {}, {batch.view()}).gradients, expected.gradients);
    EXPECT_EQ(RunStep(plain, Lora(dropout), {.threads = 1}, {batch.view()}).gradients,
              expected.gradients);
  }
}

TEST(DecoderLoraTest, MicroBatchesDropWhatTheLargeBatchDrops) {
  const DecoderConfig config = TinyLlamaConfig();
  const RandomBatch whole(config, 4, 5, kSeed);
  std::vector<TokenBatch> parts;
  for (int64_t i = 0; i < 4; ++i) {
    parts.push_back({.sequences = 1,
                     .length = 5,
                     .tokens = std::span(whole.tokens).subspan(static_cast<size_t>(5 * i), 5),
                     .targets = std::span(whole.targets).subspan(static_cast<size_t>(5 * i), 5),
                     .first_sequence = i});
  }
  const Outcome expected = RunStep(config, Lora(0.3), {}, {whole.view()});
  const Outcome actual = RunStep(config, Lora(0.3), {}, parts);
  EXPECT_NEAR(actual.loss, expected.loss, 1e-5 * expected.loss);
  EXPECT_LT(RelativeDistance(actual.gradients, expected.gradients), 1e-6);
}

TEST(DecoderLoraTest, StepsAndSeedsDropOtherElements) {
  const DecoderConfig config = TinyLlamaConfig();
  const RandomBatch batch(config, 2, 7, 1);
  const double none = RunStep(config, Lora(0.0), {}, {batch.view()}).loss;
  const double first = RunStep(config, Lora(0.3), {}, {batch.view()}).loss;
  TokenBatch next = batch.view();
  next.step = 1;
  LoraConfig other = Lora(0.3);
  other.seed = 6;
  EXPECT_NE(first, none);
  EXPECT_NE(RunStep(config, Lora(0.3), {}, {next}).loss, first);
  EXPECT_NE(RunStep(config, other, {}, {batch.view()}).loss, first);
  EXPECT_EQ(RunStep(config, Lora(0.3), {}, {batch.view()}).loss, first);
}

TEST(DecoderLoraTest, DryRunMakesTheEventsOfRealStepsAndTheBaseIsNeverReady) {
  const DecoderConfig config = TinyLlamaConfig();
  DecoderBench bench(config, {}, {.lora = Lora(0.3)});
  const RandomBatch batch(config, 2, 5, kSeed);
  const auto events = [&] {
    bench.recording().TakeEvents();
    bench.BeginStep({.learning_rate = 1e-3}, 1);
    bench.MicroBatch(batch, 0.1);
    bench.EndStep();
    return bench.recording().TakeEvents();
  };
  const std::vector<std::string> dry = events();
  SealWithValues(bench);
  EXPECT_EQ(events(), dry);
  int64_t ready = 0;
  for (const std::string& event : dry) ready += event.starts_with("ready") ? 1 : 0;
  EXPECT_EQ(ready, 2 * 4 * 3);  // layers, targets, tensors
}

// A starts uniform, B at zero and magnitudes at the rows' norms: the model computes what its base
// does, and only B's gradient is there, and the magnitude's.
TEST(DecoderLoraTest, FreshAdaptersChangeNothing) {
  const DecoderConfig config = TinyLlamaConfig();
  const RandomBatch batch(config, 2, 5, kSeed);
  DecoderBench base(config, {}, {});
  base.SealWithValues(kSeed);
  base.BeginStep({.learning_rate = 0.0}, 1);
  const double expected = base.MicroBatch(batch, 0.1).loss_sum;
  base.EndStep();
  DecoderBench bench(config, {}, {.lora = Lora(0.0)});
  EXPECT_THAT(bench.model().InitializeAdapters(kSeed),
              StatusIs(absl::StatusCode::kFailedPrecondition, "Seal"));
  ASSERT_THAT(bench.store().Seal(), IsOk());
  // The base's values by name: tensors are numbered otherwise with adapters between them.
  for (size_t i = 0; i < base.model().weights().tensors.size(); ++i) {
    const RegisteredTensor& from = base.model().weights().tensors[i];
    std::vector<std::byte> bytes(static_cast<size_t>(from.elements * 4));
    ASSERT_THAT(base.store().ReadState(StateKind::kParameter, from.tensor, 0, bytes), IsOk());
    ASSERT_THAT(bench.store().WriteState(StateKind::kParameter,
                                         bench.model().weights().tensors[i].tensor, 0, bytes),
                IsOk());
  }
  ASSERT_THAT(bench.model().InitializeAdapters(kSeed), IsOk());
  for (const RegisteredTensor& tensor : bench.model().weights().adapters) {
    std::vector<float> values(static_cast<size_t>(tensor.elements));
    ASSERT_THAT(bench.store().ReadState(StateKind::kParameter, tensor.tensor, 0,
                                        std::as_writable_bytes(std::span(values))),
                IsOk());
    const double bound = 1.0 / std::sqrt(static_cast<double>(tensor.shape.back()));
    double largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(double{value}));
    if (tensor.name.ends_with("lora_A.weight")) {
      EXPECT_LE(largest, bound) << tensor.name;
      EXPECT_GT(largest, 0.7 * bound) << tensor.name;
    } else if (tensor.name.ends_with("lora_B.weight")) {
      EXPECT_EQ(largest, 0.0) << tensor.name;
    }
  }
  bench.BeginStep({.learning_rate = 0.0}, 1);
  EXPECT_NEAR(bench.MicroBatch(batch, 0.1).loss_sum, expected, 1e-5 * expected);
  for (const RegisteredTensor& tensor : bench.model().weights().adapters) {
    const auto gradient = bench.store().Gradient(tensor.tensor);
    ASSERT_THAT(gradient, IsOk());
    double sum = 0;
    for (const float value : *gradient) sum += std::abs(double{value});
    EXPECT_EQ(sum > 0.0, !tensor.name.ends_with("lora_A.weight")) << tensor.name;
  }
  bench.EndStep();
}

TEST(DecoderLoraTest, BadSettingsAreErrors) {
  TestBench bench({});
  LoraConfig bad = Lora(0.0);
  bad.targets = {"no_such_proj"};
  EXPECT_THAT(DecoderModel::Create(bench.context(), TinyLlamaConfig(), {.lora = bad}),
              StatusIs(absl::StatusCode::kInvalidArgument, "no_such_proj"));
  bad = Lora(1.0);
  EXPECT_THAT(DecoderModel::Create(bench.context(), TinyLlamaConfig(), {.lora = bad}),
              StatusIs(absl::StatusCode::kInvalidArgument, "dropout"));
  DecoderBench good(TinyLlamaConfig(), {}, {.lora = Lora(0.0)});
  good.SealWithValues(kSeed);
  good.BeginStep({.learning_rate = 0.0}, 1);
  ASSERT_THAT(good.recording().BeginMicroBatch(), IsOk());
  const RandomBatch batch(TinyLlamaConfig(), 1, 5, kSeed);
  TokenBatch negative = batch.view();
  negative.step = -1;
  EXPECT_THAT(good.model().ForwardBackward(negative, 1.0),
              StatusIs(absl::StatusCode::kInvalidArgument, "step -1"));
  negative = batch.view();
  negative.first_sequence = -2;
  EXPECT_THAT(good.model().ForwardBackward(negative, 1.0),
              StatusIs(absl::StatusCode::kInvalidArgument, "behind -2 sequences"));
}

}  // namespace
}  // namespace gantry
