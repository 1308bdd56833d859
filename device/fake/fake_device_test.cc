// The conformance suite on a lane without threads, virtual time, capacity, and each injected fault.
#include "device/fake/fake_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/testing/status_matchers.h"
#include "device/activation_arena.h"
#include "device/slot_pool.h"
#include "device/testing/device_conformance.h"
#include "device/testing/recording_sink.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSlot = 64 * 1024;

// Clock, loop and faults of a device, kept alive by the closures that use them.
struct World {
  VirtualClock clock;
  EventLoop loop{{.clock = &clock, .seed = 5}};
  FaultPlan faults{{}};
};

DeviceUnderTest UnderTest(const char* name, DeviceTopology topology, int64_t bandwidth) {
  auto world = std::make_shared<World>();  // shared: both closures use it
  return {.name = name,
          .create =
              [=] {
                auto device = CreateFakeDevice({.topology = topology,
                                                .bandwidth_bytes_per_second = bandwidth,
                                                .latency = bandwidth == 0 ? 0 : 1000,
                                                .clock = &world->clock,
                                                .loop = &world->loop,
                                                .faults = &world->faults});
                GANTRY_CHECK_OK(device.status());
                return *std::move(device);
              },
          .slot_bytes = Bytes(kSlot),
          .run_next = [=] { return world->loop.RunNext(); }};
}

