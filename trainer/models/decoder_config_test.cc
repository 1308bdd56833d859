#include "trainer/models/decoder_config.h"

#include <functional>
#include <limits>
#include <string>

#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

DecoderConfig GoodConfig() {
  return {.layers = 2,
          .width = 8,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 4,
          .ffn_width = 16,
          .vocabulary = 32,
          .max_sequence = 16};
}

struct BadConfig {
  const char* message;
  std::function<void(DecoderConfig&)> change;
};

TEST(DecoderConfigTest, AcceptsGoodConfigs) {
  EXPECT_THAT(ValidateDecoderConfig(GoodConfig()), IsOk());
  DecoderConfig config = GoodConfig();
  config.rope_scaling = {.kind = RopeScalingKind::kLlama3, .factor = 8, .original_positions = 8192};
  config.vocabulary = kDecoderExtentMax;
  EXPECT_THAT(ValidateDecoderConfig(config), IsOk());
}

TEST(DecoderConfigTest, NamesTheBadField) {
  const RopeScaling scaling = {
      .kind = RopeScalingKind::kLlama3, .factor = 8, .original_positions = 8192};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const BadConfig cases[] = {
      {"layers", [](DecoderConfig& c) { c.layers = 0; }},
      {"width", [](DecoderConfig& c) { c.width = -1; }},
      {"heads", [](DecoderConfig& c) { c.heads = 0; }},
      {"kv_heads", [](DecoderConfig& c) { c.kv_heads = 0; }},
      {"head_dim", [](DecoderConfig& c) { c.head_dim = 0; }},
      {"ffn_width", [](DecoderConfig& c) { c.ffn_width = 0; }},
      {"vocabulary", [](DecoderConfig& c) { c.vocabulary = kDecoderExtentMax + 1; }},
      {"max_sequence", [](DecoderConfig& c) { c.max_sequence = 0; }},
      {"multiple of kv_heads (3)", [](DecoderConfig& c) { c.kv_heads = 3; }},
      {"even", [](DecoderConfig& c) { c.head_dim = 5; }},
      {"rope_theta", [](DecoderConfig& c) { c.rope_theta = 0; }},
      {"norm_epsilon", [nan](DecoderConfig& c) { c.norm_epsilon = nan; }},
      {"norms", [](DecoderConfig& c) { c.norm = NormKind::kLayer; }},
      {"SwiGLU", [](DecoderConfig& c) { c.activation = ActivationKind::kGelu; }},
      {"no query_key_norm", [](DecoderConfig& c) { c.query_key_norm = true; }},
      {"needs query_key_norm", [](DecoderConfig& c) { c.family = DecoderFamily::kQwen3; }},
      {"position table", [](DecoderConfig& c) { c.family = DecoderFamily::kGpt2; }},
      {"positions must be 0", [](DecoderConfig& c) { c.positions = 16; }},
      {"one a layer", [](DecoderConfig& c) { c.windows = {4}; }},
      {"window of layer 1", [](DecoderConfig& c) { c.windows = {4, -1}; }},
      {"rope_scaling.factor",
       [scaling](DecoderConfig& c) {
         c.rope_scaling = scaling;
         c.rope_scaling.factor = 0;
       }},
      {"rope_scaling.high_frequency_factor",
       [scaling](DecoderConfig& c) {
         c.rope_scaling = scaling;
         c.rope_scaling.high_frequency_factor = 1;
       }},
  };
  for (const BadConfig& bad : cases) {
    DecoderConfig config = GoodConfig();
    bad.change(config);
    EXPECT_THAT(ValidateDecoderConfig(config),
                StatusIs(absl::StatusCode::kInvalidArgument, bad.message));
  }
}

}  // namespace
}  // namespace gantry
