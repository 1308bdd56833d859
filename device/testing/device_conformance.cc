#include "device/testing/device_conformance.h"

#include <algorithm>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/random.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 20240611;

// A value that differs in every word, so that a page out of place is seen.
uint64_t Word(uint64_t value, size_t index) { return value * 0x9e3779b97f4a7c15u + index; }

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceConformanceTest);

std::string DeviceUnderTestName(const ::testing::TestParamInfo<DeviceUnderTest>& info) {
  return info.param.name;
}

void DeviceConformanceTest::SetUp() {
  if (!GetParam().missing.empty()) GTEST_SKIP() << "not run: " << GetParam().missing;
  device_ = GetParam().create();
  ASSERT_NE(device_, nullptr);
  staging_ = MakeSlab(MemoryKind::kHostPinned, 1);
  auto up = device_->CreateCopyLane(CopyDirection::kHostToDevice, &up_sink_);
  auto down = device_->CreateCopyLane(CopyDirection::kDeviceToHost, &down_sink_);
  ASSERT_THAT(up, IsOk());
  ASSERT_THAT(down, IsOk());
  up_ = *std::move(up);
  down_ = *std::move(down);
}

std::unique_ptr<Slab> DeviceConformanceTest::MakeSlab(MemoryKind kind, int64_t slots) {
  auto slab = device_->CreateSlab({.kind = kind, .slot_bytes = slot_bytes(), .slot_count = slots});
  GANTRY_CHECK_OK(slab.status());
  return *std::move(slab);
}

std::unique_ptr<AddressSpace> DeviceConformanceTest::MakeSpace(Slab* slab, int64_t pages) {
  auto space = device_->ReserveAddressSpace(slab, pages);
  GANTRY_CHECK_OK(space.status());
  return *std::move(space);
}

void DeviceConformanceTest::Copy(CopyLane& lane, RecordingSink& sink, const CopyRequest& request) {
  const size_t before = sink.completions().size();
  lane.Submit(request);
  ASSERT_THAT(WaitFor(sink, before + 1).back().status, IsOk());
}

std::vector<RecordingSink::Completion> DeviceConformanceTest::WaitFor(RecordingSink& sink,
                                                                      size_t count) {
  if (GetParam().run_next) {
    while (sink.completions().size() < count) {
      GANTRY_CHECK(GetParam().run_next()) << "nothing will complete any more";
    }
  }
  return sink.WaitFor(count);
}

void DeviceConformanceTest::Fill(std::byte* address, uint64_t value) {
  std::byte* staging = staging_->parking(SlotId(0));
  const std::span<uint64_t> words(reinterpret_cast<uint64_t*>(staging),
                                  static_cast<size_t>(slot_bytes().count()) / sizeof(uint64_t));
  for (size_t i = 0; i < words.size(); ++i) words[i] = Word(value, i);
  Copy(*up_, up_sink_,
       {.destination = address, .source = staging, .bytes = slot_bytes(), .tag = value});
}

bool DeviceConformanceTest::Holds(const std::byte* address, uint64_t value) {
  std::byte* staging = staging_->parking(SlotId(0));
  std::fill_n(staging, slot_bytes().count(), std::byte{0xee});
  Copy(*down_, down_sink_,
       {.destination = staging, .source = address, .bytes = slot_bytes(), .tag = value});
  const std::span<const uint64_t> words(
      reinterpret_cast<const uint64_t*>(staging),
      static_cast<size_t>(slot_bytes().count()) / sizeof(uint64_t));
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != Word(value, i)) return false;
  }
  return true;
}

TEST_P(DeviceConformanceTest, HasAName) { EXPECT_FALSE(device_->name().empty()); }

TEST_P(DeviceConformanceTest, SlotsOfASlabAreDistinctMemory) {
  auto slab = MakeSlab(MemoryKind::kDevice, 5);
  EXPECT_EQ(slab->slot_count(), 5);
  EXPECT_EQ(slab->slot_bytes(), slot_bytes());
  for (int64_t i = 0; i < 5; ++i) Fill(slab->parking(SlotId(i)), static_cast<uint64_t>(i) + 1);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(Holds(slab->parking(SlotId(i)), static_cast<uint64_t>(i) + 1)) << "slot " << i;
  }
}

