// Frequencies and magnitudes against those of transformers 5.24: the numbers below are what its
// ROPE_INIT_FUNCTIONS return, in float, for the settings beside them.
#include "trainer/models/rotary.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

struct Golden {
  Rotary rotary;
  int64_t tokens;
  std::vector<double> frequencies;
  double magnitude;
};

Rotary Yarn() {
  return {.theta = 10000,
          .head_dim = 16,
          .scaling = {.kind = RopeScalingKind::kYarn, .factor = 4, .original_positions = 512}};
}

Rotary Dynamic() {
  return {.theta = 100,
          .head_dim = 8,
          .scaling = {.kind = RopeScalingKind::kDynamic, .factor = 2, .original_positions = 64}};
}

Rotary LongRope() {
  return {.theta = 100,
          .head_dim = 8,
          .scaling = {.kind = RopeScalingKind::kLongRope,
                      .factor = 4,
                      .original_positions = 64,
                      .short_factors = {1.0, 1.5, 2.0, 2.5},
                      .long_factors = {1.0, 3.0, 5.0, 8.0}}};
}

std::vector<Golden> Goldens() {
  const Rotary linear{
      .theta = 100, .head_dim = 8, .scaling = {.kind = RopeScalingKind::kLinear, .factor = 2.5}};
  const Rotary llama3{
      .theta = 10000,
      .head_dim = 16,
      .scaling = {.kind = RopeScalingKind::kLlama3, .factor = 8, .original_positions = 256}};
  Rotary yarn_scaled = Yarn();
  yarn_scaled.scaling.mscale = 0.7;
  yarn_scaled.scaling.mscale_all_dim = 1.1;
  yarn_scaled.scaling.beta_fast = 16;
  yarn_scaled.scaling.beta_slow = 2;
  yarn_scaled.scaling.truncate = false;
  Rotary yarn_factor = Yarn();
  yarn_factor.scaling.attention_factor = 1.25;
  const std::vector<double> yarn = {1.0,           0.25693506,     0.0625,         0.0138349654,
                                    0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05};
  return {
      {linear, 10, {0.400000006, 0.1264911, 0.0399999991, 0.0126491114}, 1.0},
      {Dynamic(), 10, {1.0, 0.316227764, 0.100000001, 0.0316227786}, 1.0},
      {Dynamic(), 64, {1.0, 0.316227764, 0.100000001, 0.0316227786}, 1.0},
      {Dynamic(), 100, {1.0, 0.245968983, 0.060500741, 0.0148813063}, 1.0},
      {Dynamic(), 200, {1.0, 0.181947827, 0.0331050158, 0.00602338603}, 1.0},
      {llama3,
       10,
       {1.0, 0.316227764, 0.100000001, 0.00661310693, 0.00124999997, 0.000395284733, 0.000125000006,
        3.95284733e-05},
       1.0},
      {Yarn(), 10, yarn, 1.138629436111989},
      {yarn_scaled,
       10,
       {1.0, 0.316227764, 0.0756644011, 0.0107961092, 0.00249999994, 0.000790569466, 0.000250000012,
        7.90569466e-05},
       0.9518853439550599},
      {yarn_factor, 10, yarn, 1.25},
      {LongRope(), 64, {1.0, 0.210818499, 0.0500000007, 0.0126491114}, 1.1547005383792517},
      {LongRope(), 65, {1.0, 0.10540925, 0.0199999996, 0.00395284733}, 1.1547005383792517},
  };
}

TEST(RotaryTest, FrequenciesAreThoseOfTransformers) {
  for (const Golden& golden : Goldens()) {
    SCOPED_TRACE(std::string(Name(golden.rotary.scaling.kind)));
    ASSERT_THAT(ValidateRotary(golden.rotary), IsOk());
    const std::vector<double> frequencies = RotaryFrequencies(golden.rotary, golden.tokens);
    ASSERT_EQ(frequencies.size(), golden.frequencies.size());
    for (size_t i = 0; i < frequencies.size(); ++i) {
      EXPECT_NEAR(frequencies[i] / golden.frequencies[i], 1.0, 3e-7) << i;
    }
    EXPECT_NEAR(RotaryMagnitude(golden.rotary.scaling), golden.magnitude, 1e-12);
  }
}

