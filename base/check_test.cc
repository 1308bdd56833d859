#include "base/check.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"

namespace gantry {
namespace {

enum class Colour { kRed, kBlue = 7 };

TEST(CheckTest, PassingChecksEvaluateTheirOperandsOnceAndStreamNothing) {
  int evaluated = 0;
  int streamed = 0;
  const auto one = [&] { return ++evaluated; };
  const auto text = [&] {
    ++streamed;
    return "text";
  };
  GANTRY_CHECK(one() == 1) << text();
  GANTRY_CHECK_EQ(one(), 2) << text();
  GANTRY_CHECK_NE(one(), 2) << text();
  GANTRY_CHECK_LT(one(), 5) << text();
  GANTRY_CHECK_LE(one(), 5) << text();
  GANTRY_CHECK_GT(one(), 5) << text();
  GANTRY_CHECK_GE(one(), 7) << text();
  EXPECT_EQ(evaluated, 7);
  EXPECT_EQ(streamed, 0);
}

TEST(CheckTest, CheckOkEvaluatesItsOperandOnce) {
  int evaluated = 0;
  const auto status = [&] {
    ++evaluated;
    return absl::OkStatus();
  };
  GANTRY_CHECK_OK(status());
  EXPECT_EQ(evaluated, 1);
}

TEST(CheckTest, IsOneStatementInAnUnbracedIf) {
  bool other = false;
  // The else must belong to the if, not to something inside the macro.
  // clang-format off
  if (!other)
    GANTRY_CHECK(true) << "never";
  else
    other = true;
  // clang-format on
  EXPECT_FALSE(other);
}

TEST(CheckDeathTest, PrintsPlaceExpressionAndStreamedText) {
  const int block = 17;
  EXPECT_DEATH(GANTRY_CHECK(block < 10) << "block " << block << " of " << std::string("ten"),
               "check_test\\.cc:[0-9]+: check failed: block < 10 block 17 of ten");
}

TEST(CheckDeathTest, ComparisonsPrintBothValues) {
  const int three = 3;
  EXPECT_DEATH(GANTRY_CHECK_EQ(three, 4) << "extra",
               "check failed: three == 4 \\(3 against 4\\) extra");
  EXPECT_DEATH(GANTRY_CHECK_NE(three, 3), "three != 3 \\(3 against 3\\)");
  EXPECT_DEATH(GANTRY_CHECK_LT(three, 3), "three < 3 \\(3 against 3\\)");
  EXPECT_DEATH(GANTRY_CHECK_LE(three, 2), "three <= 2 \\(3 against 2\\)");
  EXPECT_DEATH(GANTRY_CHECK_GT(three, 3), "three > 3 \\(3 against 3\\)");
  EXPECT_DEATH(GANTRY_CHECK_GE(three, 4), "three >= 4 \\(3 against 4\\)");
}

TEST(CheckDeathTest, ScopedEnumsPrintAsNumbers) {
  EXPECT_DEATH(GANTRY_CHECK_EQ(Colour::kRed, Colour::kBlue), "\\(0 against 7\\)");
}

TEST(CheckDeathTest, OperandsKeepTheirPrecedence) {
  const int mask = 6;
  EXPECT_DEATH(GANTRY_CHECK_EQ(mask & 4, 2), "check failed: mask & 4 == 2 \\(4 against 2\\)");
  EXPECT_DEATH(GANTRY_CHECK(mask == 6 ? false : true), "check failed");
}

TEST(CheckDeathTest, CheckOkPrintsTheStatus) {
  EXPECT_DEATH(GANTRY_CHECK_OK(absl::NotFoundError("no slot")), "NOT_FOUND: no slot");
}

#ifdef NDEBUG
TEST(CheckTest, DebugChecksEvaluateNothingInReleaseBuilds) {
  int evaluated = 0;
  const auto fails = [&] { return ++evaluated < 0; };
  GANTRY_DCHECK(fails()) << "text";
  GANTRY_DCHECK_EQ(evaluated, 1);
  GANTRY_DCHECK_LT(evaluated, 0);
  EXPECT_EQ(evaluated, 0);
}
#else
TEST(CheckDeathTest, DebugChecksFailInDebugBuilds) {
  const int three = 3;
  EXPECT_DEATH(GANTRY_DCHECK(three == 4) << "text", "three == 4 text");
  EXPECT_DEATH(GANTRY_DCHECK_EQ(three, 4), "\\(3 against 4\\)");
  EXPECT_DEATH(GANTRY_DCHECK_LT(three, 3), "\\(3 against 3\\)");
}
#endif

}  // namespace
}  // namespace gantry
