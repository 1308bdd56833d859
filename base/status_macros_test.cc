#include "base/status_macros.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using absl::StatusCode;

absl::Status ReturnIfError(const absl::Status& status, int& reached) {
  GANTRY_RETURN_IF_ERROR(status);
  ++reached;
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReturnIfErrorFromStatusOr(const absl::Status& status) {
  GANTRY_RETURN_IF_ERROR(status);
  return "done";
}

absl::StatusOr<int> Sum(const absl::StatusOr<int>& a, const absl::StatusOr<int>& b) {
  GANTRY_ASSIGN_OR_RETURN(const int first, a);
  int second = 0;
  GANTRY_ASSIGN_OR_RETURN(second, b);
  return first + second;
}

absl::Status Take(absl::StatusOr<std::unique_ptr<int>> source, std::unique_ptr<int>& target) {
  GANTRY_ASSIGN_OR_RETURN(target, std::move(source));
  return absl::OkStatus();
}

TEST(StatusMacrosTest, ReturnIfErrorGoesOnWhenOk) {
  int reached = 0;
  EXPECT_THAT(ReturnIfError(absl::OkStatus(), reached), IsOk());
  EXPECT_EQ(reached, 1);
  EXPECT_THAT(ReturnIfErrorFromStatusOr(absl::OkStatus()), IsOkAndHolds("done"));
}

TEST(StatusMacrosTest, ReturnIfErrorReturnsTheWholeStatus) {
  int reached = 0;
  EXPECT_THAT(ReturnIfError(absl::DataLossError("short read"), reached),
              StatusIs(StatusCode::kDataLoss, "short read"));
  EXPECT_EQ(reached, 0);
  EXPECT_THAT(ReturnIfErrorFromStatusOr(absl::DataLossError("short read")),
              StatusIs(StatusCode::kDataLoss, "short read"));
}

TEST(StatusMacrosTest, ReturnIfErrorEvaluatesOnce) {
  int evaluated = 0;
  const auto function = [&]() -> absl::Status {
    GANTRY_RETURN_IF_ERROR((++evaluated, absl::InternalError("x")));
    return absl::OkStatus();
  };
  EXPECT_THAT(function(), StatusIs(StatusCode::kInternal));
  EXPECT_EQ(evaluated, 1);
}

TEST(StatusMacrosTest, ReturnIfErrorIsOneStatement) {
  const auto function = [](int n) -> absl::Status {
    // clang-format off
    if (n == 1)
      GANTRY_RETURN_IF_ERROR(absl::InternalError("one"));
    else
      GANTRY_RETURN_IF_ERROR(absl::NotFoundError("other"));
    // clang-format on
    return absl::OkStatus();
  };
  EXPECT_THAT(function(1), StatusIs(StatusCode::kInternal, "one"));
  EXPECT_THAT(function(2), StatusIs(StatusCode::kNotFound, "other"));
}

TEST(StatusMacrosTest, AssignOrReturnDeclaresAndAssigns) {
  EXPECT_THAT(Sum(3, 4), IsOkAndHolds(7));
}

TEST(StatusMacrosTest, AssignOrReturnReturnsTheFirstError) {
  EXPECT_THAT(Sum(absl::NotFoundError("a"), 4), StatusIs(StatusCode::kNotFound, "a"));
  EXPECT_THAT(Sum(3, absl::InternalError("b")), StatusIs(StatusCode::kInternal, "b"));
  EXPECT_THAT(Sum(absl::NotFoundError("a"), absl::InternalError("b")),
              StatusIs(StatusCode::kNotFound, "a"));
}

TEST(StatusMacrosTest, AssignOrReturnMovesValues) {
  std::unique_ptr<int> target;
  EXPECT_THAT(Take(std::make_unique<int>(5), target), IsOk());
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(*target, 5);
  EXPECT_THAT(Take(absl::InternalError("none"), target), StatusIs(StatusCode::kInternal));
  ASSERT_NE(target, nullptr) << "an error must leave the target alone";
}

}  // namespace
}  // namespace gantry
