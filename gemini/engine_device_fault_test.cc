// Faults of the device under a training run: the n-th mapping of a slot fails, for many n. After
// each: a typed error, at once and from every later call; never a hang, never wrong numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "gemini/testing/toy_model.h"
#include "nvme/fault_injection.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSlot = 2 * kChunkGranularityElements;

// Which mapping fails, counted over all address spaces of a device.
struct MapFault {
  std::atomic<int64_t> maps{0};
  int64_t failing = -1;
};

class FaultySpace final : public AddressSpace {
 public:
  FaultySpace(std::unique_ptr<AddressSpace> inner, MapFault* fault)
      : inner_(std::move(inner)), fault_(fault) {}
  std::byte* base() const override { return inner_->base(); }
  int64_t page_count() const override { return inner_->page_count(); }
  absl::Status Map(int64_t page, SlotId slot) override {
    if (fault_->maps++ == fault_->failing) return absl::InternalError("injected: no mapping left");
    return inner_->Map(page, slot);
  }
  absl::Status Unmap(int64_t page) override { return inner_->Unmap(page); }

 private:
  std::unique_ptr<AddressSpace> inner_;
  MapFault* fault_;
};

class FaultyDevice final : public Device {
 public:
  FaultyDevice(Device* inner, MapFault* fault) : inner_(inner), fault_(fault) {}
  std::string_view name() const override { return inner_->name(); }
  DeviceTopology topology() const override { return inner_->topology(); }
  Bytes slot_granularity() const override { return inner_->slot_granularity(); }
  Queue& queue() override { return inner_->queue(); }
  absl::StatusOr<std::unique_ptr<Slab>> CreateSlab(const SlabOptions& options) override {
    return inner_->CreateSlab(options);
  }
  absl::StatusOr<std::unique_ptr<AddressSpace>> ReserveAddressSpace(Slab* slab,
                                                                    int64_t pages) override {
    GANTRY_ASSIGN_OR_RETURN(auto space, inner_->ReserveAddressSpace(slab, pages));
    return std::make_unique<FaultySpace>(std::move(space), fault_);
  }
  absl::StatusOr<std::unique_ptr<CopyLane>> CreateCopyLane(CopyDirection direction,
                                                           CopySink* sink) override {
    return inner_->CreateCopyLane(direction, sink);
  }

 private:
  Device* inner_;
  MapFault* fault_;
};

class EngineDeviceFaultTest : public ::testing::TestWithParam<DeviceTopology> {
 protected:
  void SetUp() override {
    auto team = ThreadTeam::Create({.threads = 2});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
    auto device = CreateHostDevice({.topology = GetParam(), .clock = &clock_});
    ASSERT_THAT(device, IsOk());
    device_ = *std::move(device);
  }

  absl::StatusOr<std::unique_ptr<Engine>> Make(Device* device, IoBackendFactory make_io = {}) {
    return Engine::Create({.device = device,
                           .team = team_.get(),
                           .clock = &clock_,
                           .logger = &logger_,
                           .files = &files_,
                           .device_memory = Bytes(16 * kSlot),
                           .host_memory = Bytes(14 * kSlot),
                           .spill_directories = {::testing::TempDir()},
                           .make_io = std::move(make_io),
                           .static_fractions = {},
                           .chunk_elements = kChunkGranularityElements});
  }

  absl::StatusOr<uint64_t> Train(MapFault* fault) {
    FaultyDevice device(device_.get(), fault);
    GANTRY_ASSIGN_OR_RETURN(auto engine, Make(&device));
    ToyModel model(engine.get(), {.layers = 3});
    GANTRY_RETURN_IF_ERROR(Run(engine.get(), model));
    return model.Hash(StateKind::kParameter);
  }

  static absl::Status Run(Engine* engine, ToyModel& model) {
    GANTRY_RETURN_IF_ERROR(model.Register());
    GANTRY_RETURN_IF_ERROR(model.TrainStep(Hyper(1)).status());
    GANTRY_RETURN_IF_ERROR(engine->Seal());
    GANTRY_RETURN_IF_ERROR(model.Initialize());
    for (int64_t step = 1; step <= 2; ++step) {
      GANTRY_RETURN_IF_ERROR(model.TrainStep(Hyper(step)).status());
    }
    return engine->Drain();
  }

  static OptimizerStep Hyper(int64_t step) {
    return {.learning_rate = 1e-2, .step = step, .max_gradient_norm = 1.0};
  }

  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
};

