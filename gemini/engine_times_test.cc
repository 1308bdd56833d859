// The compute times of a trace: each moment's is what passed between its lease and the next one
// but for the stalls, exactly, in virtual time; of real updates some time is measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/fault_plan.h"
#include "base/testing/status_matchers.h"
#include "device/fake/fake_device.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "gemini/testing/toy_model.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;

class EngineTimesTest : public ::testing::Test {
 protected:
  static constexpr int kBlocks = 7;

  void Make(uint64_t seed) {
    engine_.reset();
    device_.reset();
    loop_ = std::make_unique<EventLoop>(EventLoop::Options{.clock = &clock_, .seed = seed});
    auto team = ThreadTeam::Create({.threads = 1});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
    auto device = CreateFakeDevice({.topology = DeviceTopology::kDiscrete,
                                    .bandwidth_bytes_per_second = 1'000'000'000,
                                    .latency = 500,
                                    .clock = &clock_,
                                    .loop = loop_.get(),
                                    .faults = &faults_});
    ASSERT_THAT(device, IsOk());
    device_ = *std::move(device);
    auto engine = Engine::Create({.device = device_.get(),
                                  .team = team_.get(),
                                  .clock = &clock_,
                                  .logger = &logger_,
                                  .files = &files_,
                                  .event_loop = loop_.get(),
                                  .device_memory = Bytes(2 * kChunk * 3),
                                  .host_memory = Bytes(2 * kChunk * 64),
                                  .static_fractions = {},
                                  .look_ahead = 2,
                                  .chunk_elements = kChunk});
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
    tensors_.clear();
    for (int i = 0; i < kBlocks; ++i) {
      const auto id = engine_->Register({.name = StrCat("t", i),
                                         .shape = {kChunk},
                                         .dtype = DType::kBF16,
                                         .trainability = Trainability::kFrozen},
                                        {});
      ASSERT_THAT(id, IsOk());
      tensors_.push_back(*id);
    }
  }

  Nanoseconds Stalled() const {
    Nanoseconds sum = 0;
    for (const Nanoseconds stall : engine_->statistics().stalls) sum += stall;
    return sum;
  }
  // Time that passed while nothing was waited for.
  Nanoseconds Busy() const { return clock_.Now() - Stalled(); }

  // Returns what each moment took, as seen from outside. `work` gives the time in each lease and
  // behind it.
  std::vector<Nanoseconds> Step(const std::vector<int>& reads, const Random& work) {
    EXPECT_THAT(engine_->BeginStep({.trace_key = "reads", .optimizer = {}}), IsOk());
    std::vector<Nanoseconds> begun = {Busy()};
    EXPECT_THAT(engine_->BeginMicroBatch(), IsOk());
    clock_.Advance(work.Below(100, 10'000));
    for (size_t i = 0; i < reads.size(); ++i) {
      if (i > 0) begun.push_back(Busy());
      const ParameterUse use{tensors_[static_cast<size_t>(reads[i])], ParameterAccess::kRead};
      auto lease = engine_->Acquire({&use, 1}, "read", Phase::kForward);
      EXPECT_THAT(lease, IsOk());
      clock_.Advance(work.Below(1000, 2 * i));
      lease->Release();
      clock_.Advance(work.Below(300, 2 * i + 1));
    }
    begun.push_back(Busy());
    EXPECT_THAT(engine_->EndStep(), IsOk());
    for (size_t i = 0; i + 1 < begun.size(); ++i) begun[i] = begun[i + 1] - begun[i];
    begun.pop_back();
    return begun;
  }

  std::vector<Nanoseconds> Traced() {
    std::vector<Nanoseconds> times;
    for (const Moment& moment : engine_->trace("reads")->moments) times.push_back(moment.compute);
    return times;
  }

  VirtualClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  FaultPlan faults_{{}};
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::vector<TensorId> tensors_;
};

TEST_F(EngineTimesTest, MomentsLastFromLeaseToLeaseWithoutStalls) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Make(seed);
    const Random random({.seed = seed, .stream = 0});
    std::vector<int> reads;
    for (int i = 0; i < kBlocks; ++i) reads.push_back(i);
    for (uint64_t i = 0; i < 10; ++i) reads.push_back(static_cast<int>(random.Below(kBlocks, i)));
    Step(reads, random);  // dry
    ASSERT_THAT(engine_->Seal(), IsOk());
    EXPECT_EQ(Traced(), std::vector<Nanoseconds>(reads.size(), 0));
    const std::vector<Nanoseconds> first = Step(reads, random);
    EXPECT_GT(Stalled(), 0);
    EXPECT_EQ(Traced(), first);
    // The lower one of two.
    const std::vector<Nanoseconds> second = Step(reads, Random({.seed = seed, .stream = 1}));
    std::vector<Nanoseconds> median;
    for (size_t i = 0; i < first.size(); ++i) median.push_back(std::min(first[i], second[i]));
    EXPECT_EQ(Traced(), median);
    // Another sequence under the same key tells nothing of this one.
    std::vector<int> other = reads;
    other[3] = other[2];
    Step(other, random);
    EXPECT_EQ(Traced(), median);
  }
}

