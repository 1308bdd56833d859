#include "base/testing/status_matchers.h"

#include <gmock/gmock.h>

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "base/strings.h"

namespace gantry::status_matchers_internal {

void ExplainStatus(const absl::Status& status, ::testing::MatchResultListener& listener) {
  listener << "whose status is " << status.ToString();
}

bool MatchStatus(const absl::Status& status, absl::StatusCode code,
                 const ::testing::Matcher<const std::string&>& message,
                 ::testing::MatchResultListener& listener) {
  const bool matches =
      status.code() == code && message.Matches(std::string(FromAbsl(status.message())));
  if (!matches) ExplainStatus(status, listener);
  return matches;
}

void DescribeStatus(absl::StatusCode code, const ::testing::Matcher<const std::string&>& message,
                    std::ostream& out) {
  out << "has code " << absl::StatusCodeToString(code) << " and a message that ";
  message.DescribeTo(&out);
}

}  // namespace gantry::status_matchers_internal
