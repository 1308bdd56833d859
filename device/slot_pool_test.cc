#include "device/slot_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 4711;

// A pool only counts: it never touches the memory of its slab.
class CountOnlySlab final : public Slab {
 public:
  explicit CountOnlySlab(int64_t slots) : slots_(slots) {}
  Bytes slot_bytes() const override { return 4_MiB; }
  int64_t slot_count() const override { return slots_; }
  std::byte* parking(SlotId /*slot*/) const override { return nullptr; }

 private:
  int64_t slots_;
};

MemoryTag TagAt(int64_t i) { return static_cast<MemoryTag>(i); }

TEST(SlotPoolTest, HandsOutTheLowestSlotUntilItIsEmpty) {
  CountOnlySlab slab(3);
  SlotPool pool(&slab);
  EXPECT_EQ(pool.slab(), &slab);
  EXPECT_EQ(pool.free_slots(), 3);
  EXPECT_EQ(pool.TryAcquire(MemoryTag::kParameter), SlotId(0));
  EXPECT_EQ(pool.TryAcquire(MemoryTag::kGradient), SlotId(1));
  EXPECT_EQ(pool.TryAcquire(MemoryTag::kGradient), SlotId(2));
  EXPECT_EQ(pool.TryAcquire(MemoryTag::kGradient), std::nullopt);
  EXPECT_EQ(pool.free_slots(), 0);
  pool.Release(SlotId(2));
  pool.Release(SlotId(0));
  EXPECT_EQ(pool.TryAcquire(MemoryTag::kStaging), SlotId(0));
  for (const int64_t slot : {0, 1}) pool.Release(SlotId(slot));
  EXPECT_EQ(pool.usage().slots_used, 0);
}

TEST(SlotPoolTest, AnEmptySlabIsAlwaysFull) {
  CountOnlySlab slab(0);
  SlotPool pool(&slab);
  EXPECT_EQ(pool.TryAcquire(MemoryTag::kParameter), std::nullopt);
  EXPECT_EQ(pool.free_slots(), 0);
}

TEST(SlotPoolTest, RetagMovesTheCountAndItsPeak) {
  CountOnlySlab slab(2);
  SlotPool pool(&slab);
  const SlotId slot = *pool.TryAcquire(MemoryTag::kGradient);
  pool.Retag(slot, MemoryTag::kActivation);
  const PoolUsage usage = pool.usage();
  EXPECT_EQ(usage.used_by_tag, (std::array<int64_t, kMemoryTagCount>{0, 0, 0, 1, 0}));
  EXPECT_EQ(usage.peak_by_tag, (std::array<int64_t, kMemoryTagCount>{0, 1, 0, 1, 0}));
  EXPECT_EQ(usage.slots_used, 1);
  EXPECT_EQ(usage.slots_peak, 1);
  pool.Release(slot);
  EXPECT_EQ(pool.usage().used_by_tag, (std::array<int64_t, kMemoryTagCount>{}));
}

TEST(SlotPoolTest, UsageSaysWhoHoldsWhat) {
  CountOnlySlab slab(32);
  SlotPool pool(&slab);
  std::vector<SlotId> out;
  for (int i = 0; i < 12; ++i) out.push_back(*pool.TryAcquire(MemoryTag::kParameter));
  for (int i = 0; i < 3; ++i) out.push_back(*pool.TryAcquire(MemoryTag::kGradient));
  EXPECT_EQ(pool.usage().ToString(),
            "param 12, grad 3, optimizer 0, activation 0, staging 0 of 32 slots of 4.0 MiB");
  for (const SlotId slot : out) pool.Release(slot);
}

