// The mover over a real emulated device, host slab and block file. Blocks are one-slot parameters
// of frozen tensors ("small") and two-slot ones ("large"); each has its own bytes, so that a wrong
// or lost copy shows.
#include "gemini/block_mover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/host/host_device.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr auto kDevice = static_cast<size_t>(Tier::kDevice);
constexpr auto kHost = static_cast<size_t>(Tier::kHost);

struct Size {
  int64_t small = 8;  // blocks of one slot: block numbers 0 ..
  int64_t large = 2;  // blocks of two slots: the numbers behind
  int64_t device_slots = 4;
  int64_t host_slots = 4;
  bool files = true;
  DeviceTopology topology = DeviceTopology::kDiscrete;
  EvictionOrder order = EvictionOrder::kFurthestNextUse;
};

class BlockMoverTest : public ::testing::Test {
 protected:
  void Make(const Size& size) {
    std::vector<TensorSpec> specs;
    for (int64_t i = 0; i < size.small + size.large; ++i) {
      specs.push_back({.name = StrCat("t", i),
                       .shape = {kChunk},
                       .dtype = i < size.small ? DType::kBF16 : DType::kF32,
                       .trainability = Trainability::kFrozen});
    }
    auto layout =
        ChunkLayout::Create(specs, {}, {.chunk_elements = kChunk, .gradient_dtype = DType::kBF16});
    ASSERT_THAT(layout, IsOk());
    layout_ = std::make_unique<ChunkLayout>(*std::move(layout));
    auto device = CreateHostDevice({.topology = size.topology, .clock = &clock_});
    ASSERT_THAT(device, IsOk());
    device_ = *std::move(device);
    std::optional<BlockStore::Options> store;
    if (size.files) {
      store = BlockStore::Options{.directories = {::testing::TempDir()},
                                  .extent_bytes = layout_->slot_bytes(),
                                  .extent_count = 64,
                                  .sink = nullptr,
                                  .files = &files_,
                                  .clock = &clock_,
                                  .logger = &logger_};
    }
    auto manager = ChunkManager::Create({.device = device_.get(),
                                         .layout = layout_.get(),
                                         .device_slots = size.device_slots,
                                         .host_slots = size.host_slots});
    ASSERT_THAT(manager, IsOk());
    manager_ = *std::move(manager);
    auto transfers = TransferEngine::Create({.device = device_.get(),
                                             .part_bytes = layout_->slot_bytes(),
                                             .store = std::move(store),
                                             .clock = &clock_,
                                             .trace_sink = nullptr});
    ASSERT_THAT(transfers, IsOk());
    transfers_ = *std::move(transfers);
    mover_ = std::make_unique<BlockMover>(BlockMover::Options{
        .manager = manager_.get(), .transfers = transfers_.get(), .order = size.order});
  }

  void TearDown() override { transfers_.reset(); }

  // Takes one batch of completions. REQUIRES: a transfer is under way.
  void Complete() {
    ASSERT_GT(mover_->transfers_under_way(), 0);
    for (const TransferCompletion& completion : transfers_->WaitAndPoll()) {
      ASSERT_THAT(mover_->OnCompletion(completion), IsOk());
    }
  }
  void CompleteAll() {
    while (mover_->transfers_under_way() > 0) Complete();
  }
  // Pumps until nothing moves any more.
  void Settle() {
    for (int rounds = 0; rounds < 1000; ++rounds) {
      const auto progress = mover_->Pump();
      ASSERT_THAT(progress, IsOk());
      if (*progress > 0) continue;
      if (mover_->transfers_under_way() == 0) return;
      Complete();
    }
    FAIL() << "the mover does not come to rest";
  }
  void Want1(WantPriority priority, BlockIndex block, Tier tier, int64_t need_time = 0) {
    mover_->SetWants(priority, {{.block = block, .tier = tier, .need_time = need_time}});
  }
  void WantNothing() {
    for (int p = 0; p < kWantPriorityCount; ++p) {
      mover_->SetWants(static_cast<WantPriority>(p), {});
    }
  }
  // Brings the block to `tier`, writes it there and leaves it there as the only copy.
  void Put(BlockIndex block, Tier tier) {
    Want1(WantPriority::kDemand, block, tier);
    Settle();
    ASSERT_TRUE(Valid(block, tier)) << manager_->Describe(block);
    Write(block, tier);
    WantNothing();
  }
  void Write(BlockIndex block, Tier tier) {
    ASSERT_THAT(mover_->BeginWrite(block, tier), IsOk());
    ++version_[block];
    for (int part = 0; part < manager_->block(block).slots; ++part) {
      std::memset(manager_->Part(block, tier, part), Byte(block, part), SlotBytes());
    }
    mover_->EndWrite(block, tier);
  }
  void ExpectContent(BlockIndex block, Tier tier) {
    ASSERT_TRUE(Valid(block, tier)) << manager_->Describe(block);
    for (int part = 0; part < manager_->block(block).slots; ++part) {
      const std::byte* bytes = manager_->Part(block, tier, part);
      const auto expected = static_cast<std::byte>(Byte(block, part));
      for (size_t i = 0; i < SlotBytes(); i += 1021) {
        ASSERT_EQ(bytes[i], expected) << manager_->Describe(block) << " part " << part << " " << i;
      }
    }
  }
  int Byte(BlockIndex block, int part) {
    const int version = version_[block];
    return version == 0 ? 0 : (block * 31 + part * 7 + version * 3) % 251 + 1;
  }
  size_t SlotBytes() const { return static_cast<size_t>(layout_->slot_bytes().count()); }
  bool Valid(BlockIndex block, Tier tier) const {
    return manager_->copy(block, tier).phase == CopyPhase::kValid;
  }
  bool Absent(BlockIndex block, Tier tier) const {
    return manager_->copy(block, tier).phase == CopyPhase::kAbsent;
  }
  int64_t Transfers(TransferLane lane) const { return transfers_->counters(lane).transfers; }