// A step without a dry run is recorded as it runs; its times come with the next one.
TEST_F(EngineTimesTest, StepsThatWereRecordedLiveAreMeasuredLater) {
  Make(1);
  ASSERT_THAT(engine_->Seal(), IsOk());
  const Random random({.seed = 1, .stream = 0});
  Step({0, 1, 2}, random);
  EXPECT_EQ(Traced(), (std::vector<Nanoseconds>{0, 0, 0}));
  const std::vector<Nanoseconds> second = Step({0, 1, 2}, random);
  EXPECT_EQ(Traced(), second);
}

TEST(EngineUpdateTimesTest, UpdatesAreMeasured) {
  MonotonicClock clock;
  MemoryLogger logger;
  PosixFileCalls files;
  auto team = ThreadTeam::Create({.threads = 1});
  ASSERT_THAT(team, IsOk());
  auto device = CreateHostDevice({.topology = DeviceTopology::kDiscrete, .clock = &clock});
  ASSERT_THAT(device, IsOk());
  auto engine = Engine::Create({.device = device->get(),
                                .team = team->get(),
                                .clock = &clock,
                                .logger = &logger,
                                .files = &files,
                                .device_memory = Bytes(2 * kChunk * 16),
                                .host_memory = Bytes(2 * kChunk * 64),
                                .static_fractions = {},
                                .chunk_elements = kChunk});
  ASSERT_THAT(engine, IsOk());
  ToyModel model(engine->get(), {.layers = 3});
  ASSERT_THAT(model.Register(), IsOk());
  ASSERT_THAT(model.TrainStep({.learning_rate = 0.01}), IsOk());
  ASSERT_THAT((*engine)->Seal(), IsOk());
  ASSERT_THAT(model.Initialize(), IsOk());
  for (const Moment& moment : (*engine)->trace("train")->moments) EXPECT_EQ(moment.compute, 0);
  const Nanoseconds begin = clock.Now();
  ASSERT_THAT(model.TrainStep({.learning_rate = 0.01}), IsOk());
  ASSERT_THAT((*engine)->Drain(), IsOk());
  const Nanoseconds elapsed = clock.Now() - begin;
  const Trace& trace = *(*engine)->trace("train");
  EXPECT_THAT(trace.Validate(), IsOk());
  Nanoseconds operators = 0;
  for (const Moment& moment : trace.moments) {
    EXPECT_GT(moment.compute, 0);
    if (moment.phase != Phase::kOptimizer) operators += moment.compute;
  }
  EXPECT_LE(operators, elapsed);
}

}  // namespace
}  // namespace gantry
