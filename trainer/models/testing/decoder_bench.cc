#include "trainer/models/testing/decoder_bench.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/models/families.h"

namespace gantry {
namespace {

template <typename T>
T ValueOrDie(absl::StatusOr<T> result) {
  GANTRY_CHECK_OK(result.status());
  return *std::move(result);
}

}  // namespace

DecoderConfig TinyLlamaConfig() {
  return {.layers = 2,
          .width = 10,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 4,
          .ffn_width = 14,
          .vocabulary = 23,
          .max_sequence = 32,
          .rope_theta = 100.0,
          .norm_epsilon = 1e-3,
          .parameter_dtype = DType::kF32};
}

DecoderConfig TinyDecoderConfig(DecoderFamily family) {
  DecoderConfig config = FamilyDefaults(family);
  config.layers = 2;
  config.width = 10;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.ffn_width = 14;
  config.vocabulary = 23;
  config.max_sequence = 32;
  config.rope_theta = 100.0;
  config.norm_epsilon = 1e-3;
  config.parameter_dtype = DType::kF32;
  switch (family) {
    case DecoderFamily::kGpt2:
      config.positions = 33;
      config.heads = 2;
      config.kv_heads = 2;
      config.head_dim = 5;
      break;
    case DecoderFamily::kLlama:
      config.query_key_value_bias = true;
      config.attention_output_bias = true;
      config.mlp_bias = true;
      config.rope_scaling = {.kind = RopeScalingKind::kYarn, .factor = 2, .original_positions = 16};
      break;
    case DecoderFamily::kMistral:
      config.windows = {3, 3};
      break;
    case DecoderFamily::kQwen2:
      config.windows = {0, 2};
      config.tie_embeddings = true;
      break;
    case DecoderFamily::kQwen3:
      config.head_dim = 6;
      config.rope_scaling = {
          .kind = RopeScalingKind::kDynamic, .factor = 2, .original_positions = 4};
      break;
  }
  return config;
}

RandomBatch::RandomBatch(const DecoderConfig& config, int64_t sequence_count, int64_t token_count,
                         uint64_t seed)
    : sequences(sequence_count), length(token_count) {
  const Random random({.seed = seed, .stream = 99});
  for (int64_t i = 0; i < sequences * length; ++i) {
    const auto index = static_cast<uint64_t>(2 * i);
    tokens.push_back(static_cast<int32_t>(random.Below(config.vocabulary, index)));
    targets.push_back(i % 5 == 4
                          ? kIgnoreTarget
                          : static_cast<int32_t>(random.Below(config.vocabulary, index + 1)));
  }
}

int64_t RandomBatch::valid_tokens() const {
  return std::ranges::count_if(targets, [](int32_t target) { return target != kIgnoreTarget; });
}

DecoderBench::DecoderBench(const DecoderConfig& config, const TestBench::Options& options,
                           const DecoderRegistration& registration)
    : bench_(options),
      recording_(&bench_.store()),
      config_(config),
      model_(
          ValueOrDie(DecoderModel::Create(bench_.ContextOver(&recording_), config, registration))) {
}

void DecoderBench::SealWithValues(uint64_t seed) {
  GANTRY_CHECK_OK(store().Seal());
  for (const RegisteredTensor& tensor : model_->weights().tensors) {
    const Random random({.seed = seed, .stream = static_cast<uint64_t>(tensor.tensor.value())});
    std::vector<float> f32;
    for (int64_t i = 0; i < tensor.elements; ++i) {
      const double center = tensor.initial == Initial::kOnes ? 1.0 : 0.0;
      const double value = center + 0.3 * random.Normal(static_cast<uint64_t>(i));
      f32.push_back(static_cast<float>(RoundTo(DType::kBF16, value)));  // the same in both types
    }
    const std::vector<BFloat16> bf16(f32.begin(), f32.end());
    const auto bytes = config_.parameter_dtype == DType::kF32 ? std::as_bytes(std::span(f32))
                                                              : std::as_bytes(std::span(bf16));
    GANTRY_CHECK_OK(store().WriteState(StateKind::kParameter, tensor.tensor, 0, bytes));
  }
}

void DecoderBench::BeginStep(const OptimizerStep& step, int64_t micro_batches) {
  StepOptions options;
  options.micro_batches = micro_batches;
  options.optimizer = step;
  GANTRY_CHECK_OK(recording_.BeginStep(options));
}

LossSum DecoderBench::MicroBatch(const RandomBatch& batch, double scale) {
  GANTRY_CHECK_OK(recording_.BeginMicroBatch());
  return ValueOrDie(model_->ForwardBackward(batch.view(), scale));
}

StepResult DecoderBench::EndStep() { return ValueOrDie(recording_.EndStep()); }

ReferenceParameters DecoderBench::Parameters() {
  ReferenceParameters parameters;
  for (const RegisteredTensor& tensor : model_->weights().tensors) {
    std::vector<float> f32(static_cast<size_t>(tensor.elements));
    std::vector<BFloat16> bf16(f32.size());
    const auto bytes = config_.parameter_dtype == DType::kF32
                           ? std::as_writable_bytes(std::span(f32))
                           : std::as_writable_bytes(std::span(bf16));
    GANTRY_CHECK_OK(store().ReadState(StateKind::kParameter, tensor.tensor, 0, bytes));
    if (config_.parameter_dtype != DType::kF32) {
      std::ranges::transform(bf16, f32.begin(), [](BFloat16 x) { return static_cast<float>(x); });
    }
    parameters[tensor.name] = std::vector<double>(f32.begin(), f32.end());
  }
  return parameters;
}

std::map<std::string, std::vector<float>> DecoderBench::Gradients() {
  std::map<std::string, std::vector<float>> gradients;
  for (const RegisteredTensor& tensor : model_->weights().tensors) {
    if (store().layout().tensor(tensor.tensor).trainability == Trainability::kFrozen) continue;
    gradients[tensor.name] = ValueOrDie(store().Gradient(tensor.tensor));
  }
  return gradients;
}

double RelativeDistance(const std::map<std::string, std::vector<float>>& a,
                        const std::map<std::string, std::vector<float>>& b) {
  GANTRY_CHECK_EQ(a.size(), b.size());
  double distance = 0;
  double norm = 0;
  for (const auto& [name, values] : b) {
    const std::vector<float>& others = a.at(name);
    GANTRY_CHECK_EQ(others.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      distance += std::pow(double{others[i]} - values[i], 2);
      norm += std::pow(double{values[i]}, 2);
    }
  }
  return std::sqrt(distance / norm);
}

}  // namespace gantry