  MonotonicClock clock_;
  MemoryLogger logger_;
  std::map<BlockIndex, int> version_;
  std::unique_ptr<ChunkLayout> layout_;
  std::unique_ptr<Device> device_;
  PosixFileCalls files_;
  std::unique_ptr<ChunkManager> manager_;
  std::unique_ptr<TransferEngine> transfers_;
  std::unique_ptr<BlockMover> mover_;
};

TEST_F(BlockMoverTest, ABlockGoesDownToTheFileAndUpAgain) {
  Make({});
  for (const BlockIndex block : {0, 8}) {
    SCOPED_TRACE(block);
    Put(block, Tier::kDevice);
    EXPECT_TRUE(Absent(block, Tier::kHost));
    ASSERT_THAT(mover_->Evict(block, Tier::kDevice), IsOk());
    Settle();
    EXPECT_TRUE(Absent(block, Tier::kDevice));
    ExpectContent(block, Tier::kHost);
    ASSERT_THAT(mover_->Evict(block, Tier::kHost), IsOk());
    Settle();
    EXPECT_TRUE(Absent(block, Tier::kHost));
    EXPECT_TRUE(manager_->block(block).file_valid);
    Want1(WantPriority::kDemand, block, Tier::kDevice);
    Settle();
    ExpectContent(block, Tier::kDevice);
    ExpectContent(block, Tier::kHost);
    WantNothing();
  }
  EXPECT_EQ(Transfers(TransferLane::kFileRead), 2);
  EXPECT_EQ(Transfers(TransferLane::kFileWrite), 2);
  EXPECT_EQ(Transfers(TransferLane::kDeviceToHost), 2);
  // Two new blocks came up as zeros, and both came back.
  EXPECT_EQ(Transfers(TransferLane::kHostToDevice), 4);
}

TEST_F(BlockMoverTest, UnifiedDevicesGoStraightToTheFile) {
  Make({.host_slots = 0, .topology = DeviceTopology::kUnified});
  Put(0, Tier::kDevice);
  ASSERT_THAT(mover_->Evict(0, Tier::kDevice), IsOk());
  Settle();
  EXPECT_TRUE(Absent(0, Tier::kDevice));
  Want1(WantPriority::kDemand, 0, Tier::kDevice);
  Settle();
  ExpectContent(0, Tier::kDevice);
  EXPECT_EQ(Transfers(TransferLane::kFileRead), 1);
}

TEST_F(BlockMoverTest, ASpareCopyIsDroppedWithoutATransfer) {
  Make({});
  Put(0, Tier::kHost);
  Want1(WantPriority::kDemand, 0, Tier::kDevice);
  Settle();
  WantNothing();
  ASSERT_THAT(mover_->Evict(0, Tier::kDevice), IsOk());
  EXPECT_TRUE(Absent(0, Tier::kDevice));
  EXPECT_EQ(mover_->transfers_under_way(), 0);
  EXPECT_EQ(mover_->counters().evictions[kDevice], 1);
  EXPECT_EQ(mover_->counters().write_downs[kDevice], 0);
  ExpectContent(0, Tier::kHost);
}

