// What the engine tells its trace sink, on threads, against its own statistics: slices of transfers
// carry the names of blocks, stalls and updates add up, operators follow each other; and what a
// plan was made from can be asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/parallel_for.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "base/trace_sink.h"
#include "device/host/host_device.h"
#include "device/slot_pool.h"
#include "gemini/engine.h"
#include "gemini/testing/toy_model.h"
#include "offload/transfer_engine.h"

namespace gantry {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr int64_t kDeviceSlots = 24;
constexpr int kSteps = 6;
constexpr char kKey[] = "train";

struct NamedSlice {
  std::string name;
  Nanoseconds begin;
  Nanoseconds end;
};

class CollectingSink final : public TraceSink {
 public:
  void Slice(std::string_view track, std::string_view name, Nanoseconds begin,
             Nanoseconds end) override {
    MutexLock lock(mutex_);
    slices_[std::string(track)].push_back({std::string(name), begin, end});
  }
  void Counter(std::string_view name, Nanoseconds, int64_t value) override {
    MutexLock lock(mutex_);
    int64_t& peak = peaks_[std::string(name)];
    peak = std::max(peak, value);
  }
  void Clear() {
    MutexLock lock(mutex_);
    slices_.clear();
  }
  std::vector<NamedSlice> slices(const std::string& track) const {
    MutexLock lock(mutex_);
    const auto found = slices_.find(track);
    return found == slices_.end() ? std::vector<NamedSlice>() : found->second;
  }
  std::map<std::string, int64_t> peaks() const {
    MutexLock lock(mutex_);
    return peaks_;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::vector<NamedSlice>> slices_ GANTRY_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> peaks_ GANTRY_GUARDED_BY(mutex_);
};

Nanoseconds Sum(const std::vector<NamedSlice>& slices) {
  Nanoseconds sum = 0;
  for (const NamedSlice& slice : slices) sum += slice.end - slice.begin;
  return sum;
}

class EngineTraceTest : public ::testing::TestWithParam<DeviceTopology> {
 protected:
  void SetUp() override {
    auto team = ThreadTeam::Create({.threads = 1});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
    auto device = CreateHostDevice({.topology = GetParam(), .clock = &clock_});
    ASSERT_THAT(device, IsOk());
    device_ = *std::move(device);
    auto engine = Engine::Create({.device = device_.get(),
                                  .team = team_.get(),
                                  .clock = &clock_,
                                  .logger = &logger_,
                                  .files = &files_,
                                  .trace_sink = &sink_,
                                  .device_memory = Bytes(2 * kChunk * kDeviceSlots),
                                  .host_memory = Bytes(2 * kChunk * 40),
                                  .spill_directories = {::testing::TempDir()},
                                  .static_fractions = {},
                                  .chunk_elements = kChunk});
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
  }

