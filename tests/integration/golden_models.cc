#include "tests/integration/golden_models.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/strings.h"

namespace gantry {
namespace {

DecoderConfig Common(DecoderFamily family) {
  DecoderConfig config = FamilyDefaults(family);
  config.layers = 2;
  config.width = 20;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 6;
  config.ffn_width = 22;
  config.vocabulary = kGoldenVocabulary;
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

double Norm(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

SafetensorsReader Open(FileCalls* files, const std::string& path) {
  auto reader = SafetensorsReader::Open(files, path);
  GANTRY_CHECK_OK(reader.status());
  return *std::move(reader);
}

}  // namespace

OptimizerStep GoldenOptimizer(int64_t step) {
  return {.learning_rate = 0.01,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-4,
          .weight_decay = 0.1,
          .step = step,
          .max_gradient_norm = 1.0};
}

std::vector<GoldenModel> GoldenModels() {
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

GoldenModel GoldenModelOf(const std::string& name) {
  const std::vector<GoldenModel> models = GoldenModels();
  const auto found = std::ranges::find(models, name, &GoldenModel::name);
  GANTRY_CHECK(found != models.end()) << name;
  return *found;
}

double Difference(const Values& a, const Values& b) {
  GANTRY_CHECK_EQ(a.size(), b.size());
  Values difference = a;
  for (size_t i = 0; i < a.size(); ++i) difference[i] -= b[i];
  return Norm(difference);
}

double Distance(const Values& actual, const Values& golden) {
  return Difference(actual, golden) / Norm(golden);
}

GoldenFile::GoldenFile(const std::string& name)
    : reader_(Open(&files_, StrCat("trainer/models/testdata/", name, ".safetensors"))) {}

Values GoldenFile::OfParameter(const std::string& kind, const DecoderTensor& tensor) const {
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

int64_t GoldenFile::CountOf(const std::string& kind) const {
  return std::ranges::count_if(reader_.tensors(), [&](const StoredTensor& tensor) {
    return tensor.name.starts_with(kind + "/");
  });
}

void WriteValues(ParameterStore& store, const ParameterToWrite& to, const Values& values) {
  const std::vector<float> f32(values.begin(), values.end());
  const std::vector<BFloat16> bf16(f32.begin(), f32.end());
  const auto bytes =
      to.dtype == DType::kF32 ? std::as_bytes(std::span(f32)) : std::as_bytes(std::span(bf16));
  GANTRY_CHECK_OK(store.WriteState(StateKind::kParameter, to.id, 0, bytes));
}

}  // namespace gantry