TEST_F(BlockMoverTest, ACancelledEvictionKeepsTheCopyAndItsRoomIsNotCounted) {
  Make({.device_slots = 2});
  Put(0, Tier::kDevice);
  Put(1, Tier::kDevice);
  mover_->SetKey(0, 100);
  mover_->SetKey(1, 50);
  ASSERT_THAT(mover_->Evict(0, Tier::kDevice), IsOk());
  EXPECT_TRUE(manager_->copy(0, Tier::kDevice).evicting);
  mover_->CancelEviction(0, Tier::kDevice);
  CompleteAll();
  ExpectContent(0, Tier::kDevice);
  ExpectContent(0, Tier::kHost);
  // A want that counted on the room of the cancelled eviction would never be served.
  Want1(WantPriority::kDemand, 2, Tier::kDevice);
  Settle();
  ExpectContent(2, Tier::kDevice);
  EXPECT_TRUE(Absent(0, Tier::kDevice));
  ExpectContent(1, Tier::kDevice);
}

TEST_F(BlockMoverTest, AWantCallsOffTheEvictionOfItsBlock) {
  Make({});
  Put(0, Tier::kDevice);
  ASSERT_THAT(mover_->Evict(0, Tier::kDevice), IsOk());
  Want1(WantPriority::kPrefetch, 0, Tier::kDevice);
  Settle();
  ExpectContent(0, Tier::kDevice);
}

TEST_F(BlockMoverTest, TheLargestKeyLeavesFirst) {
  Make({.host_slots = 8});
  for (BlockIndex block = 0; block < 4; ++block) Put(block, Tier::kDevice);
  const int64_t keys[] = {5, 30, 20, 10};
  for (BlockIndex block = 0; block < 4; ++block) mover_->SetKey(block, keys[block]);
  Want1(WantPriority::kDemand, 4, Tier::kDevice);
  Settle();
  EXPECT_TRUE(Absent(1, Tier::kDevice));
  mover_->SetKey(4, 1);
  Want1(WantPriority::kDemand, 8, Tier::kDevice);  // two slots
  Settle();
  EXPECT_TRUE(Absent(2, Tier::kDevice));
  EXPECT_TRUE(Absent(3, Tier::kDevice));
  ExpectContent(0, Tier::kDevice);
  ExpectContent(4, Tier::kDevice);
  EXPECT_EQ(mover_->counters().evictions[kDevice], 3);
}

TEST_F(BlockMoverTest, TransientCopiesLeaveFirstAndPinnedOnesLast) {
  Make({.device_slots = 3, .host_slots = 8});
  for (BlockIndex block = 0; block < 3; ++block) Put(block, Tier::kDevice);
  mover_->SetResidency(0, Tier::kDevice, Residency::kPinned);
  mover_->SetResidency(2, Tier::kDevice, Residency::kTransient);
  mover_->SetKey(0, 100);
  mover_->SetKey(1, 50);
  mover_->SetKey(2, 1);
  const BlockIndex order[] = {2, 1, 0};
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(Valid(order[j], Tier::kDevice), j >= i);
    }
    // The ones that came before are the most wanted.
    std::vector<Want> wants;
    for (BlockIndex block = 3; block <= 3 + i; ++block) {
      wants.push_back({.block = block, .tier = Tier::kDevice});
    }
    mover_->SetWants(WantPriority::kDemand, wants);
    Settle();
  }
  EXPECT_TRUE(Absent(0, Tier::kDevice));
}

TEST_F(BlockMoverTest, APrefetchPushesOutOnlyWhatIsNeededLater) {
  Make({.device_slots = 2});
  Put(0, Tier::kDevice);
  Put(1, Tier::kDevice);
  mover_->SetKey(0, 10);
  mover_->SetKey(1, 20);
  Want1(WantPriority::kPrefetch, 2, Tier::kDevice, 20);
  Settle();
  EXPECT_TRUE(Absent(2, Tier::kDevice));
  Want1(WantPriority::kPrefetch, 2, Tier::kDevice, 19);
  Settle();
  ExpectContent(2, Tier::kDevice);
  EXPECT_TRUE(Absent(1, Tier::kDevice));
  ExpectContent(0, Tier::kDevice);
}

