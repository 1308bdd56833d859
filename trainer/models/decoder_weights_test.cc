#include "trainer/models/decoder_weights.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/models/testing/decoder_bench.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 31337;

DecoderConfig ThreeLayers() {
  DecoderConfig config = TinyLlamaConfig();
  config.layers = 3;
  return config;
}

TEST(DecoderWeightsTest, RegistersHuggingFaceNames) {
  DecoderBench bench(ThreeLayers(), {}, {});
  bench.SealWithValues(kSeed);
  const ChunkLayout& layout = bench.store().layout();
  EXPECT_EQ(layout.tensor_count(), 3 * 9 + 3);
  const auto expect_shape = [&](const char* name, const std::vector<int64_t>& shape) {
    const auto id = layout.Find(name);
    ASSERT_THAT(id, IsOk());
    EXPECT_EQ(layout.tensor(*id).shape, shape) << name;
    EXPECT_EQ(layout.tensor(*id).name, name);
  };
  expect_shape("model.embed_tokens.weight", {23, 10});
  expect_shape("model.layers.0.input_layernorm.weight", {10});
  expect_shape("model.layers.1.self_attn.q_proj.weight", {16, 10});
  expect_shape("model.layers.2.self_attn.k_proj.weight", {8, 10});
  expect_shape("model.layers.2.self_attn.v_proj.weight", {8, 10});
  expect_shape("model.layers.2.self_attn.o_proj.weight", {10, 16});
  expect_shape("model.layers.0.post_attention_layernorm.weight", {10});
  expect_shape("model.layers.0.mlp.gate_proj.weight", {14, 10});
  expect_shape("model.layers.0.mlp.up_proj.weight", {14, 10});
  expect_shape("model.layers.0.mlp.down_proj.weight", {10, 14});
  expect_shape("model.norm.weight", {10});
  expect_shape("lm_head.weight", {23, 10});
}

TEST(DecoderWeightsTest, TiedHeadsAreOneTensor) {
  DecoderConfig config = ThreeLayers();
  config.tie_embeddings = true;
  DecoderBench bench(config, {}, {});
  bench.SealWithValues(kSeed);
  const ChunkLayout& layout = bench.store().layout();
  EXPECT_EQ(layout.tensor_count(), 3 * 9 + 2);
  EXPECT_EQ(*layout.Find("lm_head.weight"), *layout.Find("model.embed_tokens.weight"));
  EXPECT_EQ(bench.model().weights().head.parameter.tensor,
            bench.model().weights().embedding.parameter.tensor);
}

TEST(DecoderWeightsTest, RegistrationErrorsComeThrough) {
  TestBench bench({});
  ASSERT_THAT(
      bench.store().Register({.name = "model.norm.weight", .shape = {1}, .dtype = DType::kF32}, {}),
      IsOk());
  EXPECT_THAT(RegisterDecoder(bench.store(), ThreeLayers(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "model.norm.weight"));
}

// A step of zero gradients moves a parameter by its decay alone.
TEST(DecoderWeightsTest, OnlyNormsAreNotDecayed) {
  DecoderBench bench(ThreeLayers(), {}, {});
  bench.SealWithValues(kSeed);
  const ReferenceParameters before = bench.Parameters();
  bench.BeginStep({.learning_rate = 0.1, .weight_decay = 0.5}, 1);
  ASSERT_THAT(bench.store().BeginMicroBatch(), IsOk());
  bench.EndStep();
  const ReferenceParameters after = bench.Parameters();
  for (const auto& [name, values] : before) {
    const double factor = name.find("norm") != std::string::npos ? 1.0 : 0.95;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(after.at(name)[i], factor * values[i], 1e-6) << name << " " << i;
    }
  }
}

struct Moments {
  double mean;
  double deviation;
};

Moments MomentsOf(const std::vector<double>& values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(values.size());
  return {.mean = sum / count, .deviation = std::sqrt(squares / count)};
}

TEST(DecoderWeightsTest, InitialValuesHaveTheRightSpread) {
  DecoderConfig config = ThreeLayers();
  config.width = 64;
  config.ffn_width = 200;
  DecoderBench bench(config, {}, {});
  EXPECT_THAT(bench.model().InitializeWeights(kSeed),
              StatusIs(absl::StatusCode::kFailedPrecondition, "Seal"));
  ASSERT_THAT(bench.store().Seal(), IsOk());
  ASSERT_THAT(bench.model().InitializeWeights(kSeed), IsOk());
  for (const auto& [name, values] : bench.Parameters()) {
    const Moments moments = MomentsOf(values);
    if (name.find("norm") != std::string::npos) {
      EXPECT_EQ(values, std::vector<double>(values.size(), 1.0)) << name;
      continue;
    }
    const bool residual =
        name.find("o_proj") != std::string::npos || name.find("down_proj") != std::string::npos;
    const double deviation = residual ? 0.02 / std::sqrt(6.0) : 0.02;
    const double error = 4.0 / std::sqrt(static_cast<double>(values.size()));  // 4 sigma
    EXPECT_NEAR(moments.deviation, deviation, deviation * error) << name;
    EXPECT_NEAR(moments.mean, 0.0, deviation * error) << name;
  }
}

ReferenceParameters Initialized(const DecoderConfig& config, int threads, uint64_t seed) {
  DecoderBench bench(config, {.threads = threads}, {});
  EXPECT_THAT(bench.store().Seal(), IsOk());
  EXPECT_THAT(bench.model().InitializeWeights(seed), IsOk());
  return bench.Parameters();
}

TEST(DecoderWeightsTest, InitialValuesDependOnTheSeedOnly) {
  DecoderConfig config = ThreeLayers();
  config.vocabulary = 3000;
  const ReferenceParameters expected = Initialized(config, 1, kSeed);
  EXPECT_EQ(Initialized(config, 3, kSeed), expected);
  EXPECT_NE(Initialized(config, 1, kSeed + 1), expected);
  EXPECT_NE(expected.at("model.layers.0.mlp.up_proj.weight"),
            expected.at("model.layers.1.mlp.up_proj.weight"));
  config.parameter_dtype = DType::kBF16;
  const ReferenceParameters rounded = Initialized(config, 1, kSeed);
  for (const auto& [name, values] : rounded) {
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], RoundTo(DType::kBF16, expected.at(name)[i])) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace gantry
