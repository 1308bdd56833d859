// What a lease costs once nothing moves any more, under the policy `planned`: no allocation and no
// system call. Its time is the benchmark's matter (benches/gemini/lease_bench.cc).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/strings.h"
#include "base/testing/call_counts.h"
#include "base/testing/status_matchers.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr int kTensors = 20;
constexpr int64_t kElements = 20'011;  // so that tensors cross chunks

class EngineOverheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto team = ThreadTeam::Create({.threads = 1});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
    auto device = CreateHostDevice({.topology = DeviceTopology::kUnified, .clock = &clock_});
    ASSERT_THAT(device, IsOk());
    device_ = *std::move(device);
    auto engine = Engine::Create({.device = device_.get(),
                                  .team = team_.get(),
                                  .clock = &clock_,
                                  .logger = &logger_,
                                  .files = &files_,
                                  .device_memory = Bytes(2 * kChunk * 400),
                                  .static_fractions = {},
                                  .chunk_elements = kChunk});
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
    for (int i = 0; i < kTensors; ++i) {
      const auto tensor = engine_->Register(
          {.name = StrCat("t", i), .shape = {kElements}, .dtype = DType::kBF16}, {});
      ASSERT_THAT(tensor, IsOk());
      tensors_.push_back(*tensor);
    }
    RunStep();  // dry
    ASSERT_THAT(engine_->Seal(), IsOk());
    for (int i = 0; i < 6; ++i) RunStep();
    ASSERT_TRUE(engine_->movement_report("train").planned);
    engine_->ResetStatistics();
  }

  void Begin() {
    ASSERT_THAT(engine_->Drain(), IsOk());
    ASSERT_THAT(engine_->BeginStep({.optimizer = OptimizerStep{.learning_rate = 0.01}}), IsOk());
    ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
  }
  // Two tensors a lease.
  void Forward() {
    for (size_t i = 0; i + 1 < tensors_.size(); ++i) {
      const ParameterUse uses[] = {{tensors_[i], ParameterAccess::kRead},
                                   {tensors_[i + 1], ParameterAccess::kRead}};
      leased_ = leased_ && engine_->Acquire(uses, "forward", Phase::kForward).ok();
    }
  }
  // A gradient's second contribution; the first one's are made before.
  void Add() {
    for (const TensorId tensor : tensors_) {
      const ParameterUse use{tensor, ParameterAccess::kReadAndGradient};
      leased_ = leased_ && engine_->Acquire({&use, 1}, "add", Phase::kBackward).ok();
    }
  }
  void Contribute() {
    for (const TensorId tensor : tensors_) {
      const ParameterUse use{tensor, ParameterAccess::kReadAndGradient};
      const auto lease = engine_->Acquire({&use, 1}, "contribute", Phase::kBackward);
      ASSERT_THAT(lease, IsOk());
      if (!engine_->dry_run()) std::memset((*lease)[0].gradient, 0, 2 * kElements);
    }
  }
  void Finish() {
    for (const TensorId tensor : tensors_) engine_->GradientReady(tensor);
    ASSERT_THAT(engine_->EndStep(), IsOk());
  }
  void RunStep() {
    Begin();
    Forward();
    Contribute();
    Add();
    Finish();
  }
  void ExpectAsPlanned() {
    EXPECT_TRUE(leased_);
    EXPECT_EQ(engine_->statistics().leases_off_plan, 0);
    EXPECT_EQ(engine_->statistics().leases_waited, 0);
  }

  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::vector<TensorId> tensors_;
  bool leased_ = true;
};

TEST_F(EngineOverheadTest, LeasesAllocateNothing) {
  Begin();
  const auto forward = CountAllocations([this] { Forward(); });
  if (absl::IsUnimplemented(forward.status())) GTEST_SKIP() << forward.status();
  EXPECT_THAT(forward, IsOkAndHolds(0));
  Contribute();
  EXPECT_THAT(CountAllocations([this] { Add(); }), IsOkAndHolds(0));
  Finish();
  ExpectAsPlanned();
}

TEST_F(EngineOverheadTest, LeasesMakeNoSystemCall) {
  Begin();
  // Updates and copies are done: nobody else wants the engine's mutex.
  const auto forward = CountSystemCalls([this] { Forward(); });
  if (absl::IsUnimplemented(forward.status())) GTEST_SKIP() << forward.status();
  EXPECT_THAT(forward, IsOkAndHolds(0));
  Contribute();
  EXPECT_THAT(CountSystemCalls([this] { Add(); }), IsOkAndHolds(0));
  Finish();
  ExpectAsPlanned();
}

}  // namespace
}  // namespace gantry