TEST(SlotPoolTest, RandomCallsAgreeWithAModel) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  constexpr int64_t kSlots = 23;
  const Random random({.seed = kSeed, .stream = 0});
  CountOnlySlab slab(kSlots);
  SlotPool pool(&slab);
  std::map<int64_t, int64_t> tag_of;  // of slots that are out
  std::array<int64_t, kMemoryTagCount> used{};
  std::array<int64_t, kMemoryTagCount> peak{};
  int64_t slots_peak = 0;
  for (uint64_t round = 0; round < 5000; ++round) {
    const int64_t action = random.Below(round / 500 % 2 == 0 ? 5 : 9, 3 * round);
    const int64_t tag = random.Below(kMemoryTagCount, 3 * round + 1);
    auto chosen = tag_of.begin();
    if (!tag_of.empty()) {
      std::advance(chosen, random.Below(static_cast<int64_t>(tag_of.size()), 3 * round + 2));
    }
    if (action < 3) {
      int64_t lowest = 0;
      while (tag_of.count(lowest) > 0) ++lowest;
      const std::optional<SlotId> slot = pool.TryAcquire(TagAt(tag));
      if (lowest == kSlots) {
        ASSERT_EQ(slot, std::nullopt);
      } else {
        ASSERT_EQ(slot, SlotId(lowest));
        tag_of[lowest] = tag;
        ++used[static_cast<size_t>(tag)];
      }
    } else if (chosen != tag_of.end() && action == 3) {
      pool.Retag(SlotId(chosen->first), TagAt(tag));
      --used[static_cast<size_t>(chosen->second)];
      ++used[static_cast<size_t>(tag)];
      chosen->second = tag;
    } else if (chosen != tag_of.end()) {
      pool.Release(SlotId(chosen->first));
      --used[static_cast<size_t>(chosen->second)];
      tag_of.erase(chosen);
    }
    for (size_t i = 0; i < used.size(); ++i) peak[i] = std::max(peak[i], used[i]);
    slots_peak = std::max(slots_peak, static_cast<int64_t>(tag_of.size()));
    const PoolUsage usage = pool.usage();
    ASSERT_EQ(usage.used_by_tag, used) << "round " << round;
    ASSERT_EQ(usage.peak_by_tag, peak);
    ASSERT_EQ(usage.slots_used, static_cast<int64_t>(tag_of.size()));
    ASSERT_EQ(usage.slots_peak, slots_peak);
    ASSERT_EQ(pool.free_slots(), kSlots - usage.slots_used);
  }
  EXPECT_EQ(slots_peak, kSlots);  // the test did fill the pool
  for (const auto& [slot, tag] : tag_of) pool.Release(SlotId(slot));
}

TEST(SlotPoolTest, ThreadsNeverShareASlot) {
  constexpr int64_t kSlots = 4;
  CountOnlySlab slab(kSlots);
  SlotPool pool(&slab);
  std::array<int64_t, kSlots> owned{};  // a race here is a report of TSan and a wrong sum
  std::vector<std::thread> threads;
  constexpr int64_t kRounds = 2000;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int64_t round = 0; round < kRounds;) {
        const std::optional<SlotId> slot = pool.TryAcquire(MemoryTag::kParameter);
        if (!slot.has_value()) continue;
        ++owned[static_cast<size_t>(slot->value())];
        pool.Release(*slot);
        ++round;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(owned[0] + owned[1] + owned[2] + owned[3], 4 * kRounds);
}

TEST(SlotPoolDeathTest, MisuseAborts) {
  CountOnlySlab slab(2);
  SlotPool pool(&slab);
  EXPECT_DEATH(pool.Release(SlotId(0)), "slot#0 was released but is not out");
  EXPECT_DEATH(pool.Release(SlotId(2)), "slot#2 of 2 slots");
  EXPECT_DEATH(pool.Release(SlotId(-1)), "slot#-1 of 2 slots");
  EXPECT_DEATH(pool.Retag(SlotId(1), MemoryTag::kStaging), "slot#1 was retagged but is not out");
  const SlotId slot = *pool.TryAcquire(MemoryTag::kParameter);
  pool.Release(slot);
  EXPECT_DEATH(pool.Release(slot), "not out");
}

TEST(SlotPoolDeathTest, ALeakAbortsWithTheTags) {
  CountOnlySlab slab(2);
  EXPECT_DEATH(
      {
        SlotPool pool(&slab);
        pool.TryAcquire(MemoryTag::kOptimizer);
      },
      "destroyed with slots out: param 0, grad 0, optimizer 1");
}

}  // namespace
}  // namespace gantry
