// The arena against a plain model: a list of live allocations in which the lowest offset that fits
// is searched by trying every candidate, and the sets of live and mapped pages.
#include "device/activation_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/device.h"
#include "device/host/host_device.h"
#include "device/slot_pool.h"
#include "device/testing/process_memory.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 90210;
constexpr int64_t kSlot = 16 * 1024;

// Takes slots from a pool; `on_full` may make room. Counts calls.
class PoolSource final : public SlotSource {
 public:
  explicit PoolSource(SlotPool* pool) : pool_(pool) {}

  absl::StatusOr<SlotId> AcquireActivationSlot() override {
    ++acquired_;
    if (before_acquire) before_acquire();
    std::optional<SlotId> slot = pool_->TryAcquire(MemoryTag::kActivation);
    if (!slot.has_value() && on_full && on_full()) {
      slot = pool_->TryAcquire(MemoryTag::kActivation);
    }
    if (!slot.has_value()) return ResourceExhausted("full: ", pool_->usage().ToString());
    return *slot;
  }
  void ReleaseActivationSlot(SlotId slot) override { pool_->Release(slot); }

  int64_t acquired() const { return acquired_; }
  std::function<bool()> on_full;
  std::function<void()> before_acquire;

 private:
  SlotPool* pool_;
  int64_t acquired_ = 0;
};

// Forwards to another space; Map fails when `maps_left` has run out.
class FailingSpace final : public AddressSpace {
 public:
  FailingSpace(std::unique_ptr<AddressSpace> space, int64_t* maps_left)
      : space_(std::move(space)), maps_left_(maps_left) {}
  std::byte* base() const override { return space_->base(); }
  int64_t page_count() const override { return space_->page_count(); }
  absl::Status Map(int64_t page, SlotId slot) override {
    if ((*maps_left_)-- <= 0) return Internal("injected");
    return space_->Map(page, slot);
  }
  absl::Status Unmap(int64_t page) override { return space_->Unmap(page); }

 private:
  std::unique_ptr<AddressSpace> space_;
  int64_t* maps_left_;
};

// A device slab, its pool, and an arena on it.
class ArenaRig {
 public:
  struct Options {
    int64_t slot_bytes;
    int64_t slots;
    int64_t pages;
    int64_t* maps_left = nullptr;  // see FailingSpace
  };
  explicit ArenaRig(const Options& options) {
    auto device = CreateHostDevice({.topology = DeviceTopology::kDiscrete, .clock = &clock_});
    GANTRY_CHECK_OK(device.status());
    device_ = *std::move(device);
    auto slab = device_->CreateSlab({.kind = MemoryKind::kDevice,
                                     .slot_bytes = Bytes(options.slot_bytes),
                                     .slot_count = options.slots});
    GANTRY_CHECK_OK(slab.status());
    slab_ = *std::move(slab);
    pool = std::make_unique<SlotPool>(slab_.get());
    source = std::make_unique<PoolSource>(pool.get());
    auto space = ReserveSpace(options.pages);
    base = space->base();
    if (options.maps_left != nullptr) {
      space = std::make_unique<FailingSpace>(std::move(space), options.maps_left);
    }
    arena = std::make_unique<ActivationArena>(std::move(space), Bytes(options.slot_bytes),
                                              source.get());
  }
  std::unique_ptr<AddressSpace> ReserveSpace(int64_t pages) {
    auto space = device_->ReserveAddressSpace(slab_.get(), pages);
    GANTRY_CHECK_OK(space.status());
    return *std::move(space);
  }
  std::span<const std::byte> SlabRange() const {
    return {slab_->parking(SlotId(0)),
            static_cast<size_t>(slab_->slot_count() * slab_->slot_bytes().count())};
  }

 private:
  MonotonicClock clock_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Slab> slab_;

 public:
  std::unique_ptr<SlotPool> pool;
  std::unique_ptr<PoolSource> source;
  std::byte* base = nullptr;
  std::unique_ptr<ActivationArena> arena;
};

ArenaBuffer Allocate(ActivationArena& arena, int64_t bytes) {
  auto buffer = arena.Allocate(bytes);
  GANTRY_CHECK_OK(buffer.status());
  return *std::move(buffer);
}

// What the arena should do, computed the slow way.
class ArenaModel {
 public:
  ArenaModel(int64_t slot_bytes, int64_t pages) : slot_bytes_(slot_bytes), pages_(pages) {}