TEST_P(DeviceConformanceTest, SlotsOfAHostSlabAreTheHostsMemory) {
  auto slab = MakeSlab(MemoryKind::kHostPinned, 5);
  EXPECT_EQ(slab->slot_count(), 5);
  EXPECT_EQ(slab->slot_bytes(), slot_bytes());
  const int64_t bytes = slot_bytes().count();
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(slab->parking(SlotId(i)), slab->parking(SlotId(0)) + i * bytes);
    std::fill_n(slab->parking(SlotId(i)), bytes, std::byte(i + 1));
  }
  for (int64_t i = 0; i < 5; ++i) {
    const std::byte* slot = slab->parking(SlotId(i));
    EXPECT_EQ(std::count(slot, slot + bytes, std::byte(i + 1)), bytes) << "slot " << i;
  }
}

TEST_P(DeviceConformanceTest, EmptySlabAndEmptySpace) {
  auto slab = MakeSlab(MemoryKind::kDevice, 0);
  EXPECT_EQ(slab->slot_count(), 0);
  auto space = MakeSpace(slab.get(), 0);
  EXPECT_EQ(space->page_count(), 0);
}

TEST_P(DeviceConformanceTest, SlotsAreMultiplesOfTheGranularity) {
  const int64_t granularity = device_->slot_granularity().count();
  EXPECT_GE(granularity, 4096);
  EXPECT_EQ(granularity & (granularity - 1), 0) << granularity;
  EXPECT_EQ(slot_bytes().count() % granularity, 0);
  for (const int64_t bytes : {int64_t{0}, int64_t{-4096}, -granularity, granularity - 1,
                              granularity + 1, granularity / 2, granularity + granularity / 2}) {
    EXPECT_THAT(device_->CreateSlab(
                    {.kind = MemoryKind::kDevice, .slot_bytes = Bytes(bytes), .slot_count = 1}),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << bytes;
  }
  for (const int64_t bytes : {int64_t{0}, int64_t{-4096}, int64_t{4095}, int64_t{4097}}) {
    EXPECT_THAT(device_->CreateSlab(
                    {.kind = MemoryKind::kHostPinned, .slot_bytes = Bytes(bytes), .slot_count = 1}),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << bytes;
  }
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHostPinned}) {
    EXPECT_THAT(device_->CreateSlab({.kind = kind, .slot_bytes = slot_bytes(), .slot_count = -1}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  auto least = device_->CreateSlab(
      {.kind = MemoryKind::kDevice, .slot_bytes = device_->slot_granularity(), .slot_count = 2});
  ASSERT_THAT(least, IsOk());
  EXPECT_EQ((*least)->parking(SlotId(1)) - (*least)->parking(SlotId(0)), granularity);
}

TEST_P(DeviceConformanceTest, MoreMemoryThanThereIsIsResourceExhausted) {
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHostPinned}) {
    for (const int64_t slots : {int64_t{1} << 36, INT64_MAX / 2}) {
      EXPECT_THAT(
          device_->CreateSlab({.kind = kind, .slot_bytes = slot_bytes(), .slot_count = slots}),
          StatusIs(absl::StatusCode::kResourceExhausted, std::to_string(slots)))
          << slots;
    }
  }
  auto slab = MakeSlab(MemoryKind::kDevice, 1);  // the refusals took nothing
  EXPECT_THAT(device_->ReserveAddressSpace(slab.get(), INT64_MAX / 2),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_P(DeviceConformanceTest, HomeAddressesAreStableAndHoldWhatIsMapped) {
  auto slab = MakeSlab(MemoryKind::kDevice, 2);
  auto space = MakeSpace(slab.get(), 4);
  std::byte* const base = space->base();
  Fill(slab->parking(SlotId(0)), 10);
  Fill(slab->parking(SlotId(1)), 11);
  ASSERT_THAT(space->Map(3, SlotId(0)), IsOk());
  ASSERT_THAT(space->Map(1, SlotId(1)), IsOk());
  EXPECT_TRUE(Holds(Page(*space, 3), 10));
  EXPECT_TRUE(Holds(Page(*space, 1), 11));
  Fill(Page(*space, 3), 12);
  ASSERT_THAT(space->Unmap(3), IsOk());
  EXPECT_TRUE(Holds(slab->parking(SlotId(0)), 12));
  ASSERT_THAT(space->Map(0, SlotId(0)), IsOk());
  EXPECT_TRUE(Holds(Page(*space, 0), 12));
  EXPECT_TRUE(Holds(Page(*space, 1), 11));
  EXPECT_EQ(space->base(), base);
}

TEST_P(DeviceConformanceTest, ACopyMaySpanAdjacentPages) {
  auto slab = MakeSlab(MemoryKind::kDevice, 2);
  auto space = MakeSpace(slab.get(), 2);
  ASSERT_THAT(space->Map(0, SlotId(1)), IsOk());
  ASSERT_THAT(space->Map(1, SlotId(0)), IsOk());
  std::byte* const middle = space->base() + slot_bytes().count() / 2;
  Fill(middle, 7);
  EXPECT_TRUE(Holds(middle, 7));
}

TEST_P(DeviceConformanceTest, SpacesShareASlabAndGiveSlotsBackWhenDestroyed) {
  auto slab = MakeSlab(MemoryKind::kDevice, 2);
  {
    auto first = MakeSpace(slab.get(), 3);
    auto second = MakeSpace(slab.get(), 3);
    ASSERT_THAT(first->Map(0, SlotId(0)), IsOk());
    ASSERT_THAT(second->Map(2, SlotId(1)), IsOk());
    Fill(Page(*first, 0), 21);
    Fill(Page(*second, 2), 22);
    first.reset();
    EXPECT_TRUE(Holds(slab->parking(SlotId(0)), 21));
    EXPECT_TRUE(Holds(Page(*second, 2), 22));
  }
  EXPECT_TRUE(Holds(slab->parking(SlotId(1)), 22));
}

TEST_P(DeviceConformanceTest, RandomMovesKeepContents) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  constexpr int64_t kSlots = 6;
  constexpr int64_t kPages = 17;
  const Random random({.seed = kSeed, .stream = 1});
  auto slab = MakeSlab(MemoryKind::kDevice, kSlots);
  auto space = MakeSpace(slab.get(), kPages);
  std::vector<uint64_t> content(kSlots);
  std::vector<int64_t> page_of_slot(kSlots, -1);
  const auto address = [&](int64_t slot) {
    const int64_t page = page_of_slot[static_cast<size_t>(slot)];
    return page < 0 ? slab->parking(SlotId(slot)) : Page(*space, page);
  };
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    content[static_cast<size_t>(slot)] = static_cast<uint64_t>(slot);
    Fill(address(slot), content[static_cast<size_t>(slot)]);
  }
  const uint64_t rounds = slot_bytes() > 1_MiB ? 100 : 1000;
  for (uint64_t round = 0; round < rounds; ++round) {
    const int64_t slot = random.Below(kSlots, 4 * round);
    int64_t& page = page_of_slot[static_cast<size_t>(slot)];
    if (page >= 0) {
      ASSERT_THAT(space->Unmap(page), IsOk());
      page = -1;
    } else {
      int64_t target = random.Below(kPages, 4 * round + 1);
      while (std::count(page_of_slot.begin(), page_of_slot.end(), target) > 0) {
        target = (target + 1) % kPages;
      }
      ASSERT_THAT(space->Map(target, SlotId(slot)), IsOk());
      page = target;
    }
    if (random.Below(4, 4 * round + 2) == 0) {
      content[static_cast<size_t>(slot)] = 1000 + round;
      Fill(address(slot), 1000 + round);
    }
    const int64_t checked = random.Below(kSlots, 4 * round + 3);
    ASSERT_TRUE(Holds(address(checked), content[static_cast<size_t>(checked)]))
        << "slot " << checked << " in round " << round;
  }
  space.reset();
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    EXPECT_TRUE(Holds(slab->parking(SlotId(slot)), content[static_cast<size_t>(slot)])) << slot;
  }
}

