// Who is measured when, and what medians are.
#include "benches/suite/interleave.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "trainer/booster/stop_source.h"

namespace gantry {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Interleave, TakesTurnsThatBalanceDrift) {
  std::string order;
  const auto side = [&order](char name) -> Measurement {
    return [&order, name, value = 0.0]() mutable -> absl::StatusOr<double> {
      order += name;
      return value++;
    };
  };
  const std::vector<Measurement> sides = {side('A'), side('B')};
  const auto samples = Interleave(sides, {.rounds = 3});
  ASSERT_THAT(samples, IsOk());
  EXPECT_EQ(order, "BAABBAAB");
  // The warm-up, whose value was 0, is not among them.
  EXPECT_THAT(*samples, ElementsAre(ElementsAre(1.0, 2.0, 3.0), ElementsAre(1.0, 2.0, 3.0)));
  order.clear();
  ASSERT_THAT(Interleave(sides, {.rounds = 1, .warm_ups = 0}), IsOk());
  EXPECT_EQ(order, "AB");
}

// Speed that falls steadily meets both sides of two rounds alike.
TEST(Interleave, SteadyDriftGivesARatioOfOne) {
  double speed = 100.0;
  const Measurement side = [&speed]() -> absl::StatusOr<double> { return speed -= 1.0; };
  const auto samples =
      Interleave(std::vector<Measurement>{side, side}, {.rounds = 2, .warm_ups = 0});
  ASSERT_THAT(samples, IsOk());
  EXPECT_DOUBLE_EQ(Median((*samples)[0]), Median((*samples)[1]));
}

TEST(Interleave, TheFirstErrorEndsIt) {
  int calls = 0;
  const std::vector<Measurement> sides = {
      [&]() -> absl::StatusOr<double> { return ++calls; },
      [&]() -> absl::StatusOr<double> { return Unavailable("gone"); }};
  const auto samples = Interleave(sides, {.rounds = 5, .warm_ups = 0});
  EXPECT_TRUE(absl::IsUnavailable(samples.status()));
  EXPECT_EQ(calls, 1);
}

TEST(Interleave, StopsWhenAsked) {
  StopSource stop;
  int calls = 0;
  const std::vector<Measurement> sides = {[&]() -> absl::StatusOr<double> {
    if (++calls == 2) stop.Request();
    return 1.0;
  }};
  const auto samples = Interleave(sides, {.rounds = 5, .stop = &stop});
  EXPECT_TRUE(absl::IsCancelled(samples.status()));
  EXPECT_EQ(calls, 2);
}

TEST(Quantile, OfOneTwoAndMany) {
  EXPECT_EQ(Median(std::vector<double>{7.0}), 7.0);
  EXPECT_EQ(Median(std::vector<double>{4.0, 1.0}), 2.5);
  EXPECT_EQ(Median(std::vector<double>{9.0, 1.0, 5.0}), 5.0);
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  EXPECT_EQ(Quantile(values, 0.0), 0.0);
  EXPECT_EQ(Quantile(values, 1.0), 100.0);
  EXPECT_THAT(Quantile(values, 0.99), DoubleEq(99.0));
  EXPECT_THAT(Quantile(values, 0.995), DoubleEq(99.5));
}

TEST(QuantileDeathTest, OfNothing) {
  EXPECT_DEATH(static_cast<void>(Median(std::vector<double>{})), "empty");
  EXPECT_DEATH(static_cast<void>(Quantile(std::vector<double>{1.0}, 1.1)), "1.1");
}

}  // namespace
}  // namespace gantry
