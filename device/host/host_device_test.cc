// The conformance suite on both topologies, and what is particular to host memory: faults, huge
// pages, exact residency, and other threads that map memory while slots move.
#include "device/host/host_device.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/random.h"
#include "base/testing/status_matchers.h"
#include "device/host/memory_limits.h"
#include "device/testing/device_conformance.h"
#include "device/testing/process_memory.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 77001;
constexpr int64_t kSmall = 64 * 1024;
constexpr int64_t kHuge = 2 << 20;

std::unique_ptr<Device> MakeDevice(DeviceTopology topology) {
  static MonotonicClock clock;  // stateless
  auto device = CreateHostDevice({.topology = topology, .clock = &clock});
  GANTRY_CHECK_OK(device.status());
  return *std::move(device);
}

DeviceUnderTest UnderTest(const char* name, DeviceTopology topology, int64_t slot_bytes) {
  return {.name = name,
          .create = [topology] { return MakeDevice(topology); },
          .slot_bytes = Bytes(slot_bytes)};
}

INSTANTIATE_TEST_SUITE_P(
    Host, DeviceConformanceTest,
    ::testing::Values(UnderTest("Unified", DeviceTopology::kUnified, kSmall),
                      UnderTest("Emulated", DeviceTopology::kDiscrete, kSmall),
                      UnderTest("EmulatedOnePage", DeviceTopology::kDiscrete, 4096),
                      UnderTest("UnifiedHuge", DeviceTopology::kUnified, kHuge)),
    DeviceUnderTestName);

// A device with one slab and one address space over it.
class HostDeviceTest : public ::testing::Test {
 protected:
  void Create(int64_t slot_bytes, int64_t slots, int64_t pages) {
    slot_bytes_ = slot_bytes;
    device_ = MakeDevice(DeviceTopology::kDiscrete);
    auto slab = device_->CreateSlab(
        {.kind = MemoryKind::kDevice, .slot_bytes = Bytes(slot_bytes), .slot_count = slots});
    ASSERT_THAT(slab, IsOk());
    slab_ = *std::move(slab);
    auto space = device_->ReserveAddressSpace(slab_.get(), pages);
    ASSERT_THAT(space, IsOk());
    space_ = *std::move(space);
    parking_ = slots > 0 ? slab_->parking(SlotId(0)) : nullptr;
  }
  std::byte* Parking(int64_t slot) const { return parking_ + slot * slot_bytes_; }
  std::byte* Page(int64_t page) const { return space_->base() + page * slot_bytes_; }
  std::span<const std::byte> SlabRange() const {
    return {parking_, static_cast<size_t>(slab_->slot_count() * slot_bytes_)};
  }
  std::span<const std::byte> SpaceRange() const {
    return {space_->base(), static_cast<size_t>(space_->page_count() * slot_bytes_)};
  }

  int64_t slot_bytes_ = 0;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Slab> slab_;
  std::unique_ptr<AddressSpace> space_;
  std::byte* parking_ = nullptr;
};

TEST_F(HostDeviceTest, NamesItsTopology) {
  EXPECT_EQ(MakeDevice(DeviceTopology::kUnified)->name(), "host");
  EXPECT_EQ(MakeDevice(DeviceTopology::kUnified)->topology(), DeviceTopology::kUnified);
  EXPECT_EQ(MakeDevice(DeviceTopology::kDiscrete)->name(), "emulated");
  EXPECT_EQ(MakeDevice(DeviceTopology::kDiscrete)->topology(), DeviceTopology::kDiscrete);
}

TEST_F(HostDeviceTest, RejectsNegativeLanes) {
  MonotonicClock clock;
  EXPECT_THAT(CreateHostDevice({.topology = DeviceTopology::kDiscrete,
                                .bandwidth_bytes_per_second = -1,
                                .clock = &clock}),
              StatusIs(absl::StatusCode::kInvalidArgument, "-1 bytes/s"));
  EXPECT_THAT(
      CreateHostDevice(
          {.topology = DeviceTopology::kDiscrete, .latency_nanoseconds = -1, .clock = &clock}),
      StatusIs(absl::StatusCode::kInvalidArgument, "-1 ns"));
}

TEST_F(HostDeviceTest, LanesHaveTheBandwidthAndLatencyAsked) {
  VirtualClock clock;
  auto device = CreateHostDevice({.topology = DeviceTopology::kDiscrete,
                                  .bandwidth_bytes_per_second = 1'000'000'000,
                                  .latency_nanoseconds = 250,
                                  .clock = &clock});
  ASSERT_THAT(device, IsOk());
  RecordingSink sink(&clock);
  std::vector<std::byte> memory(2000);
  auto lane = (*device)->CreateCopyLane(CopyDirection::kDeviceToHost, &sink);
  ASSERT_THAT(lane, IsOk());
  (*lane)->Submit({.destination = memory.data(),
                   .source = memory.data() + 1000,
                   .bytes = Bytes(1000),
                   .tag = 1});
  EXPECT_EQ(sink.WaitFor(1)[0].time, 1250);
}