  void Train() {
    ToyModel model(engine_.get(), {});
    ASSERT_THAT(model.Register(), IsOk());
    ASSERT_THAT(model.TrainStep({.learning_rate = 0.01, .step = 1}), IsOk());  // dry
    ASSERT_THAT(engine_->Seal(), IsOk());
    ASSERT_THAT(model.Initialize(), IsOk());
    ASSERT_THAT(engine_->Drain(), IsOk());
    engine_->ResetStatistics();
    sink_.Clear();
    EXPECT_EQ(engine_->planned_step(kKey), nullptr);
    for (int step = 1; step <= kSteps; ++step) {
      ASSERT_THAT(model.TrainStep({.learning_rate = 0.01, .step = step}), IsOk());
    }
    ASSERT_THAT(engine_->Drain(), IsOk());
  }

  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  CollectingSink sink_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineTraceTest, TheSinkHearsWhatTheStatisticsSay) {
  ASSERT_NO_FATAL_FAILURE(Train());
  const EngineStatistics statistics = engine_->statistics();
  int64_t transfers = 0;
  for (int i = 0; i < kTransferLaneCount; ++i) {
    const auto lane = static_cast<TransferLane>(i);
    SCOPED_TRACE(Name(lane));
    const std::vector<NamedSlice> slices = sink_.slices(std::string(Name(lane)));
    EXPECT_EQ(std::ssize(slices), statistics.lanes[static_cast<size_t>(i)].transfers);
    EXPECT_THAT(slices,
                Each(Field(&NamedSlice::name,
                           MatchesRegex("(parameter|gradient|master|momentum|variance) of "
                                        "chunk#[0-9]+( \\((demand|update|prefetch)\\))?"))));
    transfers += std::ssize(slices);
  }
  EXPECT_GT(transfers, 0);
  Nanoseconds stalled = 0;
  for (const Nanoseconds stall : statistics.stalls) stalled += stall;
  EXPECT_EQ(Sum(sink_.slices("stall")), stalled);
  const std::vector<NamedSlice> updates = sink_.slices("update");
  EXPECT_THAT(updates, Not(IsEmpty()));
  EXPECT_EQ(Sum(updates), statistics.update_busy);
  EXPECT_THAT(updates,
              Each(Field(&NamedSlice::name, MatchesRegex("(norm|update) of chunk#[0-9]+"))));
}

TEST_P(EngineTraceTest, OperatorsFollowEachOther) {
  ASSERT_NO_FATAL_FAILURE(Train());
  std::vector<NamedSlice> all = sink_.slices("compute forward");
  const std::vector<NamedSlice> backward = sink_.slices("compute backward");
  EXPECT_FALSE(all.empty());
  EXPECT_FALSE(backward.empty());
  all.insert(all.end(), backward.begin(), backward.end());
  EXPECT_EQ(std::ssize(all), engine_->statistics().leases);
  std::ranges::sort(all, {}, &NamedSlice::begin);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1].end, all[i].begin);
}

TEST_P(EngineTraceTest, CountersStayWithinTheBudgets) {
  ASSERT_NO_FATAL_FAILURE(Train());
  const std::map<std::string, int64_t> peaks = sink_.peaks();
  for (const auto& [name, peak] : peaks) {
    EXPECT_THAT(name, AnyOf(StartsWith("device "), StartsWith("host ")));
    const bool device = name.starts_with("device ");
    EXPECT_LE(peak, 2 * kChunk * (device ? kDeviceSlots : 40)) << name;
  }
  const PoolUsage usage = engine_->statistics().device;
  const auto peak_of = [&](MemoryTag tag) {
    const auto found = peaks.find(StrCat("device ", Name(tag), " bytes"));
    return found == peaks.end() ? 0 : found->second;
  };
  // Noted where operators begin, so not every peak is seen, but never more than there was.
  for (const MemoryTag tag :
       {MemoryTag::kParameter, MemoryTag::kGradient, MemoryTag::kActivation}) {
    EXPECT_GT(peak_of(tag), 0) << Name(tag);
    EXPECT_LE(peak_of(tag), usage.peak_by_tag[static_cast<size_t>(tag)] * usage.slot_bytes.count());
  }
}

TEST_P(EngineTraceTest, WhatAPlanWasMadeFromCanBeAskedFor) {
  ASSERT_NO_FATAL_FAILURE(Train());
  EXPECT_EQ(engine_->planned_step("no such key"), nullptr);
  const PlannedStep* const planned = engine_->planned_step(kKey);
  ASSERT_NE(planned, nullptr);
  const MovementReport report = engine_->movement_report(kKey);
  EXPECT_TRUE(report.planned);
  EXPECT_EQ(planned->decision.hash, report.hash);
  EXPECT_EQ(planned->decision.predicted.elapsed, report.predicted);
  EXPECT_THAT(planned->trace.Validate(), IsOk());
  EXPECT_THAT(planned->machine.Validate(), IsOk());
  EXPECT_EQ(planned->machine.unified, GetParam() == DeviceTopology::kUnified);
}

INSTANTIATE_TEST_SUITE_P(Topologies, EngineTraceTest,
                         ::testing::Values(DeviceTopology::kUnified, DeviceTopology::kDiscrete));

}  // namespace
}  // namespace gantry