TEST_F(BlockMoverTest, APrefetchSparesPinnedResidencyAndADemandDoesNot) {
  Make({.device_slots = 1});
  Put(0, Tier::kDevice);
  mover_->SetResidency(0, Tier::kDevice, Residency::kPinned);
  mover_->SetKey(0, std::numeric_limits<int64_t>::max());
  Want1(WantPriority::kPrefetch, 1, Tier::kDevice, 5);
  Settle();
  ExpectContent(0, Tier::kDevice);
  Want1(WantPriority::kDemand, 1, Tier::kDevice);
  Settle();
  ExpectContent(1, Tier::kDevice);
  ExpectContent(0, Tier::kHost);
}

TEST_F(BlockMoverTest, UnderLruAPrefetchMayPushOutTheOldest) {
  Make({.device_slots = 2, .order = EvictionOrder::kLeastRecentlyUsed});
  Put(0, Tier::kDevice);
  Put(1, Tier::kDevice);
  mover_->SetKey(0, -1);  // used at 1
  mover_->SetKey(1, -2);  // used at 2
  Want1(WantPriority::kPrefetch, 2, Tier::kDevice, 1000);
  Settle();
  EXPECT_TRUE(Absent(0, Tier::kDevice));
  ExpectContent(1, Tier::kDevice);
  ExpectContent(2, Tier::kDevice);
}

TEST_F(BlockMoverTest, LessUrgentWantsNeverPushOutMoreUrgentOnes) {
  Make({.device_slots = 2});
  for (BlockIndex block = 0; block < 4; ++block) mover_->SetKey(block, 1000 + block);
  Want1(WantPriority::kDemand, 0, Tier::kDevice);
  Want1(WantPriority::kUpdate, 1, Tier::kDevice);
  mover_->SetWants(WantPriority::kPrefetch, {{.block = 2, .tier = Tier::kDevice, .need_time = 1},
                                             {.block = 3, .tier = Tier::kDevice, .need_time = 1}});
  Settle();
  EXPECT_TRUE(Valid(0, Tier::kDevice) && Valid(1, Tier::kDevice));
  EXPECT_TRUE(Absent(2, Tier::kDevice) && Absent(3, Tier::kDevice));
  // The demand is served: the first prefetch gets its place, not the second.
  mover_->SetWants(WantPriority::kDemand, {});
  Settle();
  EXPECT_TRUE(Absent(0, Tier::kDevice));
  EXPECT_TRUE(Valid(1, Tier::kDevice) && Valid(2, Tier::kDevice));
  // A new demand pushes out the prefetch, not the update.
  mover_->SetKey(1, 1'000'000);
  Want1(WantPriority::kDemand, 4, Tier::kDevice);
  Settle();
  EXPECT_TRUE(Valid(4, Tier::kDevice) && Valid(1, Tier::kDevice));
  EXPECT_TRUE(Absent(2, Tier::kDevice));
}

TEST_F(BlockMoverTest, PinnedCopiesNeverLeave) {
  Make({.device_slots = 2});
  Put(0, Tier::kDevice);
  Put(1, Tier::kDevice);
  ++manager_->copy(0, Tier::kDevice).pins;
  ASSERT_THAT(mover_->BeginWrite(1, Tier::kDevice), IsOk());
  Want1(WantPriority::kDemand, 2, Tier::kDevice);
  Settle();
  EXPECT_TRUE(Absent(2, Tier::kDevice));
  ASSERT_THAT(mover_->Evict(0, Tier::kDevice), IsOk());
  ASSERT_THAT(mover_->Evict(1, Tier::kDevice), IsOk());
  Settle();
  EXPECT_TRUE(Valid(0, Tier::kDevice) && Valid(1, Tier::kDevice));
  mover_->EndWrite(1, Tier::kDevice);
  Settle();
  ExpectContent(2, Tier::kDevice);
  EXPECT_TRUE(Valid(0, Tier::kDevice));
  --manager_->copy(0, Tier::kDevice).pins;
}

