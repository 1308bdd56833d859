// Every family against Transformers: what it computed with tiny random models is in
// trainer/models/testdata, made by make_goldens.py. The models run over an Engine whose device
// holds a fraction of their states, the rest in host memory and files.
//
// Measures. The distance of two vectors is the L2 norm of their difference over the L2 norm of the
// golden one. In f32 the log-probabilities of all tokens, the logits of generation, the gradient of
// every single parameter, the loss and the global norm are within 1e-5; after five steps of AdamW
// every parameter has moved as the golden one did, within 1e-4 of that movement. In bf16
// log-probabilities and gradients are at most 1.5 times as far from the f32 goldens as
// Transformers' own bf16 results are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "kernels/matmul.h"
#include "tests/integration/golden_models.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_generator.h"
#include "trainer/models/families.h"
#include "trainer/models/testing/decoder_bench.h"

namespace gantry {
namespace {

constexpr int64_t kSequences = kGoldenSequences;
constexpr int64_t kLength = kGoldenLength;
constexpr int64_t kVocabulary = kGoldenVocabulary;

// The log-softmax of rows of the vocabulary.
Values LogSoftmax(Values logits) {
  for (size_t row = 0; row < logits.size(); row += kVocabulary) {
    double sum = 0;
    for (size_t v = 0; v < kVocabulary; ++v) sum += std::exp(logits[row + v]);
    for (size_t v = 0; v < kVocabulary; ++v) logits[row + v] -= std::log(sum);
  }
  return logits;
}

// A model over an engine with little memory, with the golden weights.
class EngineRun {
 public:
  EngineRun(const GoldenModel& golden, const GoldenFile& file, DType dtype)
      : config_(golden.config), file_(file), dtype_(dtype) {
    config_.parameter_dtype = dtype;
    Make();
    tokens_ = file.Read<int32_t>("tokens");
    targets_ = file.Read<int32_t>("targets");
    for (const int32_t target : targets_) valid_tokens_ += target >= 0 ? 1 : 0;
    Step(1);  // dry
    Generate(kLength);
    LogProbabilities(targets_);
    GANTRY_CHECK_OK(engine_->Seal());
    WriteWeights();
  }

  TokenBatch batch() const {
    return {.sequences = kSequences, .length = kLength, .tokens = tokens_, .targets = targets_};
  }

  struct StepOutcome {
    double loss;  // mean
    double norm;
  };
  StepOutcome Step(int64_t step) {
    GANTRY_CHECK_OK(engine_->BeginStep({.micro_batches = 1, .optimizer = GoldenOptimizer(step)}));
    GANTRY_CHECK_OK(engine_->BeginMicroBatch());
    const auto valid = static_cast<double>(valid_tokens_);
    const auto sum = model_->ForwardBackward(batch(), 1.0 / valid);
    GANTRY_CHECK_OK(sum.status());
    const auto result = engine_->EndStep();
    GANTRY_CHECK_OK(result.status());
    return {.loss = sum->loss_sum / valid, .norm = result->gradient_norm};
  }

  // [sequences, length] of these targets.
  std::vector<float> LogProbabilities(const std::vector<int32_t>& targets) {
    std::vector<float> values(targets.size());
    TokenBatch scored = batch();
    scored.targets = targets;
    GANTRY_CHECK_OK(
        engine_->BeginStep({.trace_key = "score", .micro_batches = 1, .optimizer = std::nullopt}));
    GANTRY_CHECK_OK(engine_->BeginMicroBatch());
    GANTRY_CHECK_OK(model_->LogProbabilities(scored, values));
    GANTRY_CHECK_OK(engine_->EndStep().status());
    return values;
  }

  // Of every token of the vocabulary, [sequences, length, vocabulary].
  Values AllLogProbabilities() {
    Values all(static_cast<size_t>(kSequences * kLength * kVocabulary));
    for (int32_t v = 0; v < kVocabulary; ++v) {
      const std::vector<float> some = LogProbabilities(std::vector<int32_t>(tokens_.size(), v));
      for (size_t i = 0; i < some.size(); ++i) {
        all[i * kVocabulary + static_cast<size_t>(v)] = some[i];
      }
    }
    return all;
  }

