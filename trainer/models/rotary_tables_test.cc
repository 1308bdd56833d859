#include "trainer/models/rotary_tables.h"

#include <cmath>

#include "gtest/gtest.h"
#include "trainer/models/families.h"

namespace gantry {
namespace {

DecoderConfig Config(DecoderFamily family) {
  DecoderConfig config = FamilyDefaults(family);
  config.head_dim = 4;
  config.max_sequence = 100;
  config.rope_theta = 100;
  return config;
}

TEST(RotaryTablesTest, OneTableServesAllLengthsWhereFrequenciesAreFixed) {
  RotaryTables tables(Config(DecoderFamily::kLlama));
  const RopeTable* table = tables.For(1);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->positions(), 100);
  EXPECT_EQ(table->head_dim(), 4);
  EXPECT_FLOAT_EQ(table->cos(3)[1], static_cast<float>(std::cos(0.3)));
  EXPECT_EQ(tables.For(100), table);
}

TEST(RotaryTablesTest, LearnedPositionsDoNotRotate) {
  DecoderConfig config = Config(DecoderFamily::kGpt2);
  config.positions = 100;
  EXPECT_EQ(RotaryTables(config).For(5), nullptr);
}

TEST(RotaryTablesTest, MagnitudesScaleTheTable) {
  DecoderConfig config = Config(DecoderFamily::kLlama);
  config.rope_scaling = {.kind = RopeScalingKind::kYarn,
                         .factor = 1,
                         .original_positions = 100,
                         .attention_factor = 1.5};
  EXPECT_FLOAT_EQ(RotaryTables(config).For(1)->cos(3)[1], static_cast<float>(1.5 * std::cos(0.3)));
}

TEST(RotaryTablesTest, LongSequencesHaveTheirOwnTable) {
  DecoderConfig config = Config(DecoderFamily::kLlama);
  config.rope_scaling = {.kind = RopeScalingKind::kDynamic, .factor = 2, .original_positions = 50};
  RotaryTables tables(config);
  EXPECT_FLOAT_EQ(tables.For(50)->cos(3)[1], static_cast<float>(std::cos(0.3)));
  // 2 * 75 / 50 - 1 = 2; the exponent is 4 / 2.
  EXPECT_FLOAT_EQ(tables.For(75)->cos(3)[1], static_cast<float>(std::cos(3 / std::sqrt(400.0))));
  EXPECT_FLOAT_EQ(tables.For(10)->cos(3)[1], static_cast<float>(std::cos(0.3)));
}

}  // namespace
}  // namespace gantry