TEST(RotaryTest, Llama3KeepsShortWavelengthsStretchesLongOnesAndBlendsBetween) {
  const double pi = std::numbers::pi;
  // theta is chosen so that the wavelengths are 2 pi (below 8192 / 4) and 10000 (above 8192 / 1).
  const RopeScaling scaling = {
      .kind = RopeScalingKind::kLlama3, .factor = 8, .original_positions = 8192};
  const double theta = std::pow(10000 / (2 * pi), 2);
  std::vector<double> frequencies =
      RotaryFrequencies({.theta = theta, .head_dim = 4, .scaling = scaling}, 1);
  EXPECT_DOUBLE_EQ(frequencies[0], 1.0);
  EXPECT_NEAR(frequencies[1], 2 * pi / 10000 / 8, 1e-17);
  // A wavelength of 4096: smooth = 1 / 3.
  frequencies = RotaryFrequencies(
      {.theta = std::pow(4096 / (2 * pi), 2), .head_dim = 4, .scaling = scaling}, 1);
  EXPECT_NEAR(frequencies[1], 2 * pi / 4096 * ((2.0 / 3) / 8 + 1.0 / 3), 1e-17);
}

TEST(RotaryTest, OnlySomeKindsDependOnTheLength) {
  for (const Golden& golden : Goldens()) {
    const bool depends =
        RotaryFrequencies(golden.rotary, 1) != RotaryFrequencies(golden.rotary, 1000);
    EXPECT_EQ(DependsOnLength(golden.rotary.scaling), depends) << golden.rotary.scaling.kind;
  }
}

struct BadRotary {
  const char* message;
  Rotary rotary;
  std::function<void(Rotary&)> change;
};

TEST(RotaryTest, NamesTheBadField) {
  const double infinity = std::numeric_limits<double>::infinity();
  Rotary llama3 = Yarn();
  llama3.scaling.kind = RopeScalingKind::kLlama3;
  const BadRotary cases[] = {
      {"rope_theta", Yarn(), [](Rotary& r) { r.theta = 0; }},
      {"even", Yarn(), [](Rotary& r) { r.head_dim = 15; }},
      {"rope_scaling.factor", Yarn(), [](Rotary& r) { r.scaling.factor = 0; }},
      {"rope_scaling.original_positions", Yarn(),
       [](Rotary& r) { r.scaling.original_positions = 0; }},
      {"rope_scaling.beta_fast", Yarn(), [](Rotary& r) { r.scaling.beta_fast = -1; }},
      {"rope_scaling.beta_slow", Yarn(), [](Rotary& r) { r.scaling.beta_slow = 0; }},
      {"rope_scaling.mscale", Yarn(), [infinity](Rotary& r) { r.scaling.mscale = infinity; }},
      {"rope_scaling.attention_factor", Yarn(), [](Rotary& r) { r.scaling.attention_factor = -1; }},
      {"rope_scaling.low_frequency_factor", llama3,
       [](Rotary& r) { r.scaling.low_frequency_factor = 0; }},
      {"rope_scaling.high_frequency_factor", llama3,
       [](Rotary& r) { r.scaling.high_frequency_factor = 1; }},
      {"factor of at least 1", Dynamic(), [](Rotary& r) { r.scaling.factor = 0.5; }},
      {"head_dim above 2", Dynamic(), [](Rotary& r) { r.head_dim = 2; }},
      {"rope_scaling.short_factors must be 4", LongRope(),
       [](Rotary& r) { r.scaling.short_factors.pop_back(); }},
      {"rope_scaling.long_factors", LongRope(), [](Rotary& r) { r.scaling.long_factors[1] = 0; }},
  };
  for (const BadRotary& bad : cases) {
    Rotary rotary = bad.rotary;
    ASSERT_THAT(ValidateRotary(rotary), IsOk()) << bad.message;
    bad.change(rotary);
    EXPECT_THAT(ValidateRotary(rotary), StatusIs(absl::StatusCode::kInvalidArgument, bad.message));
  }
}

}  // namespace
}  // namespace gantry
