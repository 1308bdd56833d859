#include "base/testing/call_counts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

TEST(CountAllocationsTest, CountsThoseOfTheBody) {
  const auto none = CountAllocations([] {});
  if (absl::IsUnimplemented(none.status())) GTEST_SKIP() << none.status();
  EXPECT_THAT(none, IsOkAndHolds(0));
  std::unique_ptr<int> number;  // outlives the body, so that nothing is optimized away
  EXPECT_THAT(CountAllocations([&number] { number = std::make_unique<int>(3); }), IsOkAndHolds(1));
  std::vector<int> numbers;
  numbers.reserve(2);
  EXPECT_THAT(CountAllocations([&numbers] { numbers.assign(2, 7); }), IsOkAndHolds(0));
  EXPECT_THAT(CountAllocations([&numbers] { numbers.assign(3, 7); }), IsOkAndHolds(1));
}

TEST(CountSystemCallsTest, CountsThoseOfTheBody) {
  const auto none = CountSystemCalls([] {});
  if (absl::IsUnimplemented(none.status())) GTEST_SKIP() << none.status();
  EXPECT_THAT(none, IsOkAndHolds(0));
  EXPECT_THAT(CountSystemCalls([] { static_cast<void>(getppid()); }), IsOkAndHolds(1));
  EXPECT_THAT(CountSystemCalls([] {
                for (int i = 0; i < 5; ++i) static_cast<void>(getppid());
              }),
              IsOkAndHolds(5));
  MonotonicClock clock;
  EXPECT_THAT(CountSystemCalls([&clock] { static_cast<void>(clock.Now()); }), IsOkAndHolds(0));
}

}  // namespace
}  // namespace gantry