INSTANTIATE_TEST_SUITE_P(
    Fake, DeviceConformanceTest,
    ::testing::Values(UnderTest("Unified", DeviceTopology::kUnified, 1'000'000'000),
                      UnderTest("Discrete", DeviceTopology::kDiscrete, 1'000'000'000),
                      UnderTest("Timeless", DeviceTopology::kDiscrete, 0)),
    DeviceUnderTestName);

class FakeDeviceTest : public ::testing::Test {
 protected:
  void Create(std::vector<Fault> faults, FakeDeviceOptions options = Defaults()) {
    faults_ = std::make_unique<FaultPlan>(std::move(faults));
    options.clock = &clock_;
    options.loop = &loop_;
    options.faults = faults_.get();
    auto device = CreateFakeDevice(options);
    ASSERT_THAT(device, IsOk());
    device_ = *std::move(device);
  }
  static FakeDeviceOptions Defaults() {
    return {.topology = DeviceTopology::kDiscrete,
            .bandwidth_bytes_per_second = 1'000'000'000,
            .latency = 500,
            .clock = nullptr,
            .loop = nullptr,
            .faults = nullptr};
  }
  absl::StatusOr<std::unique_ptr<Slab>> MakeSlab(MemoryKind kind, int64_t slots) {
    return device_->CreateSlab({.kind = kind, .slot_bytes = Bytes(kSlot), .slot_count = slots});
  }

  VirtualClock clock_;
  EventLoop loop_{{.clock = &clock_, .seed = 1}};
  std::unique_ptr<FaultPlan> faults_;
  std::unique_ptr<Device> device_;
  RecordingSink sink_{&clock_};
};

TEST_F(FakeDeviceTest, CopiesTakeLatencyAndBytesOverBandwidthOneAfterTheOther) {
  Create({});
  auto lane = device_->CreateCopyLane(CopyDirection::kHostToDevice, &sink_);
  ASSERT_THAT(lane, IsOk());
  std::vector<std::byte> source(4000, std::byte{7});
  std::vector<std::byte> destination(4000);
  const auto submit = [&](int64_t bytes, uint64_t tag) {
    (*lane)->Submit({.destination = destination.data(),
                     .source = source.data(),
                     .bytes = Bytes(bytes),
                     .tag = tag});
  };
  submit(4000, 1);
  submit(0, 2);
  EXPECT_EQ(destination[0], std::byte{0});  // not before its time
  ASSERT_TRUE(loop_.RunNext());
  EXPECT_EQ(destination, source);
  clock_.Advance(10'000);
  submit(1000, 3);
  while (loop_.RunNext()) {
  }
  const auto done = sink_.completions();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].time, 500 + 4000);
  EXPECT_EQ(done[1].tag, 2u);
  EXPECT_EQ(done[2].time, 4500 + 10'000 + 500 + 1000);
  EXPECT_EQ((*lane)->counters().bytes, 5000);
  EXPECT_EQ((*lane)->counters().busy_nanoseconds, 4500 + 500 + 1500);
}

TEST_F(FakeDeviceTest, CopiesOnOneLaneStayInOrderWhenTheyAreDueTogether) {
  FakeDeviceOptions options = Defaults();
  options.latency = 0;
  options.bandwidth_bytes_per_second = 0;
  Create({}, options);
  auto lane = device_->CreateCopyLane(CopyDirection::kHostToDevice, &sink_);
  ASSERT_THAT(lane, IsOk());
  for (uint64_t tag = 0; tag < 50; ++tag) {
    (*lane)->Submit({.destination = nullptr, .source = nullptr, .bytes = Bytes(0), .tag = tag});
  }
  lane->reset();  // finishes them
  const auto done = sink_.completions();
  ASSERT_EQ(done.size(), 50u);
  for (uint64_t tag = 0; tag < 50; ++tag) EXPECT_EQ(done[tag].tag, tag);
  EXPECT_EQ(clock_.Now(), 0);
}

TEST_F(FakeDeviceTest, CapacityIsOfDeviceSlabsAndComesBack) {
  FakeDeviceOptions options = Defaults();
  options.capacity = Bytes(4 * kSlot);
  Create({}, options);
  EXPECT_THAT(MakeSlab(MemoryKind::kDevice, 5),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("256.0 KiB free")));
  auto first = MakeSlab(MemoryKind::kDevice, 3);
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(MakeSlab(MemoryKind::kDevice, 2), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(MakeSlab(MemoryKind::kHostPinned, 50), IsOk());
  EXPECT_THAT(MakeSlab(MemoryKind::kDevice, 1), IsOk());
  first->reset();
  EXPECT_THAT(MakeSlab(MemoryKind::kDevice, 4), IsOk());
}

TEST_F(FakeDeviceTest, TheNamedSlabMappingAndLaneFail) {
  Create({{.point = FaultPoint::kSlab, .first = 1, .error_number = ENOMEM},
          {.point = FaultPoint::kAddresses, .first = 0, .error_number = ENOMEM},
          {.point = FaultPoint::kMap, .first = 1, .error_number = ENOMEM},
          {.point = FaultPoint::kUnmap, .first = 0, .error_number = EFAULT},
          {.point = FaultPoint::kCopyLane, .first = 0, .error_number = ENODEV}});
  auto slab = MakeSlab(MemoryKind::kDevice, 2);
  ASSERT_THAT(slab, IsOk());
  EXPECT_THAT(MakeSlab(MemoryKind::kDevice, 2),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOMEM")));
  EXPECT_THAT(device_->ReserveAddressSpace(slab->get(), 4),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("4 pages")));
  auto space = device_->ReserveAddressSpace(slab->get(), 4);
  ASSERT_THAT(space, IsOk());
  ASSERT_THAT((*space)->Map(2, SlotId(0)), IsOk());
  EXPECT_THAT((*space)->Map(3, SlotId(1)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("at page 3: ENOMEM")));
  // It went wrong before anything moved.
  std::memset((*slab)->parking(SlotId(1)), 1, kSlot);
  ASSERT_THAT((*space)->Map(3, SlotId(1)), IsOk());
  EXPECT_EQ((*space)->base()[3 * kSlot], std::byte{1});
  EXPECT_THAT((*space)->Unmap(3), StatusIs(absl::StatusCode::kInternal, HasSubstr("EFAULT")));
  EXPECT_EQ((*space)->base()[3 * kSlot], std::byte{1});
  EXPECT_THAT((*space)->Unmap(3), IsOk());
  EXPECT_THAT(device_->CreateCopyLane(CopyDirection::kDeviceToHost, &sink_),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("ENODEV")));
  EXPECT_EQ(faults_->struck(), 5);
}

TEST_F(FakeDeviceTest, CopiesFailFallShortAndDawdle) {
  Create({{.point = FaultPoint::kCopy, .first = 0},
          {.point = FaultPoint::kCopy, .first = 1, .effect = FaultEffect::kShort},
          {.point = FaultPoint::kCopy, .first = 2, .effect = FaultEffect::kSlow}});
  auto lane = device_->CreateCopyLane(CopyDirection::kDeviceToHost, &sink_);
  ASSERT_THAT(lane, IsOk());
  const std::vector<std::byte> source(1000, std::byte{7});
  std::vector<std::vector<std::byte>> destinations(4, std::vector<std::byte>(1000));
  for (size_t i = 0; i < 4; ++i) {
    (*lane)->Submit({.destination = destinations[i].data(),
                     .source = source.data(),
                     .bytes = Bytes(1000),
                     .tag = i});
  }
  while (loop_.RunNext()) {
  }
  const auto done = sink_.completions();
  ASSERT_EQ(done.size(), 4u);
  const auto failed = StatusIs(absl::StatusCode::kDataLoss, HasSubstr("device to host"));
  EXPECT_THAT(done[0].status, failed);
  EXPECT_THAT(done[1].status, failed);
  EXPECT_THAT(done[2].status, IsOk());
  EXPECT_THAT(done[3].status, IsOk());
  EXPECT_EQ(destinations[0][0], std::byte{0});
  EXPECT_EQ(destinations[1][499], std::byte{7});
  EXPECT_EQ(destinations[1][500], std::byte{0});
  EXPECT_EQ(destinations[2], source);
  EXPECT_EQ(done[2].time - done[1].time, 50 * 1500);
  EXPECT_EQ(done[3].time - done[2].time, 1500);
}

// Unmapping may fail for good, as with too many mappings of the process. Nobody aborts for that.
TEST_F(FakeDeviceTest, AnArenaThatCannotUnmapGivesItsSlotsBack) {
  class Source final : public SlotSource {
   public:
    explicit Source(SlotPool* pool) : pool_(pool) {}
    absl::StatusOr<SlotId> AcquireActivationSlot() override {
      return *pool_->TryAcquire(MemoryTag::kActivation);
    }
    void ReleaseActivationSlot(SlotId slot) override { pool_->Release(slot); }

   private:
    SlotPool* pool_;
  };
  Create({{.point = FaultPoint::kUnmap, .first = 1, .count = 1000, .error_number = ENOMEM}});
  auto slab = MakeSlab(MemoryKind::kDevice, 4);
  ASSERT_THAT(slab, IsOk());
  auto space = device_->ReserveAddressSpace(slab->get(), 8);
  ASSERT_THAT(space, IsOk());
  SlotPool pool(slab->get());
  Source source(&pool);
  {
    ActivationArena arena(*std::move(space), Bytes(kSlot), &source);
    ASSERT_THAT(arena.Allocate(3 * kSlot), IsOk());
    EXPECT_EQ(arena.Trim(0), 1);
    EXPECT_EQ(pool.free_slots(), 2);
  }
  EXPECT_EQ(pool.free_slots(), 4);
  EXPECT_EQ(faults_->struck(), 2);
}

TEST_F(FakeDeviceTest, RefusesNegativeOptions) {
  FaultPlan faults({});
  FakeDeviceOptions options = Defaults();
  options.clock = &clock_;
  options.loop = &loop_;
  options.faults = &faults;
  options.latency = -1;
  EXPECT_THAT(CreateFakeDevice(options), StatusIs(absl::StatusCode::kInvalidArgument));
  options.latency = 0;
  options.bandwidth_bytes_per_second = -1;
  EXPECT_THAT(CreateFakeDevice(options), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace gantry
