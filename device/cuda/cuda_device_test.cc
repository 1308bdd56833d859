// The conformance suite on emulated GPUs, in several orders of work, with short memory, without
// virtual memory management; and what is particular to CUDA devices: refusals when one is made,
// failures of every single call, and operators that fail.
#include "device/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/emulation/emulated_cuda_calls.h"
#include "device/cuda/emulation/stream_runner.h"
#include "device/cuda/stream.h"
#include "device/device.h"
#include "device/testing/device_conformance.h"
#include "device/testing/recording_sink.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kGranularity = 64 << 10;

// A device with the calls that it needs, and a look at both when it ends.
class OwningDevice final : public Device {
 public:
  OwningDevice(std::unique_ptr<EmulatedCudaCalls> calls, std::unique_ptr<MonotonicClock> clock,
               std::unique_ptr<MemoryLogger> logger, std::unique_ptr<CudaDevice> inner)
      : calls_(std::move(calls)),
        clock_(std::move(clock)),
        logger_(std::move(logger)),
        inner_(std::move(inner)) {}
  ~OwningDevice() override {
    inner_.reset();
    EXPECT_THAT(calls_->misuse(), IsOk());
    EXPECT_EQ(calls_->live(), 0);
    EXPECT_THAT(logger_->messages(), IsEmpty());
  }
  std::string_view name() const override { return inner_->name(); }
  DeviceTopology topology() const override { return inner_->topology(); }
  Bytes slot_granularity() const override { return inner_->slot_granularity(); }
  Queue& queue() override { return inner_->queue(); }
  absl::StatusOr<std::unique_ptr<Slab>> CreateSlab(const SlabOptions& options) override {
    return inner_->CreateSlab(options);
  }
  absl::StatusOr<std::unique_ptr<AddressSpace>> ReserveAddressSpace(Slab* slab,
                                                                    int64_t pages) override {
    return inner_->ReserveAddressSpace(slab, pages);
  }
  absl::StatusOr<std::unique_ptr<CopyLane>> CreateCopyLane(CopyDirection direction,
                                                           CopySink* sink) override {
    return inner_->CreateCopyLane(direction, sink);
  }

 private:
  std::unique_ptr<EmulatedCudaCalls> calls_;
  std::unique_ptr<MonotonicClock> clock_;
  std::unique_ptr<MemoryLogger> logger_;
  std::unique_ptr<CudaDevice> inner_;
};

DeviceUnderTest UnderTest(const char* name, const EmulatedGpuOptions& gpu, int index,
                          int64_t slot_bytes) {
  const auto create = [gpu, index]() -> std::unique_ptr<Device> {
    auto calls = std::make_unique<EmulatedCudaCalls>(gpu);
    auto clock = std::make_unique<MonotonicClock>();
    auto logger = std::make_unique<MemoryLogger>();
    auto device = CreateCudaDevice(
        {.calls = calls.get(), .index = index, .clock = clock.get(), .logger = logger.get()});
    GANTRY_CHECK_OK(device.status());
    return std::make_unique<OwningDevice>(std::move(calls), std::move(clock), std::move(logger),
                                          *std::move(device));
  };
  return {.name = name, .create = create, .slot_bytes = Bytes(slot_bytes)};
}

INSTANTIATE_TEST_SUITE_P(
    EmulatedCuda, DeviceConformanceTest,
    ::testing::Values(
        UnderTest("Seed1", {.seed = 1}, 0, kGranularity),
        UnderTest("Seed2", {.seed = 2, .yields_max = 200}, 0, 2 * kGranularity),
        UnderTest("Seed3", {.seed = 3, .threads = 4, .yields_max = 100}, 0, kGranularity),
        UnderTest("AtOnce", {.seed = 4, .threads = 1, .yields_max = 0}, 0, kGranularity),
        UnderTest("Second", {.devices = 3, .seed = 5}, 1, kGranularity),
        UnderTest("Coarse", {.granularity = 512_KiB, .seed = 6}, 0, 512 << 10)),
    DeviceUnderTestName);

class CudaDeviceTest : public ::testing::Test {
 protected:
  absl::Status Create(const EmulatedGpuOptions& gpu, Bytes budget = Bytes(0), int index = 0) {
    device_.reset();
    calls_ = std::make_unique<EmulatedCudaCalls>(gpu);
    GANTRY_ASSIGN_OR_RETURN(device_, CreateCudaDevice({.calls = calls_.get(),
                                                       .index = index,
                                                       .memory_budget = budget,
                                                       .clock = &clock_,
                                                       .logger = &logger_}));
    return absl::OkStatus();
  }
  std::unique_ptr<Slab> MakeSlab(MemoryKind kind, int64_t slots) {
    auto slab =
        device_->CreateSlab({.kind = kind, .slot_bytes = Bytes(kGranularity), .slot_count = slots});
    GANTRY_CHECK_OK(slab.status());
    return *std::move(slab);
  }