// Blocks on their way down wait for host slots; each of them makes one block leave the host.
TEST_F(BlockMoverTest, NoMoreIsEvictedThanIsNeeded) {
  Make({.small = 16, .device_slots = 4, .host_slots = 9});
  // The host is full of blocks that exist nowhere else, the device of others.
  for (BlockIndex block = 4; block < 12; ++block) Put(block, Tier::kHost);
  for (BlockIndex block = 0; block < 4; ++block) {
    Put(block, Tier::kDevice);
    mover_->SetKey(block, 1000);
  }
  Put(12, Tier::kHost);
  ASSERT_EQ(manager_->pool(Tier::kHost).free_slots(), 0);
  ASSERT_EQ(manager_->pool(Tier::kDevice).free_slots(), 0);
  std::vector<Want> wants;
  for (BlockIndex block = 13; block < 16; ++block) {
    wants.push_back({.block = block, .tier = Tier::kDevice, .source = Want::Source::kNothing});
  }
  mover_->SetWants(WantPriority::kDemand, wants);
  Settle();
  for (const Want& want : wants) EXPECT_TRUE(Valid(want.block, Tier::kDevice));
  EXPECT_EQ(mover_->counters().evictions[kDevice], 3);
  EXPECT_EQ(mover_->counters().evictions[kHost], 3);
  EXPECT_EQ(mover_->counters().write_downs[kHost], 3);
  EXPECT_EQ(Transfers(TransferLane::kFileWrite), 3);
}

TEST_F(BlockMoverTest, AFetchThatWaitsForTheHostEvictsNoMoreThanItNeeds) {
  Make({.small = 16, .device_slots = 4, .host_slots = 4});
  // Block 0 lies in the file only; the host is full of blocks that exist nowhere else.
  Put(0, Tier::kHost);
  ASSERT_THAT(mover_->Evict(0, Tier::kHost), IsOk());
  Settle();
  ASSERT_TRUE(Absent(0, Tier::kHost));
  for (BlockIndex block = 1; block < 5; ++block) Put(block, Tier::kHost);
  ASSERT_EQ(manager_->pool(Tier::kHost).free_slots(), 0);
  const int64_t before = mover_->counters().write_downs[kHost];
  Want1(WantPriority::kDemand, 0, Tier::kDevice);
  Settle();
  ExpectContent(0, Tier::kDevice);
  EXPECT_EQ(mover_->counters().write_downs[kHost] - before, 1);
}

TEST_F(BlockMoverTest, SlotsThatAnUrgentWantWaitsForAreNotGivenToOthers) {
  Make({.device_slots = 2});
  Put(0, Tier::kDevice);
  Put(1, Tier::kDevice);
  mover_->SetKey(0, 100);
  mover_->SetKey(1, 200);
  mover_->SetWants(WantPriority::kDemand,
                   {{.block = 8, .tier = Tier::kDevice, .source = Want::Source::kNothing},
                    {.block = 2, .tier = Tier::kDevice, .source = Want::Source::kNothing}});
  Settle();
  EXPECT_TRUE(Valid(8, Tier::kDevice));
  EXPECT_TRUE(Absent(2, Tier::kDevice));
}

TEST_F(BlockMoverTest, AnActivationsSlotComesFirstAndStaysFree) {
  Make({.device_slots = 2});
  Put(0, Tier::kDevice);
  Put(1, Tier::kDevice);
  mover_->SetActivationNeed(1);
  Want1(WantPriority::kDemand, 2, Tier::kDevice);
  Settle();
  // One block left for the arena and one for the demand; the arena's slot is still free.
  EXPECT_TRUE(Valid(2, Tier::kDevice));
  EXPECT_EQ(manager_->pool(Tier::kDevice).free_slots(), 1);
  mover_->SetWants(WantPriority::kDemand,
                   {{.block = 2, .tier = Tier::kDevice}, {.block = 3, .tier = Tier::kDevice}});
  Settle();
  EXPECT_TRUE(Absent(3, Tier::kDevice));
  EXPECT_EQ(manager_->pool(Tier::kDevice).free_slots(), 1);
  mover_->SetActivationNeed(0);
  Settle();
  EXPECT_TRUE(Valid(3, Tier::kDevice));
}

TEST_F(BlockMoverTest, RoomWithoutContentNeedsNoTransfer) {
  Make({});
  Put(0, Tier::kHost);
  mover_->SetWants(WantPriority::kUpdate,
                   {{.block = 0, .tier = Tier::kDevice, .source = Want::Source::kNothing}});
  Settle();
  EXPECT_TRUE(Valid(0, Tier::kDevice));
  EXPECT_EQ(Transfers(TransferLane::kHostToDevice), 0);
  Write(0, Tier::kDevice);
  EXPECT_TRUE(Absent(0, Tier::kHost));
  ExpectContent(0, Tier::kDevice);
}