  // The lowest offset where `bytes` fit, or -1.
  int64_t Allocate(int64_t bytes) {
    std::vector<int64_t> candidates = {0};
    for (const auto& [offset, size] : live_) candidates.push_back(offset + RoundUp(size, 256));
    std::sort(candidates.begin(), candidates.end());
    for (const int64_t offset : candidates) {
      if (offset + bytes > slot_bytes_ * pages_) continue;
      const bool overlaps = std::any_of(live_.begin(), live_.end(), [&](const auto& other) {
        return offset < other.first + RoundUp(other.second, 256) &&
               other.first < offset + RoundUp(bytes, 256);
      });
      if (overlaps) continue;
      live_.emplace_back(offset, bytes);
      for (const int64_t page : LivePages()) mapped_.insert(page);
      return offset;
    }
    return -1;
  }
  void Free(size_t index) { live_.erase(live_.begin() + static_cast<int64_t>(index)); }
  int64_t Trim(int64_t keep) {
    const std::set<int64_t> live = LivePages();
    int64_t count = 0;
    for (int64_t page = pages_ - 1; page >= 0; --page) {
      if (static_cast<int64_t>(mapped_.size()) <= keep) break;
      if (live.count(page) == 0 && mapped_.erase(page) > 0) ++count;
    }
    return count;
  }
  std::set<int64_t> LivePages() const {
    std::set<int64_t> pages;
    for (const auto& [offset, bytes] : live_) {
      for (int64_t i = offset; i < offset + bytes; ++i) {
        pages.insert(i / slot_bytes_);
        i = (i / slot_bytes_ + 1) * slot_bytes_ - 1;  // to the last byte of the page
      }
    }
    return pages;
  }
  const std::set<int64_t>& mapped() const { return mapped_; }

 private:
  int64_t slot_bytes_;
  int64_t pages_;
  std::vector<std::pair<int64_t, int64_t>> live_;  // offset, bytes; in order of allocation
  std::set<int64_t> mapped_;
};

int64_t RandomSize(const Random& random, uint64_t index) {
  const int64_t magnitude = int64_t{1} << random.Below(17, 2 * index);
  return 1 + random.Below(magnitude, 2 * index + 1);
}

TEST(ActivationArenaTest, RandomCallsAgreeWithAModel) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  constexpr int64_t kPages = 20;
  const Random random({.seed = kSeed, .stream = 1});
  const Random sizes({.seed = kSeed, .stream = 2});
  ArenaRig rig({.slot_bytes = kSlot, .slots = kPages, .pages = kPages});
  ArenaModel model(kSlot, kPages);
  std::vector<ArenaBuffer> live;
  int64_t refused = 0;
  for (uint64_t round = 0; round < 4000; ++round) {
    const int64_t action = random.Below(10, 2 * round);
    if (action == 0) {
      const int64_t keep = random.Below(kPages, 2 * round + 1);
      ASSERT_EQ(rig.arena->Trim(keep), model.Trim(keep)) << "round " << round;
    } else if (action < (round / 400 % 2 == 0 ? 7 : 4)) {
      const int64_t bytes = RandomSize(sizes, round);
      const int64_t offset = model.Allocate(bytes);
      auto buffer = rig.arena->Allocate(bytes);
      if (offset < 0) {
        ++refused;
        ASSERT_THAT(buffer, StatusIs(absl::StatusCode::kResourceExhausted, "activation addresses"));
      } else {
        ASSERT_THAT(buffer, IsOk());
        ASSERT_EQ(buffer->data() - rig.base, offset) << "round " << round;
        ASSERT_EQ(offset % 256, 0);
        ASSERT_EQ(buffer->bytes(), bytes);
        std::memset(buffer->data(), static_cast<int>(offset / 256 % 255),
                    static_cast<size_t>(bytes));
        live.push_back(*std::move(buffer));
      }
    } else if (!live.empty()) {
      const auto index =
          static_cast<size_t>(random.Below(static_cast<int64_t>(live.size()), 2 * round + 1));
      const ArenaBuffer& buffer = live[index];
      const auto mark = static_cast<std::byte>((buffer.data() - rig.base) / 256 % 255);
      ASSERT_EQ(std::count(buffer.data(), buffer.data() + buffer.bytes(), mark), buffer.bytes());
      live.erase(live.begin() + static_cast<int64_t>(index));
      model.Free(index);
    }
    ASSERT_EQ(rig.arena->live_slots(), static_cast<int64_t>(model.LivePages().size()));
    ASSERT_EQ(rig.arena->mapped_slots(), static_cast<int64_t>(model.mapped().size()));
    ASSERT_EQ(rig.pool->usage().slots_used, rig.arena->mapped_slots());
  }
  EXPECT_GT(refused, 0);  // the test did use up the range
  AccessProbe probe;
  for (int64_t page = 0; page < kPages; ++page) {
    EXPECT_EQ(probe.Faults(rig.base + page * kSlot), model.mapped().count(page) == 0) << page;
  }
  live.clear();
  EXPECT_EQ(rig.arena->live_slots(), 0);
  EXPECT_EQ(rig.arena->Trim(0), static_cast<int64_t>(model.mapped().size()));
  EXPECT_EQ(rig.pool->usage().slots_used, 0);
}