  MonotonicClock clock_;
  MemoryLogger logger_;
  std::unique_ptr<EmulatedCudaCalls> calls_;
  std::unique_ptr<CudaDevice> device_;
};

TEST_F(CudaDeviceTest, SaysWhatIsMissing) {
  EXPECT_THAT(Create({.driver_version = 0}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "there is no NVIDIA driver on this machine; a GPU needs one for CUDA 13.0"));
  EXPECT_THAT(Create({.driver_version = 12040}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "is for CUDA 12.4; this program needs one for CUDA 13.0 or newer"));
  EXPECT_THAT(Create({.driver_version = 13010, .runtime_version = 13000}), IsOk());
  EXPECT_THAT(Create({.devices = 0}), StatusIs(absl::StatusCode::kNotFound, "shows none"));
  EXPECT_THAT(Create({}, Bytes(0), 1),
              StatusIs(absl::StatusCode::kNotFound, "GPU 1 is asked for; there is 1, GPU 0"));
  EXPECT_THAT(Create({.devices = 2}, Bytes(0), 2),
              StatusIs(absl::StatusCode::kNotFound, "there are 2, GPU 0 to 1"));
  EXPECT_THAT(Create({}, Bytes(0), -1), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Create({.compute_major = 7, .compute_minor = 5}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "GPU 0 (Emulated GPU) has compute capability 7.5; 8.0 or newer is needed"));
  EXPECT_THAT(Create({.compute_major = 8, .compute_minor = 0}), IsOk());
  EXPECT_THAT(Create({.prohibited = true}),
              StatusIs(absl::StatusCode::kUnavailable, "compute mode prohibited"));
  EXPECT_THAT(Create({.taken = true}),
              StatusIs(absl::StatusCode::kUnavailable, "taken by another process"));
  EXPECT_THAT(Create({.memory = 64_MiB}, 64_MiB), IsOk());
  EXPECT_THAT(Create({.memory = 64_MiB}, 64_MiB + Bytes(1)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "GPU 0 (Emulated GPU), which has 64.0 MiB free of 64.0 MiB"));
  EXPECT_THAT(Create({}, Bytes(-1)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(CudaDeviceTest, IsNamedByItsIndex) {
  ASSERT_THAT(Create({.devices = 3}, Bytes(0), 2), IsOk());
  EXPECT_EQ(device_->name(), "cuda:2");
  EXPECT_EQ(device_->topology(), DeviceTopology::kDiscrete);
  EXPECT_EQ(device_->slot_granularity(), Bytes(kGranularity));
}

TEST_F(CudaDeviceTest, MemoryOfOtherProcessesIsNotThere) {
  ASSERT_THAT(Create({.memory = 16 * Bytes(kGranularity)}), IsOk());
  calls_->SetUsedByOthers(10 * Bytes(kGranularity));
  EXPECT_THAT(
      device_->CreateSlab(
          {.kind = MemoryKind::kDevice, .slot_bytes = Bytes(kGranularity), .slot_count = 7}),
      StatusIs(absl::StatusCode::kResourceExhausted,
               "7 slots of 64.0 KiB need 448.0 KiB of GPU 0 (Emulated GPU); it has 384.0 "
               "KiB free of 1.0 MiB"));
  auto slab = MakeSlab(MemoryKind::kDevice, 6);
  EXPECT_EQ(slab->slot_count(), 6);
}

TEST_F(CudaDeviceTest, TheHostCannotTouchItsMemory) {
  ASSERT_THAT(Create({}), IsOk());
  auto slab = MakeSlab(MemoryKind::kDevice, 1);
  EXPECT_DEATH(std::memset(slab->parking(SlotId(0)), 0, 1), "");
}

TEST_F(CudaDeviceTest, WithoutVirtualMemorySlotsHaveNoHomes) {
  ASSERT_THAT(Create({.virtual_memory = false}), IsOk());
  {
    auto slab = MakeSlab(MemoryKind::kDevice, 3);
    EXPECT_THAT(device_->ReserveAddressSpace(slab.get(), 3),
                StatusIs(absl::StatusCode::kUnimplemented, "cannot map memory at fixed addresses"));
    auto host = MakeSlab(MemoryKind::kHostPinned, 2);
    std::fill_n(host->parking(SlotId(0)), kGranularity, std::byte{3});
    RecordingSink up_sink(nullptr);
    RecordingSink down_sink(nullptr);
    auto up = device_->CreateCopyLane(CopyDirection::kHostToDevice, &up_sink);
    auto down = device_->CreateCopyLane(CopyDirection::kDeviceToHost, &down_sink);
    ASSERT_THAT(up, IsOk());
    ASSERT_THAT(down, IsOk());
    (*up)->Submit({.destination = slab->parking(SlotId(2)),
                   .source = host->parking(SlotId(0)),
                   .bytes = Bytes(kGranularity),
                   .tag = 1});
    up_sink.WaitFor(1);
    (*down)->Submit({.destination = host->parking(SlotId(1)),
                     .source = slab->parking(SlotId(2)),
                     .bytes = Bytes(kGranularity),
                     .tag = 2});
    EXPECT_THAT(down_sink.WaitFor(1)[0].status, IsOk());
    EXPECT_EQ(host->parking(SlotId(1))[kGranularity - 1], std::byte{3});
  }
  device_.reset();
  EXPECT_THAT(calls_->misuse(), IsOk());
  EXPECT_EQ(calls_->live(), 0);
}

// ---- Operators ----

// Adds 1 to the first `count` words, as a launch function of kernels does it.
int AddOne(CudaStream stream, uint32_t* words, int64_t count) {
  auto* const runner = static_cast<StreamRunner*>(stream);
  return runner->Launch("AddOne", {.grid = {1}, .block = {1}}, [=] {
    for (int64_t i = 0; i < count; ++i) words[i] += 1;
  });
}

TEST_F(CudaDeviceTest, OperatorsRunInOrderWithCopiesAroundThem) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_THAT(Create({.seed = seed, .yields_max = 200}), IsOk());
    {
      auto slab = MakeSlab(MemoryKind::kDevice, 2);
      auto space = device_->ReserveAddressSpace(slab.get(), 4);
      ASSERT_THAT(space, IsOk());
      auto host = MakeSlab(MemoryKind::kHostPinned, 8);
      RecordingSink up_sink(nullptr);
      RecordingSink down_sink(nullptr);
      auto up = device_->CreateCopyLane(CopyDirection::kHostToDevice, &up_sink);
      auto down = device_->CreateCopyLane(CopyDirection::kDeviceToHost, &down_sink);
      ASSERT_THAT(up, IsOk());
      ASSERT_THAT(down, IsOk());
      for (int64_t block = 0; block < 4; ++block) {
        std::memset(host->parking(SlotId(block)), 0, kGranularity);
      }
      // Four blocks go through two slots: fetched, used three times, written back, unmapped.
      for (int64_t block = 0; block < 4; ++block) {
        const SlotId slot(block % 2);
        std::byte* const home = (*space)->base() + block * kGranularity;
        ASSERT_THAT((*space)->Map(block, slot), IsOk());
        (*up)->Submit({.destination = home,
                       .source = host->parking(SlotId(block)),
                       .bytes = Bytes(kGranularity),
                       .tag = 0});
        ASSERT_THAT(device_->queue().RunAfter(**up), IsOk());
        for (int use = 0; use < 3; ++use) {
          EXPECT_THAT(device_->Run("add",
                                   [&](CudaStream stream) {
                                     return AddOne(stream, reinterpret_cast<uint32_t*>(home), 5);
                                   }),
                      IsOk());
        }
        (*down)->Submit({.destination = host->parking(SlotId(4 + block)),
                         .source = home,
                         .bytes = Bytes(kGranularity),
                         .tag = 0});
        down_sink.WaitFor(static_cast<size_t>(block) + 1);
        EXPECT_THAT((*space)->Unmap(block), IsOk());
      }
      for (int64_t block = 4; block < 8; ++block) {
        const auto* words = reinterpret_cast<const uint32_t*>(host->parking(SlotId(block)));
        EXPECT_EQ(words[4], 3u);
        EXPECT_EQ(words[5], 0u);
      }
      up_sink.WaitFor(4);
    }
    device_.reset();
    EXPECT_THAT(calls_->misuse(), IsOk());
    EXPECT_EQ(calls_->live(), 0);
  }
}

TEST_F(CudaDeviceTest, AFailedOperatorIsNamedAndEverythingEnds) {
  ASSERT_THAT(Create({.yields_max = 0}), IsOk());
  auto slab = MakeSlab(MemoryKind::kDevice, 1);
  auto space = device_->ReserveAddressSpace(slab.get(), 2);
  ASSERT_THAT(space, IsOk());
  ASSERT_THAT((*space)->Map(0, SlotId(0)), IsOk());
  RecordingSink sink(nullptr);
  auto up = device_->CreateCopyLane(CopyDirection::kHostToDevice, &sink);
  ASSERT_THAT(up, IsOk());
  auto host = MakeSlab(MemoryKind::kHostPinned, 1);
  calls_->Hold();
  const auto add = [&](int64_t page, int64_t words) {
    auto* const home = reinterpret_cast<uint32_t*>((*space)->base() + page * kGranularity);
    return device_->Run(StrCat("h.", page, ".add"),
                        [&](CudaStream stream) { return AddOne(stream, home, words); });
  };
  EXPECT_THAT(add(0, 1), IsOk());
  EXPECT_THAT(add(1, 1), IsOk());  // its page is not there
  EXPECT_THAT(add(0, 1), IsOk());
  const auto point = device_->queue().Mark();
  ASSERT_THAT(point, IsOk());
  calls_->Resume();
  const auto failed =
      StatusIs(absl::StatusCode::kInternal,
               AllOf(HasSubstr("cudaErrorIllegalAddress"),
                     HasSubstr("operator h.1.add (the first of 2 that are not done)")));
  EXPECT_THAT(device_->queue().Wait(*point), failed);
  EXPECT_FALSE(device_->queue().Reached(*point));
  EXPECT_THAT(device_->queue().Mark(), IsOkAndHolds(*point));  // nothing new
  EXPECT_THAT(add(0, 1), failed);
  EXPECT_THAT((*space)->Unmap(0), failed);
  EXPECT_THAT(
      device_->CreateSlab(
          {.kind = MemoryKind::kDevice, .slot_bytes = Bytes(kGranularity), .slot_count = 1}),
      failed);
  (*up)->Submit({.destination = (*space)->base(),
                 .source = host->parking(SlotId(0)),
                 .bytes = Bytes(8),
                 .tag = 5});
  EXPECT_THAT(sink.WaitFor(1)[0].status, failed);
  EXPECT_THAT(device_->CreateCopyLane(CopyDirection::kDeviceToHost, &sink), failed);
}

TEST_F(CudaDeviceTest, ARefusedLaunchIsAnErrorOfItsOperator) {
  ASSERT_THAT(Create({}), IsOk());
  EXPECT_THAT(device_->Run("h.0.mlp", [](CudaStream) { return 9; }),
              StatusIs(absl::StatusCode::kInternal, "from a kernel of operator h.0.mlp"));
  EXPECT_THAT(device_->Run("h.0.mlp", [](CudaStream) { return 0; }), IsOk());
}

// ---- Failures of single calls ----

// What a run does with a device, from its creation to its end: all kinds of calls.
class Scenario {
 public:
  explicit Scenario(EmulatedCudaCalls* calls) : calls_(calls) {}

  absl::Status Run() {
    GANTRY_ASSIGN_OR_RETURN(
        auto device, CreateCudaDevice({.calls = calls_, .clock = &clock_, .logger = &logger_}));
    GANTRY_ASSIGN_OR_RETURN(auto slab, device->CreateSlab({.kind = MemoryKind::kDevice,
                                                           .slot_bytes = Bytes(kGranularity),
                                                           .slot_count = 2}));
    GANTRY_ASSIGN_OR_RETURN(auto host, device->CreateSlab({.kind = MemoryKind::kHostPinned,
                                                           .slot_bytes = Bytes(kGranularity),
                                                           .slot_count = 2}));
    GANTRY_ASSIGN_OR_RETURN(auto space, device->ReserveAddressSpace(slab.get(), 3));
    RecordingSink sink(nullptr);
    GANTRY_ASSIGN_OR_RETURN(auto up, device->CreateCopyLane(CopyDirection::kHostToDevice, &sink));
    GANTRY_ASSIGN_OR_RETURN(auto down, device->CreateCopyLane(CopyDirection::kDeviceToHost, &sink));
    size_t copies = 0;
    for (int64_t page = 0; page < 3; ++page) {
      const SlotId slot(page % 2);
      std::memset(host->parking(SlotId(0)), static_cast<int>(page), kGranularity);
      up->Submit({.destination = slab->parking(slot),
                  .source = host->parking(SlotId(0)),
                  .bytes = Bytes(kGranularity),
                  .tag = 0});
      GANTRY_RETURN_IF_ERROR(sink.WaitFor(++copies).back().status);
      GANTRY_RETURN_IF_ERROR(space->Map(page, slot));
      auto* const home = space->base() + page * kGranularity;
      GANTRY_RETURN_IF_ERROR(device->queue().RunAfter(*up));
      GANTRY_RETURN_IF_ERROR(device->Run("add", [&](CudaStream stream) {
        return AddOne(stream, reinterpret_cast<uint32_t*>(home), 2);
      }));
      GANTRY_RETURN_IF_ERROR(device->queue().FillWithZeros(home, Bytes(4)));
      down->Submit({.destination = host->parking(SlotId(1)),
                    .source = home,
                    .bytes = Bytes(kGranularity),
                    .tag = 0});
      GANTRY_RETURN_IF_ERROR(sink.WaitFor(++copies).back().status);
      GANTRY_CHECK(host->parking(SlotId(1))[3] == std::byte{0});
      GANTRY_CHECK(host->parking(SlotId(1))[4] == std::byte(page + 1));
      GANTRY_RETURN_IF_ERROR(device->queue().FillWithZeros(home, Bytes(8)));
      GANTRY_RETURN_IF_ERROR(space->Unmap(page));
    }
    return absl::OkStatus();
  }
  std::vector<std::string> warnings() const { return logger_.messages(); }

 private:
  EmulatedCudaCalls* calls_;
  MonotonicClock clock_;
  MemoryLogger logger_;
};

// Whatever call fails: an error with its name, or, of a call that gives something back, a warning
// and exactly that much left.
TEST_F(CudaDeviceTest, EveryCallMayFail) {
  const int64_t calls = [] {
    EmulatedCudaCalls counting({});
    Scenario scenario(&counting);
    GANTRY_CHECK_OK(scenario.Run());
    EXPECT_EQ(counting.live(), 0);
    return counting.calls();
  }();
  EXPECT_GT(calls, 50);
  int64_t errors = 0;
  int64_t warnings = 0;
  for (int64_t n = 0; n < calls; ++n) {
    SCOPED_TRACE(testing::Message() << "call " << n << " of " << calls);
    EmulatedCudaCalls failing({.failing_call = n, .call_error = CudaError::kInvalidValue});
    Scenario scenario(&failing);
    const absl::Status status = scenario.Run();
    EXPECT_THAT(failing.misuse(), IsOk());
    const bool warned = !scenario.warnings().empty();
    if (warned) {
      ++warnings;
      EXPECT_THAT(scenario.warnings()[0], HasSubstr("not given back"));
      EXPECT_THAT(scenario.warnings()[0], HasSubstr("cudaErrorInvalidValue"));
      // What could not be given back, and what cannot be while it is there.
      EXPECT_LE(failing.live(), 4) << scenario.warnings()[0];
      continue;
    }
    if (status.ok()) continue;  // a call that asks, and is asked again
    ++errors;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "cudaErrorInvalidValue"));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "cu"));
    EXPECT_EQ(failing.live(), 0) << status;
  }
  EXPECT_GT(errors, 40);
  EXPECT_GT(warnings, 8);
}

