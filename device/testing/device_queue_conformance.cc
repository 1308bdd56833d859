// The part of the suite that is about order without waiting: the queue, and lanes and spaces
// beside it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/testing/status_matchers.h"
#include "device/testing/device_conformance.h"

namespace gantry {

TEST_P(DeviceConformanceTest, SlotsGoThroughSpacesOneAfterTheOther) {
  auto slab = MakeSlab(MemoryKind::kDevice, 1);
  auto first = MakeSpace(slab.get(), 2);
  auto second = MakeSpace(slab.get(), 2);
  Fill(slab->parking(SlotId(0)), 1);
  for (uint64_t round = 0; round < 20; ++round) {
    AddressSpace& space = round % 2 == 0 ? *first : *second;
    const auto page = static_cast<int64_t>(round / 2 % 2);
    ASSERT_THAT(space.Map(page, SlotId(0)), IsOk());
    ASSERT_TRUE(Holds(Page(space, page), round + 1)) << round;
    Fill(Page(space, page), round + 2);
    ASSERT_THAT(space.Unmap(page), IsOk());
  }
  EXPECT_TRUE(Holds(slab->parking(SlotId(0)), 21));
}

TEST_P(DeviceConformanceTest, QueuePointsAreReachedInOrder) {
  Queue& queue = device_->queue();
  EXPECT_TRUE(queue.Reached(QueuePoint()));
  EXPECT_THAT(queue.Wait(QueuePoint()), IsOk());
  auto slab = MakeSlab(MemoryKind::kDevice, 1);
  std::vector<QueuePoint> points;
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(queue.FillWithZeros(slab->parking(SlotId(0)), slot_bytes()), IsOk());
    const auto point = queue.Mark();
    ASSERT_THAT(point, IsOk());
    EXPECT_LE(points.empty() ? QueuePoint() : points.back(), *point);
    points.push_back(*point);
  }
  EXPECT_THAT(queue.Wait(points[50]), IsOk());
  for (size_t i = 0; i <= 50; ++i) EXPECT_TRUE(queue.Reached(points[i])) << i;
  const auto again = queue.Mark();
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(queue.Wait(*again), IsOk());
  EXPECT_TRUE(queue.Reached(points.back()));
}

// Nobody waits on the host: order comes from the lanes and the queue.
TEST_P(DeviceConformanceTest, CopiesToTheHostComeAfterTheQueuesWork) {
  auto slab = MakeSlab(MemoryKind::kDevice, 4);
  for (int64_t slot = 0; slot < 4; ++slot) Fill(slab->parking(SlotId(slot)), 5);
  auto host = MakeSlab(MemoryKind::kHostPinned, 4);
  for (int64_t slot = 0; slot < 4; ++slot) {
    ASSERT_THAT(device_->queue().FillWithZeros(slab->parking(SlotId(slot)), slot_bytes()), IsOk());
    const auto point = device_->queue().Mark();
    ASSERT_THAT(point, IsOk());
    CopyRequest request{.destination = host->parking(SlotId(slot)),
                        .source = slab->parking(SlotId(slot)),
                        .bytes = slot_bytes(),
                        .tag = static_cast<uint64_t>(slot)};
    if (slot % 2 == 0) request.after = *point;
    down_->Submit(request);
  }
  for (const auto& completion : WaitFor(down_sink_, 4)) EXPECT_THAT(completion.status, IsOk());
  for (int64_t slot = 0; slot < 4; ++slot) {
    const std::byte* bytes = host->parking(SlotId(slot));
    EXPECT_EQ(std::count(bytes, bytes + slot_bytes().count(), std::byte{0}), slot_bytes().count());
  }
}

TEST_P(DeviceConformanceTest, TheQueuesWorkComesAfterALanesCopies) {
  auto slab = MakeSlab(MemoryKind::kDevice, 4);
  std::byte* source = staging_->parking(SlotId(0));
  std::fill_n(source, slot_bytes().count(), std::byte{9});
  for (int64_t slot = 0; slot < 4; ++slot) {
    up_->Submit({.destination = slab->parking(SlotId(slot)),
                 .source = source,
                 .bytes = slot_bytes(),
                 .tag = static_cast<uint64_t>(slot)});
    ASSERT_THAT(device_->queue().RunAfter(*up_), IsOk());
    ASSERT_THAT(device_->queue().FillWithZeros(slab->parking(SlotId(slot)), Bytes(8)), IsOk());
  }
  WaitFor(up_sink_, 4);
  for (int64_t slot = 0; slot < 4; ++slot) {
    auto host = MakeSlab(MemoryKind::kHostPinned, 1);
    const std::byte* bytes = host->parking(SlotId(0));
    down_->Submit({.destination = host->parking(SlotId(0)),
                   .source = slab->parking(SlotId(slot)),
                   .bytes = slot_bytes(),
                   .tag = 1});
    WaitFor(down_sink_, static_cast<size_t>(slot) + 1);
    EXPECT_EQ(std::count(bytes, bytes + slot_bytes().count(), std::byte{0}), 8) << slot;
  }
}