// Different pages at once, which the interface allows. The pages of the threads interleave, so that
// their mappings are neighbours.
TEST_P(DeviceConformanceTest, ThreadsMoveDifferentPages) {
  constexpr int64_t kThreads = 3;
  constexpr int64_t kPagesEach = 4;
  auto slab = MakeSlab(MemoryKind::kDevice, kThreads);
  auto space = MakeSpace(slab.get(), kThreads * kPagesEach);
  for (int64_t slot = 0; slot < kThreads; ++slot) {
    Fill(slab->parking(SlotId(slot)), static_cast<uint64_t>(slot) + 1);
  }
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t round = 0; round < 200; ++round) {
        const int64_t page = (round % kPagesEach) * kThreads + thread;
        GANTRY_CHECK_OK(space->Map(page, SlotId(thread)));
        GANTRY_CHECK_OK(space->Unmap(page));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int64_t slot = 0; slot < kThreads; ++slot) {
    EXPECT_TRUE(Holds(slab->parking(SlotId(slot)), static_cast<uint64_t>(slot) + 1)) << slot;
  }
}

TEST_P(DeviceConformanceTest, LaneCompletesInOrderAndCounts) {
  auto device_slab = MakeSlab(MemoryKind::kDevice, 1);
  const std::byte* source = staging_->parking(SlotId(0));
  std::byte* destination = device_slab->parking(SlotId(0));
  const std::vector<int64_t> sizes = {1,    0, slot_bytes().count(),
                                      4095, 0, slot_bytes().count() - 1};
  int64_t bytes = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    bytes += sizes[i];
    up_->Submit(
        {.destination = destination, .source = source, .bytes = Bytes(sizes[i]), .tag = 100 + i});
  }
  const auto completions = WaitFor(up_sink_, sizes.size());
  ASSERT_EQ(completions.size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(completions[i].tag, 100 + i);
    EXPECT_THAT(completions[i].status, IsOk());
  }
  const LaneCounters counters = up_->counters();
  EXPECT_EQ(counters.requests, static_cast<int64_t>(sizes.size()));
  EXPECT_EQ(counters.bytes, bytes);
  EXPECT_GE(counters.busy_nanoseconds, 0);
  EXPECT_EQ(down_->counters().requests, 0);
}