// Runs a fixed random sequence of calls and returns the offsets; -1 ends a refused one.
std::vector<int64_t> Offsets(ArenaRig& rig, std::vector<int64_t>* live_slots) {
  const Random random({.seed = kSeed, .stream = 3});
  const Random sizes({.seed = kSeed, .stream = 4});
  std::vector<ArenaBuffer> live;
  std::vector<int64_t> offsets;
  for (uint64_t round = 0; round < 1500; ++round) {
    if (random.Below(9, 2 * round) < 5) {
      live.push_back(Allocate(*rig.arena, RandomSize(sizes, round)));
      offsets.push_back(live.back().data() - rig.base);
    } else if (!live.empty()) {
      live.erase(live.begin() + random.Below(static_cast<int64_t>(live.size()), 2 * round + 1));
    }
    live_slots->push_back(rig.arena->live_slots());
  }
  return offsets;
}

TEST(ActivationArenaTest, OffsetsDoNotDependOnSlotSizeOrPressureOrMode) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  constexpr int64_t kRange = 8 << 20;
  std::vector<int64_t> live;
  ArenaRig reference({.slot_bytes = kSlot, .slots = kRange / kSlot, .pages = kRange / kSlot});
  const std::vector<int64_t> expected = Offsets(reference, &live);
  for (const int64_t slot_bytes : {int64_t{4096}, int64_t{65536}, int64_t{2 << 20}}) {
    std::vector<int64_t> other_live;
    ArenaRig rig(
        {.slot_bytes = slot_bytes, .slots = kRange / slot_bytes, .pages = kRange / slot_bytes});
    EXPECT_EQ(Offsets(rig, &other_live), expected) << slot_bytes;
  }
  // As few slots as ever are live at once: idle pages must move.
  const int64_t most = *std::max_element(live.begin(), live.end());
  ArenaRig tight({.slot_bytes = kSlot, .slots = most, .pages = kRange / kSlot});
  std::vector<int64_t> tight_live;
  EXPECT_EQ(Offsets(tight, &tight_live), expected);
  EXPECT_EQ(tight_live, live);
  EXPECT_EQ(tight.pool->usage().slots_peak, most);
  // No slots at all.
  ArenaRig dry({.slot_bytes = kSlot, .slots = 0, .pages = kRange / kSlot});
  dry.arena->SetMode(ActivationArena::Mode::kDryRun);
  std::vector<int64_t> dry_live;
  EXPECT_EQ(Offsets(dry, &dry_live), expected);
  EXPECT_EQ(dry_live, live);
  EXPECT_EQ(dry.source->acquired(), 0);
  EXPECT_EQ(dry.arena->mapped_slots(), 0);
}

TEST(ActivationArenaTest, ADryRunLeavesMappedSlotsAlone) {
  ArenaRig rig({.slot_bytes = kSlot, .slots = 4, .pages = 8});
  Allocate(*rig.arena, 2 * kSlot);
  ASSERT_EQ(rig.arena->mapped_slots(), 2);
  rig.arena->SetMode(ActivationArena::Mode::kDryRun);
  {
    const ArenaBuffer buffer = Allocate(*rig.arena, 8 * kSlot);
    EXPECT_EQ(buffer.data(), rig.base);
    EXPECT_EQ(rig.arena->live_slots(), 8);
    EXPECT_EQ(rig.arena->mapped_slots(), 2);
  }
  rig.arena->SetMode(ActivationArena::Mode::kBacked);
  const ArenaBuffer buffer = Allocate(*rig.arena, 3 * kSlot);
  std::memset(buffer.data(), 1, static_cast<size_t>(buffer.bytes()));
  EXPECT_EQ(rig.arena->mapped_slots(), 3);
}

