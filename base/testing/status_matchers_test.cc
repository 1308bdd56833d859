#include "base/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gantry {
namespace {

using absl::StatusCode;
using ::testing::Gt;
using ::testing::Not;
using ::testing::Pointee;
using ::testing::StartsWith;

TEST(StatusMatchersTest, IsOkTellsOkFromErrorInBothTypes) {
  EXPECT_THAT(absl::OkStatus(), IsOk());
  EXPECT_THAT(absl::StatusOr<int>(3), IsOk());
  EXPECT_THAT(absl::InternalError("x"), Not(IsOk()));
  EXPECT_THAT(absl::StatusOr<int>(absl::InternalError("x")), Not(IsOk()));
}

TEST(StatusMatchersTest, StatusIsComparesTheCode) {
  EXPECT_THAT(absl::NotFoundError("x"), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(absl::NotFoundError("x"), Not(StatusIs(StatusCode::kInternal)));
  EXPECT_THAT(absl::OkStatus(), Not(StatusIs(StatusCode::kInternal)));
  EXPECT_THAT(absl::StatusOr<int>(absl::NotFoundError("x")), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(absl::StatusOr<int>(3), Not(StatusIs(StatusCode::kNotFound)));
}

TEST(StatusMatchersTest, StatusIsComparesTheMessage) {
  const absl::Status status = absl::NotFoundError("no file 'a'");
  EXPECT_THAT(status, StatusIs(StatusCode::kNotFound, "file"));
  EXPECT_THAT(status, StatusIs(StatusCode::kNotFound, StartsWith("no file")));
  EXPECT_THAT(status, Not(StatusIs(StatusCode::kNotFound, "fill")));
  EXPECT_THAT(status, Not(StatusIs(StatusCode::kInternal, "file")));
  EXPECT_THAT(status, Not(StatusIs(StatusCode::kNotFound, StartsWith("file"))));
}

TEST(StatusMatchersTest, IsOkAndHoldsComparesTheValue) {
  const absl::StatusOr<int> result = 3;
  EXPECT_THAT(result, IsOkAndHolds(3));
  EXPECT_THAT(result, IsOkAndHolds(Gt(2)));
  EXPECT_THAT(result, Not(IsOkAndHolds(4)));
  EXPECT_THAT(absl::StatusOr<int>(absl::InternalError("x")), Not(IsOkAndHolds(3)));
  EXPECT_THAT(absl::StatusOr<std::string>("abc"), IsOkAndHolds("abc"));
  EXPECT_THAT(absl::StatusOr<std::unique_ptr<int>>(std::make_unique<int>(5)),
              IsOkAndHolds(Pointee(5)));
}

TEST(StatusMatchersTest, MismatchesShowTheWholeStatus) {
  ::testing::StringMatchResultListener listener;
  const ::testing::Matcher<absl::Status> matcher = StatusIs(StatusCode::kInternal, "abc");
  EXPECT_FALSE(matcher.MatchAndExplain(absl::NotFoundError("no file"), &listener));
  EXPECT_EQ(listener.str(), "whose status is NOT_FOUND: no file");
  EXPECT_EQ(::testing::DescribeMatcher<absl::Status>(matcher),
            "has code INTERNAL and a message that has substring \"abc\"");
}

}  // namespace
}  // namespace gantry