TEST_F(BlockMoverTest, ABlockIsNotWritableWhileATransferUsesIt) {
  Make({});
  Put(0, Tier::kHost);
  EXPECT_TRUE(mover_->Writable(0, Tier::kHost));
  EXPECT_FALSE(mover_->Writable(0, Tier::kDevice));
  Want1(WantPriority::kDemand, 0, Tier::kDevice);
  ASSERT_THAT(mover_->Pump(), IsOk());
  ASSERT_EQ(mover_->transfers_under_way(), 1);
  EXPECT_FALSE(mover_->Writable(0, Tier::kHost));
  EXPECT_DEATH(static_cast<void>(mover_->BeginWrite(0, Tier::kHost)), "parameter of chunk#0");
  CompleteAll();
  EXPECT_TRUE(mover_->Writable(0, Tier::kHost));
  EXPECT_TRUE(mover_->Writable(0, Tier::kDevice));
  ++manager_->copy(0, Tier::kDevice).pins;
  EXPECT_FALSE(mover_->Writable(0, Tier::kHost));
  --manager_->copy(0, Tier::kDevice).pins;
}

// Its next version is being made: what a transfer would read is neither the old nor the new one.
TEST_F(BlockMoverTest, ABlockThatIsBeingWrittenIsNotCopied) {
  Make({});
  Put(0, Tier::kHost);
  ASSERT_THAT(mover_->BeginWrite(0, Tier::kHost), IsOk());
  Want1(WantPriority::kPrefetch, 0, Tier::kDevice);
  Settle();
  EXPECT_TRUE(Absent(0, Tier::kDevice));
  mover_->EndWrite(0, Tier::kHost);
  Settle();
  ExpectContent(0, Tier::kDevice);
}

TEST_F(BlockMoverTest, WithoutFilesTheLastCopyStaysWhereTheDeviceHasNoRoom) {
  Make({.device_slots = 1, .host_slots = 2, .files = false});
  Put(3, Tier::kDevice);
  Put(0, Tier::kHost);
  Put(1, Tier::kHost);
  ASSERT_THAT(mover_->Evict(0, Tier::kHost), IsOk());
  Want1(WantPriority::kDemand, 2, Tier::kHost);
  Settle();
  ExpectContent(0, Tier::kHost);
  ExpectContent(1, Tier::kHost);
  ExpectContent(3, Tier::kDevice);
  EXPECT_TRUE(Absent(2, Tier::kHost));
  // A copy that the device has too may go.
  ASSERT_THAT(mover_->Forget(3), IsOk());
  mover_->SetActivationNeed(0);
  mover_->SetWants(WantPriority::kDemand,
                   {{.block = 0, .tier = Tier::kDevice}, {.block = 2, .tier = Tier::kHost}});
  Settle();
  EXPECT_TRUE(Valid(2, Tier::kHost));
  EXPECT_TRUE(Absent(0, Tier::kHost));
  ExpectContent(0, Tier::kDevice);
}

TEST_F(BlockMoverTest, WithoutFilesTheHostMakesRoomByLiftingToTheDevice) {
  Make({.device_slots = 3, .host_slots = 4, .files = false});
  for (BlockIndex block = 0; block < 4; ++block) Put(block, Tier::kHost);
  mover_->SetKey(0, 50);
  mover_->SetKey(1, 70);
  mover_->SetKey(2, 10);
  mover_->SetHome(2, Tier::kDevice);
  mover_->SetWants(WantPriority::kPrefetch, {{.block = 3, .tier = Tier::kHost}});
  // The block whose home is the device comes first, then the one whose use is furthest.
  Want1(WantPriority::kUpdate, 4, Tier::kHost);
  Settle();
  EXPECT_TRUE(Valid(4, Tier::kHost));
  EXPECT_TRUE(Absent(2, Tier::kHost));
  ExpectContent(2, Tier::kDevice);
  EXPECT_EQ(Transfers(TransferLane::kHostToDevice), 1);
  mover_->SetWants(WantPriority::kDemand,
                   {{.block = 4, .tier = Tier::kHost}, {.block = 8, .tier = Tier::kHost}});
  Settle();
  EXPECT_TRUE(Valid(8, Tier::kHost));
  EXPECT_TRUE(Valid(4, Tier::kHost));
  ExpectContent(0, Tier::kDevice);
  ExpectContent(1, Tier::kDevice);
  ExpectContent(3, Tier::kHost);
  EXPECT_EQ(Transfers(TransferLane::kHostToDevice), 3);
  EXPECT_EQ(mover_->counters().evictions[kHost], 3);
  EXPECT_EQ(mover_->counters().write_downs[kHost], 0);
}