  // The logits behind every `piece` tokens of both sequences, appended side by side:
  // [length / piece, sequences, vocabulary].
  Values Generate(int64_t piece) {
    auto generator = DecoderGenerator::Create(
        model_.get(), {.sequences = kSequences, .capacity = kLength, .step_tokens = 7});
    GANTRY_CHECK_OK(generator.status());
    Values all;
    std::vector<float> logits(static_cast<size_t>(kSequences * kVocabulary));
    for (int64_t first = 0; first < kLength; first += piece) {
      const auto tokens = [&](int64_t sequence) {
        return std::span(tokens_).subspan(static_cast<size_t>(sequence * kLength + first),
                                          static_cast<size_t>(piece));
      };
      const SequenceTokens appended[] = {{.sequence = 0, .tokens = tokens(0)},
                                         {.sequence = 1, .tokens = tokens(1)}};
      GANTRY_CHECK_OK((*generator)->Append(appended, logits));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  // REQUIRES: f32.
  Values Parameter(const DecoderTensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    GANTRY_CHECK_OK(engine_->ReadState(StateKind::kParameter, IdOf(tensor), 0,
                                       std::as_writable_bytes(std::span(values))));
    return {values.begin(), values.end()};
  }

 private:
  void Make() {
    auto team = ThreadTeam::Create({.threads = 2});
    GANTRY_CHECK_OK(team.status());
    team_ = *std::move(team);
    auto matmul = MatMul::Create({});
    GANTRY_CHECK_OK(matmul.status());
    matmul_ = *std::move(matmul);
    auto device = CreateHostDevice({.topology = DeviceTopology::kDiscrete, .clock = &clock_});
    GANTRY_CHECK_OK(device.status());
    device_ = *std::move(device);
    auto engine = Engine::Create({.device = device_.get(),
                                  .team = team_.get(),
                                  .clock = &clock_,
                                  .logger = &logger_,
                                  .files = &files_,
                                  .device_memory = Bytes(2 << 20),
                                  .host_memory = Bytes(1 << 20),
                                  .spill_directories = {::testing::TempDir()},
                                  .chunk_elements = kChunkGranularityElements,
                                  .gradient_dtype = DType::kF32});
    GANTRY_CHECK_OK(engine.status());
    engine_ = *std::move(engine);
    const ExecutionContext context{.store = engine_.get(),
                                   .kernels = {.team = team_.get(), .matmul = matmul_.get()},
                                   .compute_dtype = dtype_};
    auto model = DecoderModel::Create(context, config_, {});
    GANTRY_CHECK_OK(model.status());
    model_ = *std::move(model);
  }

  TensorId IdOf(const DecoderTensor& tensor) const {
    const auto& tensors = model_->weights().tensors;
    const auto found = std::ranges::find(tensors, tensor.name, &RegisteredTensor::name);
    GANTRY_CHECK(found != tensors.end()) << tensor.name;
    return found->tensor;
  }

  void WriteWeights() {
    for (const DecoderTensor& tensor : DecoderTensors(config_)) {
      WriteValues(*engine_, {IdOf(tensor), dtype_}, file_.OfParameter("weights", tensor));
    }
  }

  DecoderConfig config_;
  const GoldenFile& file_;
  DType dtype_;
  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<MatMul> matmul_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<DecoderModel> model_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> targets_;
  int64_t valid_tokens_ = 0;
};

// Every parameter's gradient of the mean loss; a store in plain memory gives them out.
std::map<std::string, Values> GradientsOf(const GoldenModel& golden, const GoldenFile& file,
                                          DType dtype) {
  DecoderConfig config = golden.config;
  config.parameter_dtype = dtype;
  DecoderBench bench(config, {.compute_dtype = dtype}, {});
  GANTRY_CHECK_OK(bench.store().Seal());
  const std::vector<DecoderTensor> tensors = DecoderTensors(config);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const RegisteredTensor& registered = bench.model().weights().tensors[i];
    GANTRY_CHECK_EQ(registered.name, tensors[i].name);
    WriteValues(bench.store(), {registered.tensor, dtype}, file.OfParameter("weights", tensors[i]));
  }
  RandomBatch batch(config, kSequences, kLength, 1);
  batch.tokens = file.Read<int32_t>("tokens");
  batch.targets = file.Read<int32_t>("targets");
  bench.BeginStep({.learning_rate = 0}, 1);
  bench.MicroBatch(batch, 1.0 / static_cast<double>(batch.valid_tokens()));
  std::map<std::string, Values> gradients;
  for (const auto& [name, values] : bench.Gradients()) {
    gradients[name] = Values(values.begin(), values.end());
  }
  bench.EndStep();
  return gradients;
}

class DecoderParityTest : public ::testing::TestWithParam<GoldenModel> {
 protected:
  DecoderParityTest() : file_(GetParam().name), tensors_(DecoderTensors(GetParam().config)) {
    const std::vector<double> scalars = file_.Read<double>("scalars");
    loss_ = scalars[0];
    norm_ = scalars[1];
    bf16_logits_ = scalars[2];
    bf16_gradients_ = scalars[3];
  }
  // Keys that are cached keep the rotation of their time.
  bool RotationDependsOnLength() const { return DependsOnLength(GetParam().config.rope_scaling); }
  Values GoldenLogits() const { return file_.Floats("logits"); }

