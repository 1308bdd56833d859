#include "trainer/models/llama_config.h"

#include <functional>
#include <limits>
#include <string>

#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

LlamaConfig GoodConfig() {
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
  std::function<void(LlamaConfig&)> change;
};

TEST(LlamaConfigTest, AcceptsGoodConfigs) {
  EXPECT_THAT(ValidateLlamaConfig(GoodConfig()), IsOk());
  LlamaConfig config = GoodConfig();
  config.rope_scaling = Llama3RopeScaling{.factor = 8,
                                          .low_frequency_factor = 1,
                                          .high_frequency_factor = 4,
                                          .original_positions = 8192};
  config.vocabulary = kLlamaExtentMax;
  EXPECT_THAT(ValidateLlamaConfig(config), IsOk());
}

TEST(LlamaConfigTest, NamesTheBadField) {
  const Llama3RopeScaling scaling{.factor = 8,
                                  .low_frequency_factor = 1,
                                  .high_frequency_factor = 4,
                                  .original_positions = 8192};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const BadConfig cases[] = {
      {"layers", [](LlamaConfig& c) { c.layers = 0; }},
      {"width", [](LlamaConfig& c) { c.width = -1; }},
      {"heads", [](LlamaConfig& c) { c.heads = 0; }},
      {"kv_heads", [](LlamaConfig& c) { c.kv_heads = 0; }},
      {"head_dim", [](LlamaConfig& c) { c.head_dim = 0; }},
      {"ffn_width", [](LlamaConfig& c) { c.ffn_width = 0; }},
      {"vocabulary", [](LlamaConfig& c) { c.vocabulary = kLlamaExtentMax + 1; }},
      {"max_sequence", [](LlamaConfig& c) { c.max_sequence = 0; }},
      {"multiple of kv_heads (3)", [](LlamaConfig& c) { c.kv_heads = 3; }},
      {"even", [](LlamaConfig& c) { c.head_dim = 5; }},
      {"rope_theta", [](LlamaConfig& c) { c.rope_theta = 0; }},
      {"norm_epsilon", [nan](LlamaConfig& c) { c.norm_epsilon = nan; }},
      {"f16", [](LlamaConfig& c) { c.parameter_dtype = DType::kF16; }},
      {"rope_scaling.factor",
       [scaling](LlamaConfig& c) {
         c.rope_scaling = scaling;
         c.rope_scaling->factor = 0;
       }},
      {"rope_scaling.high_frequency_factor",
       [scaling](LlamaConfig& c) {
         c.rope_scaling = scaling;
         c.rope_scaling->high_frequency_factor = 1;
       }},
  };
  for (const BadConfig& bad : cases) {
    LlamaConfig config = GoodConfig();
    bad.change(config);
    EXPECT_THAT(ValidateLlamaConfig(config),
                StatusIs(absl::StatusCode::kInvalidArgument, bad.message));
  }
}

}  // namespace
}  // namespace gantry