TEST_F(HostDeviceTest, EverySlotIsPresentAndNoPageOfTheSpaceIs) {
  Create(kSmall, 5, 9);
  EXPECT_EQ(ResidentBytes(SlabRange()), Bytes(5 * kSmall));
  EXPECT_EQ(ResidentBytes(SpaceRange()), Bytes(0));
}

TEST_F(HostDeviceTest, TouchFaultsExactlyWhereNoSlotIs) {
  Create(kSmall, 3, 5);
  AccessProbe probe;
  const auto faults = [&] {
    std::vector<bool> result;
    for (int64_t slot = 0; slot < 3; ++slot) result.push_back(probe.Faults(Parking(slot)));
    for (int64_t page = 0; page < 5; ++page) {
      result.push_back(probe.Faults(Page(page)));
      EXPECT_EQ(probe.Faults(Page(page) + kSmall - 1), result.back());
    }
    return result;
  };
  EXPECT_EQ(faults(), (std::vector<bool>{0, 0, 0, 1, 1, 1, 1, 1}));
  ASSERT_THAT(space_->Map(4, SlotId(1)), IsOk());
  EXPECT_EQ(faults(), (std::vector<bool>{0, 1, 0, 1, 1, 1, 1, 0}));
  ASSERT_THAT(space_->Map(3, SlotId(0)), IsOk());
  EXPECT_EQ(faults(), (std::vector<bool>{1, 1, 0, 1, 1, 1, 0, 0}));
  ASSERT_THAT(space_->Unmap(4), IsOk());
  EXPECT_EQ(faults(), (std::vector<bool>{1, 0, 0, 1, 1, 1, 0, 1}));
}

TEST_F(HostDeviceTest, HugeSlotsKeepHugePages) {
  const Bytes all = Bytes(3 * 2 * kHuge);
  if (!HugePagesAvailable(all)) GTEST_SKIP() << "this machine gives no 2 MiB pages now";
  Create(2 * kHuge, 3, 6);
  ASSERT_EQ(HugeBytes(SlabRange()), all);
  for (int64_t round = 0; round < 10; ++round) {
    for (int64_t slot = 0; slot < 3; ++slot) {
      ASSERT_THAT(space_->Map((slot * 2 + round) % 6, SlotId(slot)), IsOk());
      *Page((slot * 2 + round) % 6) = std::byte{1};
    }
    EXPECT_EQ(HugeBytes(SpaceRange()), all);
    for (int64_t slot = 0; slot < 3; ++slot) {
      ASSERT_THAT(space_->Unmap((slot * 2 + round) % 6), IsOk());
    }
    EXPECT_EQ(HugeBytes(SlabRange()), all);
  }
}

// What MappingBudget promises: never more than two mappings a slot.
TEST_F(HostDeviceTest, MappingsStayWithinTwoPerSlot) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  constexpr int64_t kSlots = 40;
  Create(4096, kSlots, 2 * kSlots + 1);
  const Random random({.seed = kSeed, .stream = 1});
  std::vector<bool> mapped(kSlots);  // slot s goes to page 2s+1, where nothing can merge
  int64_t most = 0;
  for (uint64_t round = 0; round < 600; ++round) {
    // Long stretches of more mapping than unmapping and the reverse, so that both ends are visited.
    const int64_t slot = random.Below(kSlots, 2 * round);
    const bool want = (random.Below(5, 2 * round + 1) > 0) == (round / 150 % 2 == 0);
    if (mapped[static_cast<size_t>(slot)] == want) continue;
    mapped[static_cast<size_t>(slot)] = want;
    ASSERT_THAT(want ? space_->Map(2 * slot + 1, SlotId(slot)) : space_->Unmap(2 * slot + 1),
                IsOk());
    most = std::max(most, MappingsIn(SlabRange()) + MappingsIn(SpaceRange()));
    ASSERT_LE(most, 2 * kSlots + 2);
  }
  EXPECT_GT(most, kSlots);  // the test did spread them
}