TEST_P(DeviceConformanceTest, DestroyingALaneFinishesItsCopies) {
  auto device_slab = MakeSlab(MemoryKind::kDevice, 8);
  Fill(device_slab->parking(SlotId(0)), 31);
  auto host_slab = MakeSlab(MemoryKind::kHostPinned, 8);
  for (int64_t i = 0; i < 8; ++i) {
    down_->Submit({.destination = host_slab->parking(SlotId(i)),
                   .source = device_slab->parking(SlotId(0)),
                   .bytes = slot_bytes(),
                   .tag = static_cast<uint64_t>(i)});
  }
  down_.reset();
  EXPECT_EQ(down_sink_.completions().size(), 8u);
  for (int64_t i = 0; i < 8; ++i) {
    const auto* words = reinterpret_cast<const uint64_t*>(host_slab->parking(SlotId(i)));
    const size_t last = static_cast<size_t>(slot_bytes().count()) / sizeof(uint64_t) - 1;
    EXPECT_EQ(words[0], Word(31, 0));
    EXPECT_EQ(words[last], Word(31, last));
  }
}

TEST_P(DeviceConformanceTest, LaneTakesRequestsFromSeveralThreads) {
  if (GetParam().run_next) GTEST_SKIP() << "an event loop has one thread";
  constexpr int kThreads = 3;
  constexpr int kEach = 50;
  const std::byte* source = staging_->parking(SlotId(0));
  auto slab = MakeSlab(MemoryKind::kDevice, 1);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        up_->Submit({.destination = slab->parking(SlotId(0)),
                     .source = source,
                     .bytes = Bytes(64),
                     .tag = static_cast<uint64_t>(thread * kEach + i)});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> last(kThreads, -1);
  for (const auto& completion : WaitFor(up_sink_, kThreads * kEach)) {
    const int thread = static_cast<int>(completion.tag) / kEach;
    const int index = static_cast<int>(completion.tag) % kEach;
    EXPECT_EQ(index, last[static_cast<size_t>(thread)] + 1) << "order within thread " << thread;
    last[static_cast<size_t>(thread)] = index;
  }
  EXPECT_EQ(up_->counters().requests, kThreads * kEach);
}

}  // namespace gantry
