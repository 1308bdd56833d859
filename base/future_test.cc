#include "base/future.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using absl::StatusCode;
using ::testing::Pointee;

static_assert(!std::is_copy_constructible_v<Future<int>>);
static_assert(!std::is_copy_constructible_v<Promise<int>>);

TEST(FutureTest, SetThenWait) {
  Promise<int> promise;
  Future<int> future = promise.GetFuture();
  EXPECT_TRUE(future.valid());
  EXPECT_FALSE(future.Ready());
  promise.Set(5);
  EXPECT_TRUE(future.Ready());
  EXPECT_THAT(future.Wait(), IsOkAndHolds(5));
  EXPECT_FALSE(future.valid());
}

TEST(FutureTest, WaitBlocksUntilAnotherThreadSets) {
  // Both orders occur: the thread may set before or after the wait starts.
  for (int i = 0; i < 200; ++i) {
    Promise<int> promise;
    Future<int> future = promise.GetFuture();
    std::jthread thread([&, owned = std::move(promise)]() mutable { owned.Set(i); });
    ASSERT_THAT(future.Wait(), IsOkAndHolds(i));
  }
}

TEST(FutureTest, ThenBeforeSetRunsTheCallbackInSet) {
  Promise<int> promise;
  Future<int> future = promise.GetFuture();
  int calls = 0;
  absl::StatusOr<int> received = absl::UnknownError("not called");
  future.Then([&](absl::StatusOr<int> result) {
    ++calls;
    received = std::move(result);
  });
  EXPECT_FALSE(future.valid());
  EXPECT_EQ(calls, 0);
  promise.Set(5);
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(received, IsOkAndHolds(5));
}

TEST(FutureTest, ThenAfterSetRunsTheCallbackAtOnce) {
  Promise<int> promise;
  Future<int> future = promise.GetFuture();
  promise.Set(5);
  int calls = 0;
  future.Then([&](absl::StatusOr<int> result) {
    ++calls;
    EXPECT_THAT(result, IsOkAndHolds(5));
  });
  EXPECT_EQ(calls, 1);
}

TEST(FutureTest, ThenAgainstSetOnAnotherThreadCallsOnce) {
  for (int i = 0; i < 200; ++i) {
    int calls = 0;
    {
      Promise<int> promise;
      Future<int> future = promise.GetFuture();
      std::jthread thread([owned = std::move(promise)]() mutable { owned.Set(1); });
      future.Then([&](absl::StatusOr<int>) { ++calls; });
    }
    ASSERT_EQ(calls, 1);
  }
}

TEST(FutureTest, CallbacksMayUseAnotherFutureOfTheSamePair) {
  Promise<int> first;
  Promise<int> second;
  Future<int> second_future = second.GetFuture();
  first.GetFuture().Then(
      [&](absl::StatusOr<int> result) { second.Set(result.ok() ? *result + 1 : -1); });
  first.Set(1);
  EXPECT_THAT(second_future.Wait(), IsOkAndHolds(2));
}

TEST(FutureTest, CarriesErrors) {
  Promise<int> promise;
  Future<int> future = promise.GetFuture();
  promise.Set(absl::DataLossError("short read"));
  EXPECT_THAT(future.Wait(), StatusIs(StatusCode::kDataLoss, "short read"));
}

TEST(FutureTest, CarriesMoveOnlyValues) {
  Promise<std::unique_ptr<int>> promise;
  Future<std::unique_ptr<int>> future = promise.GetFuture();
  promise.Set(std::make_unique<int>(5));
  EXPECT_THAT(future.Wait(), IsOkAndHolds(Pointee(5)));
}

TEST(FutureTest, DroppedPromiseDeliversCancelled) {
  Future<int> waited;
  absl::StatusOr<int> received = 0;
  {
    Promise<int> promise;
    waited = promise.GetFuture();
    Promise<int> other;
    other.GetFuture().Then([&](absl::StatusOr<int> result) { received = std::move(result); });
  }
  EXPECT_THAT(waited.Wait(), StatusIs(StatusCode::kCancelled, "promise"));
  EXPECT_THAT(received, StatusIs(StatusCode::kCancelled));
}

TEST(FutureTest, MovesTransferTheDuty) {
  Promise<int> promise;
  Future<int> first = promise.GetFuture();
  Future<int> second = std::move(first);
  Promise<int> moved = std::move(promise);
  Future<int> third;
  third = std::move(second);
  moved.Set(3);
  EXPECT_THAT(third.Wait(), IsOkAndHolds(3));
}

TEST(FutureTest, UnusedFuturesAndKeptPromisesMayBeDropped) {
  const Future<int> empty;
  EXPECT_FALSE(empty.valid());
  Promise<int> without_future;
  without_future.Set(1);
}

TEST(FutureDeathTest, DroppingAFutureAborts) {
  Promise<int> promise;
  EXPECT_DEATH({ Future<int> future = promise.GetFuture(); }, "dropped before it was consumed");
}

TEST(FutureDeathTest, DroppingAReadyFutureAborts) {
  EXPECT_DEATH(
      {
        Promise<int> promise;
        Future<int> future = promise.GetFuture();
        promise.Set(1);
      },
      "dropped before it was consumed");
}

TEST(FutureDeathTest, OverwritingAFutureAborts) {
  EXPECT_DEATH(
      {
        Promise<int> promise;
        Future<int> future = promise.GetFuture();
        future = Future<int>();
      },
      "overwritten before it was consumed");
}

TEST(FutureDeathTest, UsingAConsumedFutureOrPromiseAborts) {
  EXPECT_DEATH(static_cast<void>(Future<int>().Wait()), "consumed before");
  EXPECT_DEATH(Future<int>().Then([](absl::StatusOr<int>) {}), "consumed before");
  EXPECT_DEATH(static_cast<void>(Future<int>().Ready()), "valid");
  Promise<int> promise;
  promise.Set(1);
  EXPECT_DEATH(promise.Set(2), "kept before");
  EXPECT_DEATH(static_cast<void>(promise.GetFuture()), "kept before");
}

}  // namespace
}  // namespace gantry