  GoldenFile file_;
  std::vector<DecoderTensor> tensors_;
  double loss_;
  double norm_;
  double bf16_logits_;
  double bf16_gradients_;
};

TEST_P(DecoderParityTest, TheFileHasExactlyOurParameters) {
  EXPECT_EQ(file_.CountOf("weights"), static_cast<int64_t>(tensors_.size()));
  for (const DecoderTensor& tensor : tensors_) file_.OfParameter("weights", tensor);
}

TEST_P(DecoderParityTest, LogProbabilitiesAndGeneratedLogitsInF32) {
  EngineRun run(GetParam(), file_, DType::kF32);
  const Values logits = GoldenLogits();
  EXPECT_LT(Distance(run.AllLogProbabilities(), LogSoftmax(logits)), 1e-5);
  for (const int64_t piece : {kLength, int64_t{1}}) {
    if (piece < kLength && RotationDependsOnLength()) continue;
    const Values generated = run.Generate(piece);
    Values expected;
    for (int64_t end = piece; end <= kLength; end += piece) {
      for (const int64_t sequence : {0, 1}) {
        const auto row = logits.begin() + (sequence * kLength + end - 1) * kVocabulary;
        expected.insert(expected.end(), row, row + kVocabulary);
      }
    }
    EXPECT_LT(Distance(generated, expected), 1e-5) << piece << " tokens at a time";
  }
}

TEST_P(DecoderParityTest, LossNormAndEveryGradientInF32) {
  const std::map<std::string, Values> gradients = GradientsOf(GetParam(), file_, DType::kF32);
  for (const DecoderTensor& tensor : tensors_) {
    const Values golden = file_.OfParameter("gradients", tensor);
    EXPECT_LT(Distance(gradients.at(tensor.name), golden), 1e-5) << tensor.name;
  }
  EngineRun run(GetParam(), file_, DType::kF32);
  const EngineRun::StepOutcome outcome = run.Step(1);
  EXPECT_NEAR(outcome.loss / loss_, 1.0, 1e-5);
  EXPECT_NEAR(outcome.norm / norm_, 1.0, 1e-5);
}

TEST_P(DecoderParityTest, FiveStepsOfAdamWInF32) {
  EngineRun run(GetParam(), file_, DType::kF32);
  for (int64_t step = 1; step <= kGoldenSteps; ++step) run.Step(step);
  for (const DecoderTensor& tensor : tensors_) {
    const Values before = file_.OfParameter("weights", tensor);
    const Values golden = file_.OfParameter("updated", tensor);
    const double moved = Difference(golden, before);
    EXPECT_GT(moved, 1e-3) << tensor.name;
    EXPECT_LT(Difference(run.Parameter(tensor), golden) / moved, 1e-4) << tensor.name;
  }
}

TEST_P(DecoderParityTest, BF16IsAsCloseAsTransformersIs) {
  EngineRun run(GetParam(), file_, DType::kBF16);
  const Values golden = LogSoftmax(GoldenLogits());
  const double distance = Distance(run.AllLogProbabilities(), golden);
  const std::map<std::string, Values> gradients = GradientsOf(GetParam(), file_, DType::kBF16);
  Values actual_gradients;
  Values golden_gradients;
  for (const DecoderTensor& tensor : tensors_) {
    const Values expected = file_.OfParameter("gradients", tensor);
    const Values& actual = gradients.at(tensor.name);
    actual_gradients.insert(actual_gradients.end(), actual.begin(), actual.end());
    golden_gradients.insert(golden_gradients.end(), expected.begin(), expected.end());
  }
  const double gradient_distance = Distance(actual_gradients, golden_gradients);
  std::printf("%s: logits %.4f (Transformers %.4f), gradients %.4f (%.4f)\n",
              GetParam().name.c_str(), distance, bf16_logits_, gradient_distance, bf16_gradients_);
  EXPECT_LT(distance, 1.5 * bf16_logits_);
  EXPECT_LT(gradient_distance, 1.5 * bf16_gradients_);
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderParityTest, ::testing::ValuesIn(GoldenModels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gantry
