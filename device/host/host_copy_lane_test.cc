// Timing is checked on a VirtualClock, which jumps to whatever the lane sleeps until: the times are
// exact. Where the time of submission matters, the lane's thread is held inside the sink of an
// earlier request.
#include "device/host/host_copy_lane.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/testing/status_matchers.h"
#include "device/testing/recording_sink.h"

namespace gantry {
namespace {

constexpr int64_t kBandwidth = 1'000'000'000;  // a byte a nanosecond
constexpr int64_t kLatency = 500;

// Blocks the lane's thread in the first completion until it is opened.
class GateSink final : public CopySink {
 public:
  explicit GateSink(CopySink* next) : next_(next) {}
  void OnCopyComplete(uint64_t tag, absl::Status status) override {
    {
      MutexLock lock(mutex_);
      while (!open_) changed_.Wait(mutex_);
    }
    next_->OnCopyComplete(tag, std::move(status));
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  CopySink* next_;
  Mutex mutex_;
  CondVar changed_;
  bool open_ GANTRY_GUARDED_BY(mutex_) = false;
};

class HostCopyLaneTest : public ::testing::Test {
 protected:
  std::unique_ptr<HostCopyLane> MakeLane(int64_t bandwidth, int64_t latency, CopySink* sink) {
    auto lane = HostCopyLane::Create({.bandwidth_bytes_per_second = bandwidth,
                                      .latency_nanoseconds = latency,
                                      .clock = &clock_,
                                      .sink = sink});
    GANTRY_CHECK_OK(lane.status());
    return *std::move(lane);
  }
  CopyRequest Request(int64_t bytes, uint64_t tag) {
    return {.destination = destination_.data(),
            .source = source_.data(),
            .bytes = Bytes(bytes),
            .tag = tag};
  }

  VirtualClock clock_;
  RecordingSink sink_{&clock_};
  std::vector<std::byte> source_ = std::vector<std::byte>(5 << 20, std::byte{7});
  std::vector<std::byte> destination_ = std::vector<std::byte>(5 << 20);
};

TEST_F(HostCopyLaneTest, TakesLatencyPlusBytesOverBandwidth) {
  auto lane = MakeLane(kBandwidth, kLatency, &sink_);
  const int64_t bytes = (3 << 20) + 17;  // several pieces and a rest
  lane->Submit(Request(bytes, 1));
  EXPECT_EQ(sink_.WaitFor(1)[0].time, kLatency + bytes);
  EXPECT_EQ(lane->counters().busy_nanoseconds, kLatency + bytes);
  EXPECT_EQ(destination_[static_cast<size_t>(bytes) - 1], std::byte{7});
  EXPECT_EQ(destination_[static_cast<size_t>(bytes)], std::byte{0});
}

TEST_F(HostCopyLaneTest, RoundsTheTimeUp) {
  auto lane = MakeLane(3, 0, &sink_);  // a byte is a third of a second
  lane->Submit(Request(1, 1));
  EXPECT_EQ(sink_.WaitFor(1)[0].time, 333'333'334);
}

TEST_F(HostCopyLaneTest, QueuedRequestsFollowEachOther) {
  GateSink gate(&sink_);
  auto lane = MakeLane(kBandwidth, kLatency, &gate);
  for (uint64_t tag = 0; tag < 4; ++tag) lane->Submit(Request(1000, tag));
  gate.Open();
  const auto completions = sink_.WaitFor(4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(completions[i].tag, i);
    EXPECT_EQ(completions[i].time, static_cast<int64_t>(i + 1) * (kLatency + 1000));
  }
  EXPECT_EQ(lane->counters().busy_nanoseconds, 4 * (kLatency + 1000));
}

TEST_F(HostCopyLaneTest, IdleTimeIsNotBusyTime) {
  auto lane = MakeLane(kBandwidth, kLatency, &sink_);
  lane->Submit(Request(1000, 1));
  sink_.WaitFor(1);
  clock_.Advance(10'000);
  lane->Submit(Request(2000, 2));
  EXPECT_EQ(sink_.WaitFor(2)[1].time, (kLatency + 1000) + 10'000 + (kLatency + 2000));
  EXPECT_EQ(lane->counters().busy_nanoseconds, 2 * kLatency + 3000);
}

TEST_F(HostCopyLaneTest, LanesOnOneClockRunSideBySide) {
  RecordingSink other_sink(&clock_);
  GateSink gate(&other_sink);
  auto lane = MakeLane(kBandwidth, 0, &sink_);
  auto other = MakeLane(kBandwidth, 0, &gate);
  other->Submit(Request(0, 1));  // holds the thread of `other`
  other->Submit(Request(2000, 2));
  lane->Submit(Request(1 << 20, 3));
  EXPECT_EQ(sink_.WaitFor(1)[0].time, 1 << 20);
  gate.Open();
  other_sink.WaitFor(2);
  EXPECT_EQ(clock_.Now(), 1 << 20);  // due at 2000, although its thread came late
}

TEST_F(HostCopyLaneTest, WithoutBandwidthOnlyLatencyCounts) {
  auto lane = MakeLane(0, kLatency, &sink_);
  lane->Submit(Request(4 << 20, 1));
  EXPECT_EQ(sink_.WaitFor(1)[0].time, kLatency);
  auto plain = MakeLane(0, 0, &sink_);
  plain->Submit(Request(4 << 20, 2));
  EXPECT_EQ(sink_.WaitFor(2)[1].time, kLatency);
}

TEST_F(HostCopyLaneTest, TakesRealTimeOnARealClock) {
  MonotonicClock real;
  RecordingSink sink(&real);
  auto lane = HostCopyLane::Create({.bandwidth_bytes_per_second = 1'000'000'000,
                                    .latency_nanoseconds = 1'000'000,
                                    .clock = &real,
                                    .sink = &sink});
  ASSERT_THAT(lane, IsOk());
  const Nanoseconds before = real.Now();
  (*lane)->Submit(Request(4'000'000, 1));
  EXPECT_GE(sink.WaitFor(1)[0].time - before, 5'000'000);
  EXPECT_GE((*lane)->counters().busy_nanoseconds, 5'000'000);
}

TEST_F(HostCopyLaneTest, DestructorDrainsTheQueue) {
  GateSink gate(&sink_);
  auto lane = MakeLane(kBandwidth, kLatency, &gate);
  for (uint64_t tag = 0; tag < 20; ++tag) lane->Submit(Request(100, tag));
  EXPECT_EQ(sink_.completions().size(), 0u);
  gate.Open();
  lane.reset();
  const auto completions = sink_.completions();
  ASSERT_EQ(completions.size(), 20u);
  for (const auto& completion : completions) EXPECT_THAT(completion.status, IsOk());
}

using HostCopyLaneDeathTest = HostCopyLaneTest;

TEST_F(HostCopyLaneDeathTest, NegativeSizeAborts) {
  EXPECT_DEATH(MakeLane(0, 0, &sink_)->Submit(Request(-1, 1)), "request.bytes.count\\(\\) >= 0");
}

}  // namespace
}  // namespace gantry