TEST_P(EngineDeviceFaultTest, AnyFailedMappingEndsTheRunWithItsError) {
  MapFault healthy;
  const auto expected = Train(&healthy);
  ASSERT_THAT(expected, IsOk());
  ASSERT_GT(healthy.maps, 25);
  int64_t failed = 0;
  for (int64_t n = 0; n < healthy.maps; n += 1 + healthy.maps / 40) {
    SCOPED_TRACE(StrCat("mapping ", n, " of ", healthy.maps.load()));
    MapFault fault;
    fault.failing = n;
    const auto result = Train(&fault);
    if (result.ok()) {
      // This run needed fewer mappings, or the failed one came after the last answer.
      EXPECT_EQ(*result, *expected);
      continue;
    }
    ++failed;
    EXPECT_THAT(result.status(),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("injected: no mapping left")));
  }
  EXPECT_GT(failed, 15);
}

// What an operator asked for is there, only what was fetched ahead for others is not: it runs, and
// the next one gets the error.
TEST_P(EngineDeviceFaultTest, AFailedFetchAheadDoesNotTakeTheLeaseAway) {
  MapFault fault;
  FaultyDevice device(device_.get(), &fault);
  auto engine = Make(&device);
  ASSERT_THAT(engine, IsOk());
  std::vector<TensorId> tensors;
  for (int i = 0; i < 6; ++i) {
    const auto id = (*engine)->Register({.name = StrCat("t", i),
                                         .shape = {kChunkGranularityElements},
                                         .dtype = DType::kBF16,
                                         .trainability = Trainability::kFrozen},
                                        {});
    ASSERT_THAT(id, IsOk());
    tensors.push_back(*id);
  }
  const auto acquire = [&](size_t i) {
    const ParameterUse use{tensors[i], ParameterAccess::kRead};
    return (*engine)->Acquire({&use, 1}, "read", Phase::kForward);
  };
  ASSERT_THAT((*engine)->BeginStep({.optimizer = {}}), IsOk());
  ASSERT_THAT((*engine)->BeginMicroBatch(), IsOk());
  for (size_t i = 0; i < tensors.size(); ++i) ASSERT_THAT(acquire(i), IsOk());
  ASSERT_THAT((*engine)->EndStep(), IsOk());
  ASSERT_THAT((*engine)->Seal(), IsOk());
  fault.failing = 1;  // 0: the operator's own
  ASSERT_THAT((*engine)->BeginStep({.optimizer = {}}), IsOk());
  ASSERT_THAT((*engine)->BeginMicroBatch(), IsOk());
  {
    const auto lease = acquire(0);
    ASSERT_THAT(lease, IsOk());
    EXPECT_EQ((*lease)[0].parameter[0], std::byte{0});
  }
  const auto injected = StatusIs(absl::StatusCode::kInternal, "injected: no mapping left");
  EXPECT_THAT((*engine)->Drain(), injected);
  EXPECT_THAT(acquire(1), injected);
}

TEST_P(EngineDeviceFaultTest, AfterAFailureEveryCallReturnsIt) {
  auto engine =
      Make(device_.get(),
           [](const IoBackendOptions& options) -> absl::StatusOr<std::unique_ptr<IoBackend>> {
             auto faulty = std::make_unique<FaultyIoBackend>(
                 [options](IoSink* sink) {
                   IoBackendOptions inner = options;
                   inner.sink = sink;
                   return CreateIoBackend(inner);
                 },
                 options.sink);
             GANTRY_RETURN_IF_ERROR(faulty->status());
             faulty->FailRequest(5, DataLoss("injected EIO"));
             return faulty;
           });
  ASSERT_THAT(engine, IsOk());
  {
    ToyModel model(engine->get(), {.layers = 3});
    const auto injected = StatusIs(absl::StatusCode::kDataLoss, "injected EIO");
    ASSERT_THAT(Run(engine->get(), model), injected);
    EXPECT_THAT((*engine)->Drain(), injected);
    std::byte bytes[8];
    const absl::Status read = (*engine)->ReadState(StateKind::kParameter, TensorId(0), 0, bytes);
    // Inside a step, state is refused for that reason.
    EXPECT_THAT(read, ::testing::AnyOf(injected, StatusIs(absl::StatusCode::kFailedPrecondition)));
    static_cast<void>((*engine)->EndStep());
    EXPECT_THAT((*engine)->ReadState(StateKind::kParameter, TensorId(0), 0, bytes), injected);
    EXPECT_THAT((*engine)->WriteState(StateKind::kMaster, TensorId(0), 0, bytes), injected);
    EXPECT_THAT((*engine)->BeginStep({.optimizer = {}}), injected);
  }
  engine->reset();
}

INSTANTIATE_TEST_SUITE_P(Topologies, EngineDeviceFaultTest,
                         ::testing::Values(DeviceTopology::kUnified, DeviceTopology::kDiscrete),
                         [](const auto& info) {
                           return info.param == DeviceTopology::kUnified ? "unified" : "discrete";
                         });

}  // namespace
}  // namespace gantry
