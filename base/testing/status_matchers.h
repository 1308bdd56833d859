// GoogleMock matchers for absl::Status and absl::StatusOr. They own copies of what they compare
// with and hold no other state. In namespace gantry itself: a gantry::testing would hide ::testing.
//
//   EXPECT_THAT(file->Sync(), IsOk());
//   EXPECT_THAT(ParseBytes("-1"), StatusIs(absl::StatusCode::kInvalidArgument, "negative"));
//   EXPECT_THAT(ParseBytes("1KiB"), IsOkAndHolds(Bytes(1024)));
//   ASSERT_THAT(pool, IsOk());   // before *pool
#ifndef GANTRY_BASE_TESTING_STATUS_MATCHERS_H_
#define GANTRY_BASE_TESTING_STATUS_MATCHERS_H_

#include <gmock/gmock.h>

#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gantry {
namespace status_matchers_internal {

// The status in either type.
inline absl::Status StatusOf(const absl::Status& status) { return status; }
template <typename T>
absl::Status StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// Explains a mismatch with the whole status.
void ExplainStatus(const absl::Status& status, ::testing::MatchResultListener& listener);
bool MatchStatus(const absl::Status& status, absl::StatusCode code,
                 const ::testing::Matcher<const std::string&>& message,
                 ::testing::MatchResultListener& listener);
void DescribeStatus(absl::StatusCode code, const ::testing::Matcher<const std::string&>& message,
                    std::ostream& out);

class IsOkMatcher {
 public:
  using is_gtest_matcher = void;
  template <typename T>
  bool MatchAndExplain(const T& value, ::testing::MatchResultListener* listener) const {
    if (!StatusOf(value).ok()) ExplainStatus(StatusOf(value), *listener);
    return StatusOf(value).ok();
  }
  void DescribeTo(std::ostream* out) const { *out << "is OK"; }
  void DescribeNegationTo(std::ostream* out) const { *out << "is not OK"; }
};

class StatusIsMatcher {
 public:
  using is_gtest_matcher = void;
  StatusIsMatcher(absl::StatusCode code, ::testing::Matcher<const std::string&> message)
      : code_(code), message_(std::move(message)) {}
  template <typename T>
  bool MatchAndExplain(const T& value, ::testing::MatchResultListener* listener) const {
    return MatchStatus(StatusOf(value), code_, message_, *listener);
  }
  void DescribeTo(std::ostream* out) const { DescribeStatus(code_, message_, *out); }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "not (";
    DescribeStatus(code_, message_, *out);
    *out << ")";
  }

 private:
  absl::StatusCode code_;
  ::testing::Matcher<const std::string&> message_;
};

// Becomes a matcher once the type of the StatusOr is known.
template <typename Inner>
class IsOkAndHoldsMatcher {
 public:
  using is_gtest_matcher = void;
  explicit IsOkAndHoldsMatcher(Inner inner) : inner_(std::move(inner)) {}

  template <typename T>
  bool MatchAndExplain(const absl::StatusOr<T>& result,
                       ::testing::MatchResultListener* listener) const {
    if (!result.ok()) {
      ExplainStatus(result.status(), *listener);
      return false;
    }
    return ::testing::ExplainMatchResult(inner_, *result, listener);
  }
  void DescribeTo(std::ostream* out) const { *out << "is OK and holds the expected value"; }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "is not OK or does not hold the expected value";
  }

 private:
  Inner inner_;
};

}  // namespace status_matchers_internal

// Matches an OK Status or StatusOr.
inline auto IsOk() { return status_matchers_internal::IsOkMatcher(); }

// Matches a Status or StatusOr with this code, and with a message that holds `substring`.
inline auto StatusIs(absl::StatusCode code) {
  return status_matchers_internal::StatusIsMatcher(code, ::testing::_);
}
inline auto StatusIs(absl::StatusCode code, const char* substring) {
  return status_matchers_internal::StatusIsMatcher(code, ::testing::HasSubstr(substring));
}
inline auto StatusIs(absl::StatusCode code, const std::string& substring) {
  return StatusIs(code, substring.c_str());
}
// The same with any matcher of std::string for the message.
inline auto StatusIs(absl::StatusCode code, ::testing::Matcher<const std::string&> message) {
  return status_matchers_internal::StatusIsMatcher(code, std::move(message));
}

// Matches an OK StatusOr whose value equals or matches `inner`.
template <typename Inner>
auto IsOkAndHolds(Inner inner) {
  return status_matchers_internal::IsOkAndHoldsMatcher<Inner>(std::move(inner));
}

}  // namespace gantry

#endif  // GANTRY_BASE_TESTING_STATUS_MATCHERS_H_