// What is lifted may stand in the way of others again.
TEST_F(BlockMoverTest, OnlyUrgentWantsLift) {
  Make({.device_slots = 4, .host_slots = 1, .files = false});
  Put(0, Tier::kHost);
  mover_->SetKey(0, 1000);
  Want1(WantPriority::kPrefetch, 1, Tier::kHost);
  Settle();
  ExpectContent(0, Tier::kHost);
  EXPECT_TRUE(Absent(1, Tier::kHost));
  EXPECT_EQ(Transfers(TransferLane::kHostToDevice), 0);
  Want1(WantPriority::kUpdate, 1, Tier::kHost);
  Settle();
  EXPECT_TRUE(Valid(1, Tier::kHost));
  ExpectContent(0, Tier::kDevice);
}

TEST_F(BlockMoverTest, WithFilesTheHostMakesRoomDownwards) {
  Make({.device_slots = 4, .host_slots = 1});
  Put(0, Tier::kHost);
  Want1(WantPriority::kDemand, 1, Tier::kHost);
  Settle();
  EXPECT_TRUE(Valid(1, Tier::kHost));
  EXPECT_TRUE(Absent(0, Tier::kDevice));
  EXPECT_EQ(Transfers(TransferLane::kFileWrite), 1);
}

TEST_F(BlockMoverTest, ALiftTakesNoSlotThatIsPromisedNorABlockInUse) {
  Make({.device_slots = 1, .host_slots = 2, .files = false});
  Put(0, Tier::kHost);
  Put(1, Tier::kHost);
  mover_->SetActivationNeed(1);
  Want1(WantPriority::kUpdate, 2, Tier::kHost);
  Settle();
  EXPECT_TRUE(Absent(2, Tier::kHost));
  EXPECT_EQ(manager_->pool(Tier::kDevice).free_slots(), 1);
  mover_->SetActivationNeed(0);
  // One is pinned, the other wanted there more.
  ++manager_->copy(0, Tier::kHost).pins;
  Want1(WantPriority::kDemand, 1, Tier::kHost);
  Settle();
  EXPECT_TRUE(Absent(2, Tier::kHost));
  EXPECT_EQ(manager_->pool(Tier::kDevice).free_slots(), 1);
  --manager_->copy(0, Tier::kHost).pins;
  Settle();
  EXPECT_TRUE(Valid(2, Tier::kHost));
  ExpectContent(0, Tier::kDevice);
  ExpectContent(1, Tier::kHost);
}

TEST_F(BlockMoverTest, ALiftDropsWhatTheHostHasToo) {
  Make({.device_slots = 1, .host_slots = 2, .files = false});
  Put(0, Tier::kHost);
  Put(1, Tier::kHost);
  Want1(WantPriority::kDemand, 0, Tier::kDevice);
  Settle();
  ASSERT_TRUE(Valid(0, Tier::kDevice) && Valid(0, Tier::kHost));
  // The host's copy is the one that is wanted now.
  mover_->SetWants(WantPriority::kDemand,
                   {{.block = 0, .tier = Tier::kHost}, {.block = 2, .tier = Tier::kHost}});
  Settle();
  EXPECT_TRUE(Valid(2, Tier::kHost));
  ExpectContent(0, Tier::kHost);
  EXPECT_TRUE(Absent(0, Tier::kDevice));
  ExpectContent(1, Tier::kDevice);
}

// Room that is being made for what is fetched ahead is not made at the cost of an update; but when
// a demand needs the same room, it is.
TEST_F(BlockMoverTest, ADrainIsAsUrgentAsTheMostUrgentThatWaitsForIt) {
  Make({.device_slots = 1, .host_slots = 1});
  Put(0, Tier::kDevice);
  Put(1, Tier::kHost);
  mover_->SetKey(0, 1000);
  mover_->SetKey(1, 1000);
  Want1(WantPriority::kUpdate, 1, Tier::kHost);
  mover_->SetWants(WantPriority::kPrefetch,
                   {{.block = 2, .tier = Tier::kDevice, .source = Want::Source::kNothing}});
  Settle();
  ExpectContent(0, Tier::kDevice);
  ExpectContent(1, Tier::kHost);
  mover_->SetWants(WantPriority::kDemand,
                   {{.block = 3, .tier = Tier::kDevice, .source = Want::Source::kNothing}});
  Settle();
  EXPECT_TRUE(Valid(3, Tier::kDevice));
  EXPECT_TRUE(Absent(2, Tier::kDevice));
  EXPECT_TRUE(manager_->HasAnyCopy(0));
  EXPECT_TRUE(manager_->HasAnyCopy(1));
}

