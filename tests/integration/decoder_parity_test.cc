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
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/strings.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "kernels/matmul.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_generator.h"
#include "trainer/models/families.h"
#include "trainer/models/testing/decoder_bench.h"
#include "trainer/safetensors/reader.h"

namespace gantry {
namespace {

constexpr int64_t kSequences = 2;
constexpr int64_t kLength = 13;
constexpr int64_t kVocabulary = 41;
constexpr int64_t kSteps = 5;

// The optimizer of make_goldens.py.
OptimizerStep Optimizer(int64_t step) {
  return {.learning_rate = 0.01,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-4,
          .weight_decay = 0.1,
          .step = step,
          .max_gradient_norm = 1.0};
}

struct Golden {
  std::string name;
  DecoderConfig config;
};
std::ostream& operator<<(std::ostream& out, const Golden& golden) { return out << golden.name; }

DecoderConfig Common(DecoderFamily family) {
  DecoderConfig config = FamilyDefaults(family);
  config.layers = 2;
  config.width = 20;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 6;
  config.ffn_width = 22;
  config.vocabulary = kVocabulary;
  config.max_sequence = 32;
  config.rope_theta = 100;
  config.norm_epsilon = 1e-6;
  return config;
}

DecoderConfig Gpt2() {
  DecoderConfig config = Common(DecoderFamily::kGpt2);
  config.kv_heads = 4;
  config.head_dim = 5;
  config.ffn_width = 26;
  config.positions = 17;
  config.max_sequence = 17;
  config.norm_epsilon = 1e-5;
  return config;
}

// The settings of the config.json in each file's metadata.
std::vector<Golden> Goldens() {
  DecoderConfig gpt2_untied = Gpt2();
  gpt2_untied.activation = ActivationKind::kGelu;
  gpt2_untied.tie_embeddings = false;
  DecoderConfig llama = Common(DecoderFamily::kLlama);
  llama.rope_theta = 500;
  llama.rope_scaling = {.kind = RopeScalingKind::kLlama3, .factor = 8, .original_positions = 32};
  DecoderConfig biases = Common(DecoderFamily::kLlama);
  biases.head_dim = 4;
  biases.tie_embeddings = true;
  biases.query_key_value_bias = true;
  biases.attention_output_bias = true;
  biases.mlp_bias = true;
  biases.norm_epsilon = 1e-5;
  biases.rope_scaling = {.kind = RopeScalingKind::kYarn, .factor = 4, .original_positions = 16};
  DecoderConfig dynamic = Common(DecoderFamily::kLlama);
  dynamic.tie_embeddings = true;
  dynamic.rope_scaling = {.kind = RopeScalingKind::kDynamic, .factor = 2, .original_positions = 8};
  DecoderConfig mistral = Common(DecoderFamily::kMistral);
  mistral.windows = {5, 5};
  DecoderConfig qwen2 = Common(DecoderFamily::kQwen2);
  qwen2.width = 16;
  qwen2.head_dim = 4;
  qwen2.windows = {0, 4};
  qwen2.tie_embeddings = true;
  DecoderConfig qwen3 = Common(DecoderFamily::kQwen3);
  qwen3.head_dim = 8;
  qwen3.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 2};
  return {{"gpt2", Gpt2()},           {"gpt2_untied", gpt2_untied},
          {"llama", llama},           {"llama_biases", biases},
          {"llama_dynamic", dynamic}, {"mistral", mistral},
          {"qwen2", qwen2},           {"qwen3", qwen3}};
}

using Values = std::vector<double>;

double Norm(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// The norm of a - b.
double Difference(const Values& a, const Values& b) {
  GANTRY_CHECK_EQ(a.size(), b.size());
  Values difference = a;
  for (size_t i = 0; i < a.size(); ++i) difference[i] -= b[i];
  return Norm(difference);
}

double Distance(const Values& actual, const Values& golden) {
  return Difference(actual, golden) / Norm(golden);
}

// The log-softmax of rows of the vocabulary.
Values LogSoftmax(Values logits) {
  for (size_t row = 0; row < logits.size(); row += kVocabulary) {
    double sum = 0;
    for (size_t v = 0; v < kVocabulary; ++v) sum += std::exp(logits[row + v]);
    for (size_t v = 0; v < kVocabulary; ++v) logits[row + v] -= std::log(sum);
  }
  return logits;
}

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name)
      : reader_(Open(&files_, StrCat("trainer/models/testdata/", name, ".safetensors"))) {}