TEST_F(HostDeviceTest, MappingsAndResidencyReturnToTheirBaseline) {
  constexpr int64_t kSlots = 16;
  Create(kSmall, kSlots, 40);
  space_.reset();
  slab_.reset();
  const int64_t mappings = CountMappings();
  const Bytes resident = ProcessResidentBytes();
  for (int64_t round = 0; round < 10; ++round) {
    Create(kSmall, kSlots, 40);
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      ASSERT_THAT(space_->Map((slot * 7 + round) % 40, SlotId(slot)), IsOk());
    }
    for (int64_t slot = 0; slot < kSlots; slot += 3) {
      ASSERT_THAT(space_->Unmap((slot * 7 + round) % 40), IsOk());
    }
    EXPECT_EQ(ResidentBytes(SlabRange()) + ResidentBytes(SpaceRange()), Bytes(kSlots * kSmall));
    space_.reset();
    EXPECT_EQ(MappingsIn(SlabRange()), 1);
    EXPECT_EQ(ResidentBytes(SlabRange()), Bytes(kSlots * kSmall));
    slab_.reset();
  }
  if (kSanitized) GTEST_SKIP() << "figures of the process include the sanitizer's shadow";
  EXPECT_LE(CountMappings(), mappings + 2);  // the heap may have grown
  EXPECT_LE(ProcessResidentBytes(), resident + Bytes(kSlots * kSmall));
}

TEST_F(HostDeviceTest, MoreSlotsThanMappingsAreResourceExhausted) {
  const auto limit = MappingLimit();
  ASSERT_TRUE(limit.has_value());
  auto device = MakeDevice(DeviceTopology::kUnified);
  const int64_t slots = *limit / 2;
  EXPECT_THAT(device->CreateSlab(
                  {.kind = MemoryKind::kDevice, .slot_bytes = Bytes(4096), .slot_count = slots}),
              StatusIs(absl::StatusCode::kResourceExhausted, "sysctl -w vm.max_map_count="));
  // Slots that never move are one mapping, however many they are.
  if (Bytes(slots * 4096) > 512_MiB) GTEST_SKIP() << "vm.max_map_count is " << *limit;
  EXPECT_THAT(
      device->CreateSlab(
          {.kind = MemoryKind::kHostPinned, .slot_bytes = Bytes(4096), .slot_count = slots}),
      IsOk());
}

