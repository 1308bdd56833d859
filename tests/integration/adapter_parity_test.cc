// Adapters against what PyTorch computes from PEFT's formulas, by make_adapter_goldens.py: loss,
// every adapter's gradient, the global norm, five steps of AdamW, and merged weights; and the
// merged model against the adapted one. Measures as in decoder_parity_test.cc, in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "tests/integration/golden_models.h"
#include "trainer/models/decoder.h"
#include "trainer/models/families.h"
#include "trainer/models/lora_config.h"
#include "trainer/models/merged_weight.h"
#include "trainer/models/testing/decoder_bench.h"

namespace gantry {
namespace {

struct AdapterCase {
  std::string name;
  std::string base;
  LoraConfig lora;
};
std::ostream& operator<<(std::ostream& out, const AdapterCase& c) { return out << c.name; }

// The settings in each file's metadata.
std::vector<AdapterCase> Cases() {
  return {{"lora_llama",
           "llama",
           {.rank = 3, .alpha = 6, .targets = {"q_proj", "v_proj", "down_proj"}}},
          {"lora_gpt2",
           "gpt2",
           {.rank = 2, .alpha = 3, .rank_stabilized = true, .targets = {"c_attn", "mlp.c_proj"}}},
          {"dora_llama",
           "llama_biases",
           {.rank = 2, .alpha = 3, .magnitudes = true, .targets = {"all-linear"}}}};
}

class AdapterParityTest : public ::testing::TestWithParam<AdapterCase> {
 protected:
  AdapterParityTest()
      : base_file_(GetParam().base),
        file_(GetParam().name),
        config_(F32(GoldenModelOf(GetParam().base).config)),
        bench_(config_, {}, {.lora = GetParam().lora}),
        batch_(config_, kGoldenSequences, kGoldenLength, 1) {
    const std::vector<double> scalars = file_.Read<double>("scalars");
    loss_ = scalars[0];
    norm_ = scalars[1];
    loss_after_ = scalars[2];
    batch_.tokens = base_file_.Read<int32_t>("tokens");
    batch_.targets = base_file_.Read<int32_t>("targets");
    GANTRY_CHECK_OK(bench_.store().Seal());
    WriteBase(bench_);
    for (const RegisteredTensor& adapter : adapters()) {
      WriteValues(bench_.store(), {adapter.tensor, DType::kF32},
                  file_.Floats("adapters/" + adapter.name));
    }
  }

  static DecoderConfig F32(DecoderConfig config) {
    config.parameter_dtype = DType::kF32;
    return config;
  }
  const std::vector<RegisteredTensor>& adapters() { return bench_.model().weights().adapters; }

  void WriteBase(DecoderBench& bench) const {
    const std::vector<DecoderTensor> tensors = DecoderTensors(config_);
    for (size_t i = 0; i < tensors.size(); ++i) {
      WriteValues(bench.store(), {bench.model().weights().tensors[i].tensor, DType::kF32},
                  base_file_.OfParameter("weights", tensors[i]));
    }
  }
  // The mean loss of a micro-batch, whose gradients are of it.
  double MicroBatch(DecoderBench& bench) {
    const auto valid = static_cast<double>(batch_.valid_tokens());
    return bench.MicroBatch(batch_, 1.0 / valid).loss_sum / valid;
  }
  Values ValuesOf(const RegisteredTensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.elements));
    GANTRY_CHECK_OK(bench_.store().ReadState(StateKind::kParameter, tensor.tensor, 0,
                                             std::as_writable_bytes(std::span(values))));
    return {values.begin(), values.end()};
  }

  GoldenFile base_file_;
  GoldenFile file_;
  DecoderConfig config_;
  DecoderBench bench_;
  RandomBatch batch_;
  double loss_;
  double norm_;
  double loss_after_;
};

TEST_P(AdapterParityTest, TheFileHasExactlyOurAdapters) {
  EXPECT_EQ(file_.CountOf("adapters"), static_cast<int64_t>(adapters().size()));
}

TEST_P(AdapterParityTest, LossNormAndEveryGradient) {
  bench_.BeginStep({.learning_rate = 0}, 1);
  EXPECT_NEAR(MicroBatch(bench_) / loss_, 1.0, 1e-5);
  const std::map<std::string, std::vector<float>> gradients = bench_.Gradients();
  for (const RegisteredTensor& adapter : adapters()) {
    const auto gradient = bench_.store().Gradient(adapter.tensor);
    ASSERT_THAT(gradient, IsOk());
    EXPECT_LT(Distance(Values(gradient->begin(), gradient->end()),
                       file_.Floats("gradients/" + adapter.name)),
              1e-5)
        << adapter.name;
  }
  EXPECT_TRUE(gradients.empty()) << "the base has gradients";
  EXPECT_NEAR(bench_.EndStep().gradient_norm / norm_, 1.0, 1e-5);
}

TEST_P(AdapterParityTest, FiveStepsOfAdamW) {
  const ReferenceParameters base = bench_.Parameters();
  for (int64_t step = 1; step <= kGoldenSteps; ++step) {
    bench_.BeginStep(GoldenOptimizer(step), 1);
    MicroBatch(bench_);
    bench_.EndStep();
  }
  for (const RegisteredTensor& adapter : adapters()) {
    const Values golden = file_.Floats("updated/" + adapter.name);
    const double moved = Difference(golden, file_.Floats("adapters/" + adapter.name));
    EXPECT_GT(moved, 1e-3) << adapter.name;
    EXPECT_LT(Difference(ValuesOf(adapter), golden) / moved, 1e-4) << adapter.name;
  }
  EXPECT_EQ(bench_.Parameters(), base) << "the base has moved";
  bench_.BeginStep({.learning_rate = 0}, 1);
  EXPECT_NEAR(MicroBatch(bench_) / loss_after_, 1.0, 1e-5);
  bench_.EndStep();
}

TEST_P(AdapterParityTest, MergedWeightsAndTheMergedModel) {
  DecoderBench merged(config_, {}, {});
  GANTRY_CHECK_OK(merged.store().Seal());
  const std::vector<DecoderTensor> tensors = DecoderTensors(config_);
  int64_t changed = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = MergedWeight(bench_.model(), tensors[i].name);
    ASSERT_THAT(bytes, IsOk());
    std::vector<float> f32(bytes->size() / sizeof(float));
    std::memcpy(f32.data(), bytes->data(), bytes->size());
    const Values values(f32.begin(), f32.end());
    const bool has_adapter = std::ranges::any_of(adapters(), [&](const RegisteredTensor& adapter) {
      return adapter.name.starts_with(tensors[i].name.substr(0, tensors[i].name.rfind('.')) +
                                      ".lora_");
    });
    if (has_adapter && tensors[i].part == DecoderPart::kWeight) {
      ++changed;
      EXPECT_LT(Distance(values, file_.OfParameter("merged", tensors[i])), 1e-6);
    } else {
      EXPECT_EQ(values, base_file_.OfParameter("weights", tensors[i])) << tensors[i].name;
    }
    WriteValues(merged.store(), {merged.model().weights().tensors[i].tensor, DType::kF32}, values);
  }
  EXPECT_EQ(changed, file_.CountOf("merged"));
  merged.BeginStep({.learning_rate = 0}, 1);
  EXPECT_NEAR(MicroBatch(merged) / loss_, 1.0, 1e-5);
  merged.EndStep();
  EXPECT_THAT(MergedWeight(bench_.model(), "absent"),
              StatusIs(absl::StatusCode::kNotFound, "absent"));
}

INSTANTIATE_TEST_SUITE_P(Adapters, AdapterParityTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gantry
