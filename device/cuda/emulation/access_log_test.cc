// Which pieces of work are ordered, and which are found to race.
#include "device/cuda/emulation/access_log.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gantry {
namespace {

constexpr size_t kFirst = 1;
constexpr size_t kSecond = 2;

// Work of two streams, in the order that the test says.
class AccessLogTest : public ::testing::Test {
 protected:
  std::shared_ptr<const WorkOrder> Work(size_t stream) {
    clocks_[stream].Join(host_);
    auto order = std::make_shared<WorkOrder>();
    order->actor = stream;
    order->tick = clocks_[stream].Tick(stream);
    order->clock = clocks_[stream];
    order->number = ++number_;
    return order;
  }
  // An event of one stream that the other waits for.
  void Order(size_t before, size_t after) { clocks_[after].Join(clocks_[before]); }
  void HostWaits(size_t stream) { host_.Join(clocks_[stream]); }

  enum class Kind { kRead, kWrite };
  std::shared_ptr<const WorkOrder> Add(const std::shared_ptr<const WorkOrder>& work, int64_t begin,
                                       int64_t end, Kind kind, int64_t object = 7) {
    return log_.Add({.object = object,
                     .begin = begin,
                     .end = end,
                     .write = kind == Kind::kWrite,
                     .place = object * 10,
                     .work = work});
  }

  VectorClock host_;
  VectorClock clocks_[3];
  uint64_t number_ = 0;
  AccessLog log_;
};

TEST_F(AccessLogTest, WritesOfTwoStreamsRaceWhereTheyOverlap) {
  const auto first = Work(kFirst);
  const auto second = Work(kSecond);
  EXPECT_EQ(Add(first, 0, 100, Kind::kWrite), nullptr);
  EXPECT_EQ(Add(second, 100, 200, Kind::kWrite), nullptr);  // beside it
  EXPECT_EQ(Add(second, 99, 100, Kind::kWrite), first);
  EXPECT_EQ(Add(second, 0, 1, Kind::kRead), first);
  EXPECT_EQ(Add(second, 0, 100, Kind::kWrite, 8), nullptr);  // another object
}

TEST_F(AccessLogTest, ReadsDoNotRace) {
  EXPECT_EQ(Add(Work(kFirst), 0, 100, Kind::kRead), nullptr);
  EXPECT_EQ(Add(Work(kSecond), 0, 100, Kind::kRead), nullptr);
  EXPECT_NE(Add(Work(kSecond), 0, 100, Kind::kWrite), nullptr);
}

TEST_F(AccessLogTest, AStreamIsInOrder) {
  const auto work = Work(kFirst);
  EXPECT_EQ(Add(work, 0, 100, Kind::kRead), nullptr);
  EXPECT_EQ(Add(work, 0, 100, Kind::kWrite), nullptr);  // of one piece of work
  EXPECT_EQ(Add(Work(kFirst), 0, 100, Kind::kWrite), nullptr);
}

TEST_F(AccessLogTest, AnEventOrdersWhatIsBeforeAndAfterItOnly) {
  const auto before = Work(kFirst);
  Order(kFirst, kSecond);
  const auto late = Work(kFirst);
  const auto after = Work(kSecond);
  EXPECT_EQ(Add(before, 0, 10, Kind::kWrite), nullptr);
  EXPECT_EQ(Add(after, 0, 10, Kind::kWrite), nullptr);
  EXPECT_EQ(Add(late, 0, 10, Kind::kWrite), after);
}

TEST_F(AccessLogTest, OrderCountsNotWhenItIsNoted) {
  const auto before = Work(kFirst);
  Order(kFirst, kSecond);
  const auto after = Work(kSecond);
  EXPECT_EQ(Add(after, 0, 10, Kind::kWrite), nullptr);
  EXPECT_EQ(Add(before, 0, 10, Kind::kWrite), nullptr);  // a kernel, whose accesses come late
}

TEST_F(AccessLogTest, TheHostsWaitOrdersAllThatComesLater) {
  const auto first = Work(kFirst);
  const auto unordered = Work(kSecond);
  HostWaits(kFirst);
  const auto second = Work(kSecond);
  EXPECT_EQ(Add(first, 0, 10, Kind::kWrite), nullptr);
  EXPECT_EQ(Add(second, 0, 10, Kind::kWrite), nullptr);
  EXPECT_EQ(Add(unordered, 0, 10, Kind::kRead), first);
}

TEST_F(AccessLogTest, OrderGoesThroughAThirdStream) {
  const auto first = Work(0);
  Order(0, kFirst);
  Order(kFirst, kSecond);
  EXPECT_EQ(Add(first, 0, 10, Kind::kWrite), nullptr);
  EXPECT_EQ(Add(Work(kSecond), 0, 10, Kind::kWrite), nullptr);
}

TEST_F(AccessLogTest, WhatTheHostDoesNotKnowToBeDoneIsUnfinished) {
  const auto work = Work(kFirst);
  EXPECT_EQ(log_.Unfinished(70, host_), nullptr);
  Add(work, 0, 10, Kind::kRead);
  EXPECT_EQ(log_.Unfinished(70, host_), work);
  EXPECT_EQ(log_.Unfinished(80, host_), nullptr);
  HostWaits(kFirst);
  EXPECT_EQ(log_.Unfinished(70, host_), nullptr);
}

TEST_F(AccessLogTest, ForgetsWhatCanRaceWithNothingAnyMore) {
  const auto open = Work(kSecond);  // a kernel whose accesses are not known yet
  const auto first = Work(kFirst);
  Add(first, 0, 10, Kind::kWrite);
  log_.Sweep(host_, number_ + 1, open->number);
  EXPECT_EQ(log_.size(), 1);  // the host knows nothing
  HostWaits(kFirst);
  log_.Sweep(host_, number_ + 1, open->number);
  EXPECT_EQ(log_.size(), 1);  // the kernel may still be found to race with it
  EXPECT_EQ(Add(open, 0, 10, Kind::kRead), first);
  log_.Sweep(host_, number_ + 1, number_ + 1);
  EXPECT_EQ(log_.size(), 1);  // the kernel's own
  HostWaits(kSecond);
  log_.Sweep(host_, number_ + 1, number_ + 1);
  EXPECT_EQ(log_.size(), 0);
}

TEST_F(AccessLogTest, ForgetsAnObject) {
  Add(Work(kFirst), 0, 10, Kind::kWrite);
  log_.ForgetObject(7);
  EXPECT_EQ(log_.size(), 0);
}

}  // namespace
}  // namespace gantry
