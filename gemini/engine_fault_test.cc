// Faults of the file tier under a training run. After each: the right answer or a typed error that
// names block and file; never a hang, never wrong numbers, and nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "gemini/testing/toy_model.h"
#include "nvme/fault_injection.h"
#include "nvme/io_threads.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSlot = 2 * kChunkGranularityElements;

class EngineFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    spill_ = ::testing::TempDir() + "/engine_fault_test";
    std::filesystem::create_directories(spill_);
    auto team = ThreadTeam::Create({.threads = 2});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
    auto device = CreateHostDevice({.topology = DeviceTopology::kDiscrete, .clock = &clock_});
    ASSERT_THAT(device, IsOk());
    device_ = *std::move(device);
  }

  // Trains under budgets that need the file tier; the hash of all parameters.
  absl::StatusOr<uint64_t> Train(IoBackendFactory make_io) {
    GANTRY_ASSIGN_OR_RETURN(auto engine,
                            Engine::Create({.device = device_.get(),
                                            .team = team_.get(),
                                            .clock = &clock_,
                                            .logger = &logger_,
                                            .files = &files_,
                                            .device_memory = Bytes(14 * kSlot),
                                            .host_memory = Bytes(14 * kSlot),
                                            .spill_directories = {spill_},
                                            .make_io = std::move(make_io),
                                            .chunk_elements = kChunkGranularityElements}));
    ToyModel model(engine.get(), {.layers = 3});
    GANTRY_RETURN_IF_ERROR(model.Register());
    GANTRY_RETURN_IF_ERROR(model.TrainStep(Hyper(1)).status());
    GANTRY_RETURN_IF_ERROR(engine->Seal());
    GANTRY_RETURN_IF_ERROR(model.Initialize());
    for (int64_t step = 1; step <= 2; ++step) {
      GANTRY_RETURN_IF_ERROR(model.TrainStep(Hyper(step)).status());
    }
    GANTRY_RETURN_IF_ERROR(engine->Drain());
    return model.Hash(StateKind::kParameter);
  }

  static OptimizerStep Hyper(int64_t step) {
    return {.learning_rate = 1e-2, .step = step, .max_gradient_norm = 1.0};
  }

  // A factory whose backend fails request `index`; the number of requests goes to `submitted`.
  IoBackendFactory FailingRequest(int64_t index, absl::Status status, int64_t* submitted) {
    struct Counting : public IoBackend {
      Counting(const IoBackendOptions& options, int64_t* submitted)
          : submitted_(submitted),
            faulty_(
                [options](IoSink* sink) {
                  IoBackendOptions inner = options;
                  inner.sink = sink;
                  return CreateIoBackend(inner);
                },
                options.sink) {}
      ~Counting() override { *submitted_ = faulty_.submitted(); }
      void Submit(const IoRequest& request) override { faulty_.Submit(request); }
      void Cancel(uint64_t tag) override { faulty_.Cancel(tag); }
      void Promote(uint64_t tag, IoPriority priority) override { faulty_.Promote(tag, priority); }
      std::string_view name() const override { return faulty_.name(); }
      IoCounters counters() const override { return faulty_.counters(); }

      int64_t* submitted_;
      FaultyIoBackend faulty_;
    };
    return [=](const IoBackendOptions& options) -> absl::StatusOr<std::unique_ptr<IoBackend>> {
      auto backend = std::make_unique<Counting>(options, submitted);
      GANTRY_RETURN_IF_ERROR(backend->faulty_.status());
      if (index >= 0) backend->faulty_.FailRequest(index, status);
      return backend;
    };
  }

  std::string spill_;
  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
};

// The order of requests varies with timing, so request n is a different one from run to run; that
// is fine: any of them may fail.
TEST_F(EngineFaultTest, AnyFailedRequestEndsTheRunWithItsError) {
  int64_t requests = 0;
  auto healthy = Train(FailingRequest(-1, absl::OkStatus(), &requests));
  ASSERT_THAT(healthy, IsOk());
  ASSERT_GT(requests, 40);
  int64_t failed = 0;
  for (int64_t index = 0; index < requests; index += 1 + requests / 40) {
    SCOPED_TRACE(StrCat("request ", index, " of ", requests));
    int64_t submitted = 0;
    auto result = Train(FailingRequest(index, DataLoss("injected EIO"), &submitted));
    if (submitted <= index) continue;  // this run needed fewer requests
    ++failed;
    // A write-down whose data nobody needed again may fail after the last answer was given.
    if (result.ok()) {
      EXPECT_EQ(*result, *healthy);
      continue;
    }
    EXPECT_THAT(result.status(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("injected EIO")));
    EXPECT_THAT(result.status().ToString(), HasSubstr("moving "));
    EXPECT_TRUE(std::filesystem::is_empty(spill_));
  }
  EXPECT_GT(failed, 20);
}

TEST_F(EngineFaultTest, ShortTransfersGiveTheRightAnswer) {
  auto expected = Train({});
  ASSERT_THAT(expected, IsOk());
  PosixFileCalls real;
  FaultyFileCalls calls(&real);
  for (const FileCallKind kind : {FileCallKind::kRead, FileCallKind::kWrite}) {
    for (int64_t call = 0; call < 1500; call += 3) {
      calls.Inject({.kind = kind, .first = call}, ShortenCall{4096});
    }
  }
  calls.Inject({.kind = {}, .first = 10, .count = 2}, FailCall{EAGAIN});
  calls.Inject({.kind = {}, .first = 100}, FailCall{EINTR});
  const auto make =
      [&](const IoBackendOptions& options) -> absl::StatusOr<std::unique_ptr<IoBackend>> {
    return IoThreads::Create({.sink = options.sink, .threads = 4, .files = &calls});
  };
  auto actual = Train(make);
  ASSERT_THAT(actual, IsOk());
  EXPECT_EQ(*actual, *expected);
  EXPECT_GT(calls.calls(), 101) << "the last fault was met";
}

TEST_F(EngineFaultTest, AFullDriveInMidRunIsResourceExhausted) {
  int64_t submitted = 0;
  auto result = Train(FailingRequest(30, ResourceExhausted("injected ENOSPC"), &submitted));
  EXPECT_THAT(result.status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("injected ENOSPC")));
  EXPECT_TRUE(std::filesystem::is_empty(spill_));
}

}  // namespace
}  // namespace gantry