// As a lease that ends, and the eviction of what it used: the host runs ahead of the device.
TEST_P(DeviceConformanceTest, ASlotIsFilledAnewBehindTheWorkThatUsedItsLastPage) {
  constexpr int64_t kPages = 6;
  auto slab = MakeSlab(MemoryKind::kDevice, 2);
  auto space = MakeSpace(slab.get(), kPages);
  auto host = MakeSlab(MemoryKind::kHostPinned, kPages);
  auto results = MakeSlab(MemoryKind::kHostPinned, kPages);
  for (int64_t page = 0; page < kPages; ++page) {
    std::fill_n(host->parking(SlotId(page)), slot_bytes().count(), std::byte(10 + page));
  }
  for (int64_t page = 0; page < kPages; ++page) {
    const SlotId slot(page % 2);
    ASSERT_THAT(space->Map(page, slot), IsOk());
    up_->Submit({.destination = Page(*space, page),
                 .source = host->parking(SlotId(page)),
                 .bytes = slot_bytes(),
                 .tag = static_cast<uint64_t>(page)});
    ASSERT_THAT(device_->queue().RunAfter(*up_), IsOk());
    ASSERT_THAT(device_->queue().FillWithZeros(Page(*space, page), Bytes(64)), IsOk());
    down_->Submit({.destination = results->parking(SlotId(page)),
                   .source = Page(*space, page),
                   .bytes = slot_bytes(),
                   .tag = static_cast<uint64_t>(page)});
    WaitFor(down_sink_, static_cast<size_t>(page) + 1);
    ASSERT_THAT(device_->queue().FillWithZeros(Page(*space, page), slot_bytes()), IsOk());
    ASSERT_THAT(space->Unmap(page), IsOk());  // while that goes on
  }
  WaitFor(up_sink_, kPages);
  for (int64_t page = 0; page < kPages; ++page) {
    const std::byte* bytes = results->parking(SlotId(page));
    EXPECT_EQ(std::count(bytes, bytes + 64, std::byte{0}), 64) << page;
    EXPECT_EQ(std::count(bytes + 64, bytes + slot_bytes().count(), std::byte(10 + page)),
              slot_bytes().count() - 64)
        << page;
  }
}

// The same slot at once: its new bytes come behind what still uses it at its last home.
TEST_P(DeviceConformanceTest, ASlotMovesWhileItsLastPageIsUsed) {
  auto slab = MakeSlab(MemoryKind::kDevice, 1);
  auto space = MakeSpace(slab.get(), 2);
  for (uint64_t round = 0; round < 10; ++round) {
    ASSERT_THAT(space->Map(0, SlotId(0)), IsOk());
    ASSERT_THAT(device_->queue().FillWithZeros(space->base(), slot_bytes()), IsOk());
    ASSERT_THAT(space->Unmap(0), IsOk());
    ASSERT_THAT(space->Map(1, SlotId(0)), IsOk());
    Fill(Page(*space, 1), round);
    ASSERT_TRUE(Holds(Page(*space, 1), round)) << round;
    ASSERT_THAT(device_->queue().FillWithZeros(Page(*space, 1), slot_bytes()), IsOk());
    ASSERT_THAT(space->Unmap(1), IsOk());
    Fill(slab->parking(SlotId(0)), 100 + round);
    ASSERT_TRUE(Holds(slab->parking(SlotId(0)), 100 + round)) << round;
  }
}

TEST_P(DeviceConformanceTest, APageIsMappedAnewBehindTheWorkThatUsedItsLastSlot) {
  auto slab = MakeSlab(MemoryKind::kDevice, 2);
  auto space = MakeSpace(slab.get(), 1);
  Fill(slab->parking(SlotId(0)), 1);
  Fill(slab->parking(SlotId(1)), 2);
  for (uint64_t round = 0; round < 10; ++round) {
    ASSERT_THAT(space->Map(0, SlotId(0)), IsOk());
    ASSERT_THAT(device_->queue().FillWithZeros(space->base(), Bytes(8)), IsOk());
    ASSERT_THAT(space->Unmap(0), IsOk());
    ASSERT_THAT(space->Map(0, SlotId(1)), IsOk());
    ASSERT_TRUE(Holds(space->base(), 2));
    ASSERT_THAT(space->Unmap(0), IsOk());
  }
  EXPECT_FALSE(Holds(slab->parking(SlotId(0)), 1));
  EXPECT_TRUE(Holds(slab->parking(SlotId(1)), 2));
}

TEST_P(DeviceConformanceTest, SpacesAndSlabsEndWhileWorkGoesOn) {
  for (int round = 0; round < 5; ++round) {
    auto slab = MakeSlab(MemoryKind::kDevice, 3);
    auto space = MakeSpace(slab.get(), 3);
    for (int64_t page = 0; page < 3; ++page) {
      ASSERT_THAT(space->Map(page, SlotId(page)), IsOk());
      ASSERT_THAT(device_->queue().FillWithZeros(Page(*space, page), slot_bytes()), IsOk());
    }
    ASSERT_THAT(space->Unmap(1), IsOk());
    space.reset();
    ASSERT_THAT(device_->queue().FillWithZeros(slab->parking(SlotId(2)), slot_bytes()), IsOk());
  }
  const auto point = device_->queue().Mark();
  ASSERT_THAT(point, IsOk());
  EXPECT_THAT(device_->queue().Wait(*point), IsOk());
}

}  // namespace gantry