TEST_F(BlockMoverTest, ForgettingABlockInTheMiddleOfItsWayDownFreesItsRoom) {
  Make({.device_slots = 1, .host_slots = 1});
  Put(0, Tier::kDevice);
  Put(1, Tier::kHost);
  ++manager_->copy(1, Tier::kHost).pins;  // the host is full, so the device copy must wait
  ASSERT_THAT(mover_->Evict(0, Tier::kDevice), IsOk());
  EXPECT_EQ(mover_->transfers_under_way(), 0);
  ASSERT_THAT(mover_->Forget(0), IsOk());
  EXPECT_EQ(manager_->pool(Tier::kDevice).free_slots(), 1);
  --manager_->copy(1, Tier::kHost).pins;
  Want1(WantPriority::kDemand, 2, Tier::kDevice);
  Settle();
  EXPECT_TRUE(Valid(2, Tier::kDevice));
}

class RandomBlockMoverTest : public BlockMoverTest {
 protected:
  // Random calls; a block that is demanded must come.
  void RunSteps(bool unified, uint64_t seed) {
    const Random random({.seed = seed, .stream = 0});
    uint64_t drawn = 0;
    const auto below = [&](int64_t bound) { return random.Below(bound, drawn++); };
    for (int step = 0; step < 1500; ++step) {
      const auto block = static_cast<BlockIndex>(below(14));
      const Tier tier = unified || below(2) == 0 ? Tier::kDevice : Tier::kHost;
      mover_->SetKey(block, below(1000));
      switch (below(6)) {
        case 0:
          ASSERT_THAT(mover_->Evict(block, tier), IsOk());
          break;
        case 1:
          if (mover_->Writable(block, tier)) Write(block, tier);
          break;
        case 2:
          mover_->SetWants(WantPriority::kPrefetch,
                           {{.block = block, .tier = tier, .need_time = below(1000)},
                            {.block = static_cast<BlockIndex>(below(14)), .tier = Tier::kDevice}});
          break;
        case 3:
          Want1(WantPriority::kUpdate, block, tier);
          break;
        case 4:
          if (mover_->transfers_under_way() > 0) Complete();
          break;
        default:
          Want1(WantPriority::kDemand, block, tier);
          Settle();
          ExpectContent(block, tier);
      }
      ASSERT_THAT(mover_->Pump(), IsOk());
      for (const Tier each : {Tier::kDevice, Tier::kHost}) {
        if (Valid(block, each)) ExpectContent(block, each);
      }
      if (HasFatalFailure()) return;
    }
  }
};

TEST_F(RandomBlockMoverTest, WantsPinsAndWritesNeverLoseABlockAndComeToRest) {
  const Size sizes[] = {
      {.small = 10, .large = 4, .host_slots = 5},
      {.small = 10, .large = 4, .host_slots = 0, .topology = DeviceTopology::kUnified},
      // As few slots as the budget admits without files: for each block its own, and three.
      {.small = 10, .large = 4, .device_slots = 4, .host_slots = 17, .files = false},
      {.small = 10, .large = 4, .device_slots = 7, .host_slots = 14, .files = false},
      {.small = 10, .large = 4, .device_slots = 16, .host_slots = 5, .files = false},
  };
  for (size_t which = 0; which < 3 * std::size(sizes); ++which) {
    const Size& size = sizes[which % std::size(sizes)];
    const uint64_t seed = 100 + which;
    SCOPED_TRACE(StrCat("device ", size.device_slots, ", host ", size.host_slots, ", seed ", seed));
    version_.clear();
    mover_.reset();
    transfers_.reset();
    manager_.reset();
    Make(size);
    RunSteps(size.topology == DeviceTopology::kUnified, seed);
    if (HasFatalFailure()) return;
    // At rest every promise of room has been kept: an empty device can be had.
    WantNothing();
    Settle();
    if (!size.files) continue;
    mover_->SetActivationNeed(4);
    Settle();
    EXPECT_EQ(manager_->pool(Tier::kDevice).free_slots(), 4);
  }
}

}  // namespace
}  // namespace gantry