  template <typename T>
  std::vector<T> Read(const std::string& name) const {
    const StoredTensor* tensor = reader_.Find(name);
    GANTRY_CHECK(tensor != nullptr) << name;
    std::vector<T> values(static_cast<size_t>(tensor->bytes) / sizeof(T));
    GANTRY_CHECK_OK(reader_.ReadInto(*tensor, 0, std::as_writable_bytes(std::span(values))));
    return values;
  }
  Values Floats(const std::string& name) const {
    const std::vector<float> values = Read<float>(name);
    return {values.begin(), values.end()};
  }
  // A parameter's values as they are in memory.
  Values OfParameter(const std::string& kind, const DecoderTensor& tensor) const {
    Values stored = Floats(StrCat(kind, "/", tensor.name));
    GANTRY_CHECK_EQ(static_cast<int64_t>(stored.size()), tensor.elements());
    if (!tensor.stored_transposed) return stored;
    Values values;
    const auto rows = static_cast<size_t>(tensor.shape[0]);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = row; i < stored.size(); i += rows) values.push_back(stored[i]);
    }
    return values;
  }
  int64_t parameters() const {
    return std::ranges::count_if(reader_.tensors(), [](const StoredTensor& tensor) {
      return tensor.name.starts_with("weights/");
    });
  }

 private:
  static SafetensorsReader Open(FileCalls* files, const std::string& path) {
    auto reader = SafetensorsReader::Open(files, path);
    GANTRY_CHECK_OK(reader.status());
    return *std::move(reader);
  }

  PosixFileCalls files_;
  SafetensorsReader reader_;
};

void Write(ParameterStore& store, TensorId id, DType dtype, const Values& values) {
  const std::vector<float> f32(values.begin(), values.end());
  const std::vector<BFloat16> bf16(f32.begin(), f32.end());
  const auto bytes =
      dtype == DType::kF32 ? std::as_bytes(std::span(f32)) : std::as_bytes(std::span(bf16));
  GANTRY_CHECK_OK(store.WriteState(StateKind::kParameter, id, 0, bytes));
}

// A model over an engine with little memory, with the golden weights.
class EngineRun {
 public:
  EngineRun(const Golden& golden, const GoldenFile& file, DType dtype)
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
    GANTRY_CHECK_OK(engine_->BeginStep({.micro_batches = 1, .optimizer = Optimizer(step)}));
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
      Write(*engine_, IdOf(tensor), dtype_, file_.OfParameter("weights", tensor));
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
std::map<std::string, Values> GradientsOf(const Golden& golden, const GoldenFile& file,
                                          DType dtype) {
  DecoderConfig config = golden.config;
  config.parameter_dtype = dtype;
  DecoderBench bench(config, {.compute_dtype = dtype}, {});
  GANTRY_CHECK_OK(bench.store().Seal());
  const std::vector<DecoderTensor> tensors = DecoderTensors(config);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const RegisteredTensor& registered = bench.model().weights().tensors[i];
    GANTRY_CHECK_EQ(registered.name, tensors[i].name);
    Write(bench.store(), registered.tensor, dtype, file.OfParameter("weights", tensors[i]));
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

class DecoderParityTest : public ::testing::TestWithParam<Golden> {
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
  EXPECT_EQ(file_.parameters(), static_cast<int64_t>(tensors_.size()));
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
  for (int64_t step = 1; step <= kSteps; ++step) run.Step(step);
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

INSTANTIATE_TEST_SUITE_P(Models, DecoderParityTest, ::testing::ValuesIn(Goldens()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gantry