// Maps, marks, checks and unmaps memory of the size of a slot, as fast as it can, and now and then
// from the heap: were a move to leave a hole, this would land in it, and one of the two would
// destroy the other's bytes.
void Storm(uint64_t stream, const std::atomic<bool>& stop, std::atomic<int64_t>& rounds) {
  const Random random({.seed = kSeed, .stream = stream});
  for (uint64_t round = 0; !stop.load(); ++round) {
    const auto mark = static_cast<unsigned char>(random.Bits(round));
    void* mapped =
        mmap(nullptr, kSmall, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    GANTRY_CHECK(mapped != MAP_FAILED);
    auto* bytes = static_cast<unsigned char*>(mapped);
    GANTRY_CHECK_EQ(bytes[kSmall - 1], 0);  // fresh memory, not a slot's
    bytes[0] = mark;
    if (round % 16 == 0) {
      std::vector<unsigned char> heap(200'000, mark);  // beyond malloc's mmap threshold
      GANTRY_CHECK_EQ(std::count(heap.begin(), heap.end(), mark), 200'000);
    }
    GANTRY_CHECK_EQ(bytes[0], mark);
    GANTRY_CHECK_EQ(munmap(mapped, kSmall), 0);
    rounds.fetch_add(1);
  }
}

TEST_F(HostDeviceTest, OtherThreadsMayMapMemoryWhileSlotsMove) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  constexpr int64_t kSlots = 8;
  constexpr int64_t kPages = 24;
  Create(kSmall, kSlots, kPages);
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    std::memset(Parking(slot), static_cast<int>(slot) + 1, kSmall);
  }
  // The kernel takes the highest gap that fits: with the others plugged, that is a hole in the
  // slab.
  std::vector<void*> plugs;
  for (int i = 0; i < 256; ++i) {
    plugs.push_back(mmap(nullptr, kSmall, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  std::atomic<bool> stop = false;
  std::atomic<int64_t> rounds = 0;
  std::vector<std::thread> storms;
  for (uint64_t stream = 10; stream < 12; ++stream) {
    storms.emplace_back([&, stream] { Storm(stream, stop, rounds); });
  }
  const Random random({.seed = kSeed, .stream = 2});
  for (uint64_t round = 0; round < 3000 || rounds.load() < 100; ++round) {
    const int64_t slot = random.Below(kSlots, 2 * round);
    const int64_t page = slot * 3 + random.Below(3, 2 * round + 1);
    GANTRY_CHECK_OK(space_->Map(page, SlotId(slot)));
    const auto mark = static_cast<std::byte>(slot + 1);
    GANTRY_CHECK_EQ(std::count(Page(page), Page(page) + kSmall, mark), kSmall) << "round " << round;
    GANTRY_CHECK_OK(space_->Unmap(page));
  }
  stop.store(true);
  for (std::thread& storm : storms) storm.join();
  for (void* plug : plugs) ASSERT_EQ(munmap(plug, kSmall), 0);
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    EXPECT_EQ(std::count(Parking(slot), Parking(slot) + kSmall, static_cast<std::byte>(slot + 1)),
              kSmall);
  }
  EXPECT_EQ(ResidentBytes(SlabRange()), Bytes(kSlots * kSmall));
}

// A stray reader sees the slot's bytes or faults, at both addresses and at every instant of a move:
// never a page of zeros.
TEST_F(HostDeviceTest, AStrayReaderNeverSeesGarbage) {
  Create(kSmall, 1, 1);
  constexpr int kMark = 0x5c;
  std::memset(Parking(0), kMark, kSmall);
  std::atomic<bool> stop = false;
  std::atomic<int64_t> seen = 0;
  std::atomic<int64_t> faulted = 0;
  std::thread reader([&, addresses = std::vector<std::byte*>{Parking(0), Page(0)}] {
    AccessProbe probe;
    while (!stop.load()) {
      for (const std::byte* address : addresses) {
        const int value = probe.Read(address + 8192);
        GANTRY_CHECK(value == -1 || value == kMark) << value;
        (value == -1 ? faulted : seen).fetch_add(1);
      }
    }
  });
  for (int64_t round = 0; round < 5'000 || seen.load() < 1000 || faulted.load() < 1000; ++round) {
    GANTRY_CHECK_OK(space_->Map(0, SlotId(0)));
    GANTRY_CHECK_OK(space_->Unmap(0));
  }
  stop.store(true);
  reader.join();
  EXPECT_EQ(ResidentBytes(SlabRange()) + ResidentBytes(SpaceRange()), Bytes(kSmall));
}

class HostDeviceDeathTest : public HostDeviceTest {
 protected:
  static void Touch(std::byte* address) {
    std::signal(SIGSEGV, SIG_DFL);  // the sanitizers have a handler of their own
    *static_cast<volatile std::byte*>(address) = std::byte{1};
  }
};

TEST_F(HostDeviceDeathTest, TouchingAnEvictedPageIsASegmentationFault) {
  Create(kSmall, 2, 2);
  EXPECT_EXIT(Touch(Page(1)), ::testing::KilledBySignal(SIGSEGV), "");
  ASSERT_THAT(space_->Map(1, SlotId(0)), IsOk());
  Touch(Page(1));
  EXPECT_EXIT(Touch(Parking(0)), ::testing::KilledBySignal(SIGSEGV), "");
  ASSERT_THAT(space_->Unmap(1), IsOk());
  Touch(Parking(0));
  EXPECT_EXIT(Touch(Page(1) + kSmall - 1), ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(HostDeviceDeathTest, MisuseAborts) {
  Create(kSmall, 2, 3);
  EXPECT_DEATH(static_cast<void>(space_->Unmap(0)), "page 0 has no slot");
  EXPECT_DEATH(static_cast<void>(space_->Map(3, SlotId(0))), "page 3 of 3");
  EXPECT_DEATH(static_cast<void>(space_->Map(-1, SlotId(0))), "page -1 of 3");
  EXPECT_DEATH(static_cast<void>(space_->Map(0, SlotId(2))), "slot#2 of 2 slots");
  EXPECT_DEATH(slab_->parking(SlotId(-1)), "slot#-1 of 2 slots");
  ASSERT_THAT(space_->Map(0, SlotId(0)), IsOk());
  EXPECT_DEATH(static_cast<void>(space_->Map(0, SlotId(1))), "page 0 has a slot");
  EXPECT_DEATH(static_cast<void>(space_->Map(1, SlotId(0))), "slot#0 is already mapped");
  EXPECT_DEATH(slab_->parking(SlotId(0)), "slot#0 is mapped at a home address");
  EXPECT_DEATH(slab_.reset(), "destroyed before its address spaces");
}

TEST_F(HostDeviceDeathTest, HostSlotsHaveNoHomes) {
  auto device = MakeDevice(DeviceTopology::kUnified);
  auto slab = device->CreateSlab(
      {.kind = MemoryKind::kHostPinned, .slot_bytes = Bytes(4096), .slot_count = 1});
  ASSERT_THAT(slab, IsOk());
  EXPECT_DEATH(static_cast<void>(device->ReserveAddressSpace(slab->get(), 1)), "have no homes");
}

}  // namespace
}  // namespace gantry
