#include "chunk/optimizer_states.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <vector>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"
#include "chunk/block.h"

namespace gantry {
namespace {

using Code = absl::StatusCode;

constexpr OptimizerKind kKinds[] = {OptimizerKind::kAdamW, OptimizerKind::kAdam,
                                    OptimizerKind::kSgd, OptimizerKind::kLion,
                                    OptimizerKind::kAdafactor};
constexpr StateFormat kFormats[] = {StateFormat::kF32, StateFormat::kSplitMaster,
                                    StateFormat::kEightBit};

TEST(OptimizerStatesTest, NamesComeBack) {
  for (const OptimizerKind kind : kKinds) {
    const auto parsed = ParseOptimizerKind(Name(kind));
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(*parsed, kind);
  }
  for (const StateFormat format : kFormats) {
    const auto parsed = ParseStateFormat(Name(format));
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(*parsed, format);
  }
  std::ostringstream out;
  out << OptimizerKind::kLion << " " << StateFormat::kEightBit;
  EXPECT_EQ(out.str(), "lion eight_bit");
}

TEST(OptimizerStatesTest, UnknownNamesAreRefusedWithTheKnownOnes) {
  for (const char* name : {"", "AdamW", "adam2"}) {
    EXPECT_THAT(ParseOptimizerKind(name), StatusIs(Code::kInvalidArgument, "adamw, adam, sgd"));
  }
  EXPECT_THAT(ParseStateFormat("8bit"), StatusIs(Code::kInvalidArgument, "f32, split_master"));
}

TEST(OptimizerStatesTest, KindsHaveTheirStates) {
  const OptimizerStates both{.momentum = true, .variance = true};
  const OptimizerStates momentum{.momentum = true, .variance = false};
  const OptimizerStates neither{.momentum = false, .variance = false};
  EXPECT_EQ(StatesOf(OptimizerKind::kAdamW), both);
  EXPECT_EQ(StatesOf(OptimizerKind::kAdam), both);
  EXPECT_EQ(StatesOf(OptimizerKind::kSgd), momentum);
  EXPECT_EQ(StatesOf(OptimizerKind::kLion), momentum);
  EXPECT_EQ(StatesOf(OptimizerKind::kAdafactor), neither);
}

TEST(OptimizerStatesTest, FormatsNeedWhatTheyKeep) {
  for (const OptimizerKind kind : kKinds) {
    for (const StateFormat format : kFormats) {
      const absl::Status status = CheckSupported(kind, format);
      if (format == StateFormat::kEightBit && kind == OptimizerKind::kAdafactor) {
        EXPECT_THAT(status, StatusIs(Code::kInvalidArgument, "moments"));
      } else if (format == StateFormat::kSplitMaster && !StatesOf(kind).variance) {
        EXPECT_THAT(status, StatusIs(Code::kInvalidArgument, "variance")) << kind;
      } else {
        EXPECT_THAT(status, IsOk()) << kind << " " << format;
      }
    }
  }
}

TEST(OptimizerStatesTest, MatricesHaveFactorsByRowAndColumn) {
  using Shape = std::vector<int64_t>;
  const auto factors = [](const Shape& shape) { return FactorsOf(shape); };
  EXPECT_EQ(factors({}), (FactorCounts{.rows = 0, .columns = 0}));
  EXPECT_EQ(factors({9}), (FactorCounts{.rows = 0, .columns = 0}));
  EXPECT_EQ(factors({1, 1}), (FactorCounts{.rows = 1, .columns = 1}));
  EXPECT_EQ(factors({4, 9}), (FactorCounts{.rows = 4, .columns = 9}));
  EXPECT_EQ(factors({2, 3, 4, 9}), (FactorCounts{.rows = 24, .columns = 54}));
}

TEST(OptimizerStatesTest, OnlyAFactoredVarianceHasNotOneValueAnElement) {
  const std::vector<int64_t> shape = {2, 3, 5};
  for (const OptimizerKind kind : kKinds) {
    EXPECT_EQ(StateElements(StateKind::kMaster, shape, kind), 30);
    EXPECT_EQ(StateElements(StateKind::kVariance, shape, kind),
              kind == OptimizerKind::kAdafactor ? 6 + 10 : 30);
    EXPECT_EQ(StateElements(StateKind::kVariance, std::vector<int64_t>{7}, kind), 7);
    EXPECT_EQ(StateElements(StateKind::kVariance, {}, kind), 1);
  }
}

}  // namespace
}  // namespace gantry
