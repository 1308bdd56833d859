#include "chunk/optimizer_states.h"

#include <gtest/gtest.h>

#include <sstream>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"

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

TEST(OptimizerStatesTest, OnlyKindsWithAVarianceSplitTheirMaster) {
  for (const OptimizerKind kind : kKinds) {
    for (const StateFormat format : kFormats) {
      const absl::Status status = CheckSupported(kind, format);
      if (kind == OptimizerKind::kAdafactor) {
        EXPECT_THAT(status, StatusIs(Code::kInvalidArgument, "factors")) << format;
      } else if (format == StateFormat::kSplitMaster && !StatesOf(kind).variance) {
        EXPECT_THAT(status, StatusIs(Code::kInvalidArgument, "variance")) << kind;
      } else {
        EXPECT_THAT(status, IsOk()) << kind << " " << format;
      }
    }
  }
}

}  // namespace
}  // namespace gantry