TEST(ActivationArenaTest, ZeroBytesUseNoMemory) {
  ArenaRig rig({.slot_bytes = kSlot, .slots = 0, .pages = 4});
  const ArenaBuffer first = Allocate(*rig.arena, 0);
  const ArenaBuffer second = Allocate(*rig.arena, 0);
  EXPECT_FALSE(first.empty());
  EXPECT_NE(first.data(), nullptr);
  EXPECT_EQ(first.bytes(), 0);
  EXPECT_EQ(rig.arena->live_slots(), 0);
  EXPECT_EQ(rig.source->acquired(), 0);
}

TEST(ActivationArenaTest, WhatTheRangeCannotHoldIsResourceExhausted) {
  ArenaRig rig({.slot_bytes = kSlot, .slots = 4, .pages = 4});
  for (const int64_t bytes : {4 * kSlot + 1, INT64_MAX - 254, INT64_MAX}) {
    EXPECT_THAT(rig.arena->Allocate(bytes),
                StatusIs(absl::StatusCode::kResourceExhausted, "activation addresses"))
        << bytes;
  }
  EXPECT_EQ(Allocate(*rig.arena, 4 * kSlot).data(), rig.base);
  ArenaRig none({.slot_bytes = kSlot, .slots = 1, .pages = 0});
  EXPECT_THAT(none.arena->Allocate(1), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(ActivationArenaTest, ASourceThatFailsMidwayLeavesNothingBehind) {
  constexpr int64_t kNeeded = 5;
  for (int64_t available = 0; available <= kNeeded; ++available) {
    ArenaRig rig({.slot_bytes = kSlot, .slots = available + 1, .pages = 16});
    const ArenaBuffer other = Allocate(*rig.arena, 100);  // shares the first page
    auto buffer = rig.arena->Allocate(kNeeded * kSlot);
    if (available < kNeeded) {
      EXPECT_THAT(buffer, StatusIs(absl::StatusCode::kResourceExhausted, "activation"));
      EXPECT_EQ(rig.arena->live_slots(), 1);
      EXPECT_EQ(rig.arena->mapped_slots(), 1);
      EXPECT_EQ(rig.pool->usage().slots_used, 1);
      *other.data() = std::byte{1};  // still mapped
      EXPECT_EQ(Allocate(*rig.arena, 10).data(), rig.base + 256);
    } else {
      ASSERT_THAT(buffer, IsOk());
      EXPECT_EQ(buffer->data(), rig.base + 256);
      EXPECT_EQ(rig.arena->mapped_slots(), kNeeded + 1);
    }
  }
}

TEST(ActivationArenaTest, ASpaceThatFailsMidwayLeavesNothingBehind) {
  constexpr int64_t kNeeded = 4;
  for (int64_t maps = 0; maps <= kNeeded; ++maps) {
    int64_t maps_left = maps;
    ArenaRig rig({.slot_bytes = kSlot, .slots = 8, .pages = 8, .maps_left = &maps_left});
    auto buffer = rig.arena->Allocate(kNeeded * kSlot);
    if (maps < kNeeded) {
      EXPECT_THAT(buffer, StatusIs(absl::StatusCode::kInternal, "injected"));
      EXPECT_EQ(rig.pool->usage().slots_used, 0);
      EXPECT_EQ(rig.arena->live_slots(), 0);
      EXPECT_EQ(rig.arena->mapped_slots(), 0);
    } else {
      EXPECT_THAT(buffer, IsOk());
    }
  }
}

TEST(ActivationArenaTest, IdlePagesMoveWhereTheyAreNeededBeforeAnAllocationFails) {
  ArenaRig rig({.slot_bytes = kSlot, .slots = 3, .pages = 8});
  ArenaBuffer first = Allocate(*rig.arena, kSlot);
  const ArenaBuffer second = Allocate(*rig.arena, kSlot);
  std::memset(second.data(), 3, kSlot);
  first = ArenaBuffer();  // page 0 stays mapped
  EXPECT_EQ(rig.arena->mapped_slots(), 2);
  const ArenaBuffer third = Allocate(*rig.arena, 2 * kSlot);  // one slot of the pool, one of page 0
  EXPECT_EQ(third.data(), rig.base + 2 * kSlot);
  std::memset(third.data(), 4, 2 * kSlot);
  EXPECT_EQ(std::count(second.data(), second.data() + kSlot, std::byte{3}), kSlot);
  EXPECT_EQ(rig.arena->mapped_slots(), 3);
  EXPECT_THAT(rig.arena->Allocate(kSlot), StatusIs(absl::StatusCode::kResourceExhausted));
}

class Recorder final : public ArenaObserver {
 public:
  void OnAllocate(int64_t offset, int64_t bytes) override {
    events.push_back(StrCat("+", offset, ":", bytes));
  }
  void OnFree(int64_t offset, int64_t bytes) override {
    events.push_back(StrCat("-", offset, ":", bytes));
  }
  std::vector<std::string> events;
};

TEST(ActivationArenaTest, TheObserverSeesWhatSucceeded) {
  for (const auto mode : {ActivationArena::Mode::kBacked, ActivationArena::Mode::kDryRun}) {
    Recorder recorder;
    ArenaRig rig({.slot_bytes = kSlot, .slots = 2, .pages = 4});
    rig.arena->SetMode(mode);
    rig.arena->SetObserver(&recorder);
    ArenaBuffer a = Allocate(*rig.arena, 100);
    ArenaBuffer b = Allocate(*rig.arena, 300);
    EXPECT_FALSE(rig.arena->Allocate(5 * kSlot).ok());
    Allocate(*rig.arena, 0);
    a = std::move(b);        // frees the first
    EXPECT_TRUE(b.empty());  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(b.data(), nullptr);
    const ArenaBuffer c = std::move(a);
    EXPECT_EQ(c.bytes(), 300);
    rig.arena->SetObserver(nullptr);
    EXPECT_EQ(recorder.events, (std::vector<std::string>{"+0:100", "+256:300", "-0:100"}));
  }
}

// The source may evict, and an engine that evicts may look at the arena and trim it.
TEST(ActivationArenaTest, TheSourceMayCallBackIntoTheArena) {
  ArenaRig rig({.slot_bytes = kSlot, .slots = 8, .pages = 8});
  int64_t trimmed = 0;
  rig.source->before_acquire = [&] {
    EXPECT_EQ(rig.arena->live_slots(), 3);
    trimmed += rig.arena->Trim(0);
  };
  const ArenaBuffer buffer = Allocate(*rig.arena, 3 * kSlot);
  EXPECT_EQ(trimmed, 0);  // what is being allocated is live
  std::memset(buffer.data(), 1, static_cast<size_t>(buffer.bytes()));
}

TEST(ActivationArenaTest, OtherThreadsMayTrim) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  constexpr int64_t kPages = 16;
  ArenaRig rig({.slot_bytes = kSlot, .slots = kPages, .pages = kPages});
  std::atomic<bool> stop = false;
  std::atomic<int64_t> trimmed = 0;
  std::thread trimmer([&] {
    while (!stop.load()) {
      trimmed.fetch_add(rig.arena->Trim(2));
      GANTRY_CHECK_LE(rig.arena->mapped_slots(), kPages);
    }
  });
  const Random random({.seed = kSeed, .stream = 5});
  std::vector<ArenaBuffer> live;
  for (uint64_t round = 0; round < 2000 || trimmed.load() < 20; ++round) {
    if (live.size() < 6) {
      live.push_back(Allocate(*rig.arena, 1 + random.Below(2 * kSlot, round)));
      std::memset(live.back().data(), static_cast<int>(live.back().bytes() % 251),
                  static_cast<size_t>(live.back().bytes()));
    } else {
      for (const ArenaBuffer& buffer : live) {
        const auto mark = static_cast<std::byte>(buffer.bytes() % 251);
        GANTRY_CHECK_EQ(std::count(buffer.data(), buffer.data() + buffer.bytes(), mark),
                        buffer.bytes());
      }
      live.erase(live.begin() + random.Below(6, round));
      if (round % 7 == 0) live.clear();
    }
  }
  stop.store(true);
  trimmer.join();
}

// Chunks and activations on one budget far smaller than what the chunks need: the pool never gives
// out more than it has, and the process never holds more than the budget.
TEST(ActivationArenaTest, ChunksAndActivationsShareOneBudget) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  constexpr int64_t kSlots = 24;
  constexpr int64_t kChunks = 200;
  const Bytes resident_before = ProcessResidentBytes();
  ArenaRig rig({.slot_bytes = 4 * kSlot, .slots = kSlots, .pages = 64});
  constexpr int64_t kBytes = 4 * kSlot;
  const std::span<const std::byte> slab_range = rig.SlabRange();
  auto chunks = rig.ReserveSpace(kChunks);
  std::vector<std::pair<int64_t, SlotId>> resident;  // chunk and slot, oldest first
  const auto evict = [&] {
    if (resident.empty()) return false;
    GANTRY_CHECK_OK(chunks->Unmap(resident.front().first));
    rig.pool->Release(resident.front().second);
    resident.erase(resident.begin());
    return true;
  };
  rig.source->on_full = evict;
  const Random random({.seed = kSeed, .stream = 6});
  std::vector<ArenaBuffer> live;
  int64_t refused = 0;
  for (uint64_t round = 0; round < 2000; ++round) {
    const int64_t chunk = random.Below(kChunks, 3 * round);
    const bool here = std::any_of(resident.begin(), resident.end(),
                                  [&](const auto& entry) { return entry.first == chunk; });
    if (!here) {
      std::optional<SlotId> slot = rig.pool->TryAcquire(MemoryTag::kParameter);
      if (!slot.has_value() && (rig.arena->Trim(0) > 0 || evict())) {
        slot = rig.pool->TryAcquire(MemoryTag::kParameter);
      }
      if (slot.has_value()) {
        ASSERT_THAT(chunks->Map(chunk, *slot), IsOk());
        resident.emplace_back(chunk, *slot);
        std::memset(chunks->base() + chunk * kBytes, 1, static_cast<size_t>(kBytes));
      }
    }
    if (random.Below(2, 3 * round + 1) == 0) {
      auto buffer = rig.arena->Allocate(1 + random.Below(4 * kBytes, 3 * round + 2));
      if (buffer.ok()) {
        std::memset(buffer->data(), 2, static_cast<size_t>(buffer->bytes()));
        live.push_back(*std::move(buffer));
      } else {
        ++refused;
        ASSERT_TRUE(resident.empty());  // only activations were left
        live.clear();
      }
    } else if (!live.empty()) {
      live.erase(live.begin());
    }
    const PoolUsage usage = rig.pool->usage();
    ASSERT_LE(usage.slots_peak, kSlots);
    ASSERT_EQ(usage.used_by_tag[static_cast<size_t>(MemoryTag::kActivation)],
              rig.arena->mapped_slots());
    ASSERT_EQ(usage.slots_used, rig.arena->mapped_slots() + static_cast<int64_t>(resident.size()));
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(rig.pool->usage().slots_peak, kSlots);
  const Bytes present = ResidentBytes(slab_range) +
                        ResidentBytes({chunks->base(), static_cast<size_t>(kChunks * kBytes)}) +
                        ResidentBytes({rig.base, static_cast<size_t>(64 * kBytes)});
  EXPECT_EQ(present, Bytes(kSlots * kBytes));
  if (!kSanitized) {  // the sanitizers' shadow is not ours
    EXPECT_LE(ProcessResidentBytes(), resident_before + Bytes(kSlots * kBytes) + 2_MiB);
  }
  live.clear();
  while (evict()) {
  }
}

TEST(ActivationArenaDeathTest, MisuseAborts) {
  ArenaRig rig({.slot_bytes = kSlot, .slots = 2, .pages = 2});
  EXPECT_DEATH(static_cast<void>(rig.arena->Allocate(-1)), "bytes to allocate");
  EXPECT_DEATH(rig.arena->Trim(-1), "slots to keep");
  const ArenaBuffer zero = Allocate(*rig.arena, 0);
  EXPECT_DEATH(rig.arena->SetMode(ActivationArena::Mode::kDryRun), "under live allocations");
  EXPECT_DEATH(rig.arena.reset(), "destroyed under live allocations");
}

}  // namespace
}  // namespace gantry