// The same with a lack of memory, and with work that fails on the device.
TEST_F(CudaDeviceTest, EveryCallMayLackMemory) {
  for (int64_t n = 0; n < 30; ++n) {
    EmulatedCudaCalls failing({.failing_call = n, .call_error = CudaError::kOutOfMemory});
    Scenario scenario(&failing);
    const absl::Status status = scenario.Run();
    if (status.ok()) continue;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, "out of memory"));
    EXPECT_EQ(failing.live(), 0) << n;
  }
}

TEST_F(CudaDeviceTest, EveryPieceOfWorkMayFail) {
  const int64_t works = [] {
    EmulatedCudaCalls counting({});
    Scenario scenario(&counting);
    GANTRY_CHECK_OK(scenario.Run());
    return counting.works();
  }();
  EXPECT_GT(works, 15);
  int64_t errors = 0;
  for (int64_t n = 0; n < works; ++n) {
    SCOPED_TRACE(testing::Message() << "work " << n << " of " << works);
    EmulatedCudaCalls failing({.failing_work = n, .work_error = CudaError::kUncorrectableMemory});
    Scenario scenario(&failing);
    const absl::Status status = scenario.Run();
    if (status.ok()) continue;  // the last work, which nobody waits for
    ++errors;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "can use the device no more"));
  }
  EXPECT_GT(errors, works / 2);
}

}  // namespace
}  // namespace gantry
