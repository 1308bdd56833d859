// Copies and slots: the life of a copy, homes mapped exactly while valid, what aborts, and 1,000
// random operations against a plain model after which every slot is back.
#include "chunk/chunk_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/host/host_device.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;

class ChunkManagerTest : public ::testing::Test {
 protected:
  // Chunks 0 and 1: bf16; 2: f32; 3: frozen bf16.
  ChunkManagerTest() {
    auto layout =
        ChunkLayout::Create({{.name = "a", .shape = {2 * kChunk}, .dtype = DType::kBF16},
                             {.name = "b", .shape = {100}, .dtype = DType::kF32},
                             {.name = "c",
                              .shape = {100},
                              .dtype = DType::kBF16,
                              .trainability = Trainability::kFrozen}},
                            {}, {.chunk_elements = kChunk, .gradient_dtype = DType::kBF16});
    GANTRY_CHECK(layout.ok()) << layout.status().ToString();
    layout_ = std::make_unique<ChunkLayout>(*std::move(layout));
    Make(DeviceTopology::kDiscrete, 5, 5);
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  }

  void Make(DeviceTopology topology, int64_t device_slots, int64_t host_slots) {
    manager_.reset();
    auto device = CreateHostDevice({.topology = topology, .clock = &clock_});
    GANTRY_CHECK(device.ok());
    device_ = *std::move(device);
    auto manager = ChunkManager::Create({.device = device_.get(),
                                         .layout = layout_.get(),
                                         .device_slots = device_slots,
                                         .host_slots = host_slots});
    GANTRY_CHECK(manager.ok()) << manager.status().ToString();
    manager_ = *std::move(manager);
  }

  BlockIndex Index(StateKind kind, int64_t chunk) const {
    return manager_->IndexOf({kind, ChunkId(chunk)});
  }
  void Fill(BlockIndex block, Tier tier, int byte) {
    ASSERT_TRUE(manager_->TryBeginFill(block, tier));
    for (int part = 0; part < manager_->block(block).slots; ++part) {
      std::memset(manager_->Part(block, tier, part), byte + part,
                  static_cast<size_t>(layout_->slot_bytes().count()));
    }
    ASSERT_THAT(manager_->CompleteFill(block, tier), IsOk());
  }
  int64_t Free(Tier tier) { return manager_->pool(tier).free_slots(); }

  MonotonicClock clock_;
  std::unique_ptr<ChunkLayout> layout_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<ChunkManager> manager_;
};

TEST_F(ChunkManagerTest, BlocksAreNumberedByKindAndChunk) {
  EXPECT_EQ(manager_->chunk_count(), 4);
  EXPECT_EQ(manager_->block_count(), 20);
  for (BlockIndex block = 0; block < 20; ++block) {
    EXPECT_EQ(manager_->IndexOf(manager_->IdOf(block)), block);
    const BlockId id = manager_->IdOf(block);
    EXPECT_EQ(manager_->block(block).slots, layout_->HasBlock(id) ? layout_->slots_of(id) : 0);
  }
  EXPECT_EQ(manager_->storage_tier(), Tier::kHost);
  EXPECT_EQ(manager_->block(Index(StateKind::kParameter, 0)).content, BlockContent::kZero);
  EXPECT_EQ(manager_->block(Index(StateKind::kMomentum, 0)).content, BlockContent::kZero);
  EXPECT_EQ(manager_->block(Index(StateKind::kGradient, 0)).content, BlockContent::kUndefined);
  EXPECT_EQ(manager_->state(ChunkId(0)).state(), ChunkState::kFree);
}

TEST_F(ChunkManagerTest, AFillTakesSlotsAndMakesTheContentReadable) {
  const BlockIndex block = Index(StateKind::kParameter, 2);  // two slots
  ASSERT_TRUE(manager_->TryBeginFill(block, Tier::kDevice));
  EXPECT_EQ(manager_->copy(block, Tier::kDevice).phase, CopyPhase::kFilling);
  EXPECT_FALSE(manager_->HasAnyCopy(block));
  EXPECT_EQ(Free(Tier::kDevice), 3);
  EXPECT_EQ(
      manager_->pool(Tier::kDevice).usage().used_by_tag[static_cast<size_t>(MemoryTag::kParameter)],
      2);
  const auto bytes = static_cast<size_t>(layout_->slot_bytes().count());
  std::memset(manager_->Part(block, Tier::kDevice, 0), 7, bytes);
  std::memset(manager_->Part(block, Tier::kDevice, 1), 8, bytes);
  ASSERT_THAT(manager_->CompleteFill(block, Tier::kDevice), IsOk());
  EXPECT_TRUE(manager_->copy(block, Tier::kDevice).idle());
  EXPECT_TRUE(manager_->HasAnyCopy(block));
  EXPECT_FALSE(manager_->HasOtherCopy(block, Tier::kDevice));
  EXPECT_TRUE(manager_->HasOtherCopy(block, Tier::kHost));
  // Both parts lie one behind the other at home.
  const std::byte* home = manager_->Home(block);
  EXPECT_EQ(manager_->Part(block, Tier::kDevice, 0), home);
  EXPECT_EQ(manager_->Part(block, Tier::kDevice, 1), home + bytes);
  EXPECT_EQ(home[bytes - 1], std::byte{7});
  EXPECT_EQ(home[bytes], std::byte{8});
}

TEST_F(ChunkManagerTest, HomesAreFixedNeighbouringAndMappedOnlyWhileValid) {
  const BlockIndex first = Index(StateKind::kParameter, 0);
  const BlockIndex second = Index(StateKind::kParameter, 1);
  EXPECT_EQ(manager_->Home(second), manager_->Home(first) + layout_->slot_bytes().count());
  EXPECT_NE(manager_->Home(Index(StateKind::kGradient, 0)), manager_->Home(first));
  const volatile std::byte* home = manager_->Home(first);
  EXPECT_DEATH(static_cast<void>(home[0]), "");
  ASSERT_TRUE(manager_->TryBeginFill(first, Tier::kDevice));
  EXPECT_DEATH(static_cast<void>(home[0]), "");
  ASSERT_THAT(manager_->CompleteFill(first, Tier::kDevice), IsOk());
  static_cast<void>(home[0]);
  Fill(first, Tier::kHost, 1);
  ASSERT_THAT(manager_->Drop(first, Tier::kDevice), IsOk());
  EXPECT_DEATH(static_cast<void>(home[0]), "");
  Fill(first, Tier::kDevice, 5);
  EXPECT_EQ(home, manager_->Home(first));
  EXPECT_EQ(std::byte{home[0]}, std::byte{5});
}

TEST_F(ChunkManagerTest, OptimizerBlocksHaveNoHome) {
  const BlockIndex block = Index(StateKind::kMomentum, 0);
  Fill(block, Tier::kDevice, 3);
  EXPECT_EQ(manager_->Part(block, Tier::kDevice, 1)[0], std::byte{4});
  EXPECT_DEATH(manager_->Home(block), "momentum of chunk#0 has no home");
}

TEST_F(ChunkManagerTest, AFullTierTakesNothing) {
  Fill(Index(StateKind::kParameter, 0), Tier::kDevice, 1);
  Fill(Index(StateKind::kMomentum, 0), Tier::kDevice, 1);
  Fill(Index(StateKind::kParameter, 1), Tier::kDevice, 1);
  ASSERT_EQ(Free(Tier::kDevice), 1);
  const BlockIndex large = Index(StateKind::kVariance, 0);
  EXPECT_FALSE(manager_->TryBeginFill(large, Tier::kDevice));
  EXPECT_EQ(Free(Tier::kDevice), 1);
  EXPECT_EQ(manager_->copy(large, Tier::kDevice).phase, CopyPhase::kAbsent);
  EXPECT_TRUE(manager_->TryBeginFill(large, Tier::kHost));
  manager_->AbandonFill(large, Tier::kHost);
  EXPECT_EQ(Free(Tier::kHost), 5);
  EXPECT_EQ(manager_->block(large).content, BlockContent::kZero);
}

TEST_F(ChunkManagerTest, KeepOnlyMakesOtherCopiesStale) {
  const BlockIndex block = Index(StateKind::kParameter, 0);
  Fill(block, Tier::kDevice, 1);
  Fill(block, Tier::kHost, 1);
  manager_->block(block).file_valid = true;
  ASSERT_THAT(manager_->KeepOnly(block, Tier::kHost), IsOk());
  EXPECT_EQ(manager_->copy(block, Tier::kDevice).phase, CopyPhase::kAbsent);
  EXPECT_FALSE(manager_->block(block).file_valid);
  EXPECT_EQ(Free(Tier::kDevice), 5);
  EXPECT_FALSE(manager_->HasOtherCopy(block, Tier::kHost));
  EXPECT_DEATH(static_cast<void>(manager_->KeepOnly(block, Tier::kDevice)), "parameter of chunk#0");
}

TEST_F(ChunkManagerTest, ForgetDropsEverything) {
  const BlockIndex block = Index(StateKind::kGradient, 0);
  Fill(block, Tier::kDevice, 1);
  Fill(block, Tier::kHost, 1);
  manager_->block(block).file_valid = true;
  ASSERT_THAT(manager_->Forget(block), IsOk());
  EXPECT_EQ(manager_->block(block).content, BlockContent::kUndefined);
  EXPECT_FALSE(manager_->HasAnyCopy(block));
  EXPECT_EQ(Free(Tier::kDevice), 5);
  EXPECT_EQ(Free(Tier::kHost), 5);
}

TEST_F(ChunkManagerTest, MisuseAbortsAndSaysInWhatStateTheBlockIs) {
  const BlockIndex block = Index(StateKind::kParameter, 0);
  EXPECT_DEATH(static_cast<void>(manager_->CompleteFill(block, Tier::kDevice)), "device absent");
  EXPECT_DEATH(manager_->AbandonFill(block, Tier::kHost), "parameter of chunk#0");
  EXPECT_DEATH(static_cast<void>(manager_->Drop(block, Tier::kDevice)), "parameter of chunk#0");
  EXPECT_DEATH(manager_->Part(block, Tier::kDevice, 0), "parameter of chunk#0");
  EXPECT_DEATH(
      static_cast<void>(manager_->TryBeginFill(Index(StateKind::kGradient, 3), Tier::kDevice)),
      "gradient of chunk#3");
  Fill(block, Tier::kDevice, 1);
  EXPECT_DEATH(static_cast<void>(manager_->TryBeginFill(block, Tier::kDevice)), "device valid");
  EXPECT_DEATH(static_cast<void>(manager_->Drop(block, Tier::kDevice)), "last copy would be lost");
  Fill(block, Tier::kHost, 1);
  ++manager_->copy(block, Tier::kDevice).pins;
  EXPECT_DEATH(static_cast<void>(manager_->Drop(block, Tier::kDevice)), "pins 1");
  EXPECT_DEATH(static_cast<void>(manager_->KeepOnly(block, Tier::kHost)), "pins 1");
  EXPECT_DEATH(static_cast<void>(manager_->Forget(block)), "pins 1");
  --manager_->copy(block, Tier::kDevice).pins;
  ++manager_->copy(block, Tier::kHost).readers;
  EXPECT_DEATH(static_cast<void>(manager_->Drop(block, Tier::kHost)), "readers 1");
  --manager_->copy(block, Tier::kHost).readers;
}

TEST_F(ChunkManagerTest, AUnifiedDeviceStoresOnTheDevice) {
  Make(DeviceTopology::kUnified, 5, 0);
  EXPECT_TRUE(manager_->unified());
  EXPECT_EQ(manager_->storage_tier(), Tier::kDevice);
  EXPECT_FALSE(manager_->TryBeginFill(Index(StateKind::kParameter, 0), Tier::kHost));
  Fill(Index(StateKind::kParameter, 0), Tier::kDevice, 1);
}

// What the manager should know of one copy.
struct ModelCopy {
  CopyPhase phase = CopyPhase::kAbsent;
  int byte = 0;
};
struct ModelBlock {
  std::array<ModelCopy, 2> copies;
  bool file = false;
};

TEST_F(ChunkManagerTest, RandomOperationsAgreeWithAPlainModelAndLeakNoSlot) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t drawn = 0;
  const auto below = [&](int64_t bound) { return random.Below(bound, drawn++); };
  std::vector<ModelBlock> model(20);
  for (int step = 0; step < 1000; ++step) {
    const auto block = static_cast<BlockIndex>(below(20));
    const int slots = manager_->block(block).slots;
    if (slots == 0) continue;
    ModelBlock& expected = model[static_cast<size_t>(block)];
    const Tier tier = below(2) == 0 ? Tier::kDevice : Tier::kHost;
    ModelCopy& copy = expected.copies[static_cast<size_t>(tier)];
    ModelCopy& other = expected.copies[tier == Tier::kDevice ? 1 : 0];
    switch (below(6)) {
      case 0:
        if (copy.phase == CopyPhase::kAbsent) {
          const bool fits = Free(tier) >= slots;
          ASSERT_EQ(manager_->TryBeginFill(block, tier), fits);
          if (fits) copy = {CopyPhase::kFilling, static_cast<int>(1 + below(200))};
        }
        break;
      case 1:
        if (copy.phase == CopyPhase::kFilling) {
          for (int part = 0; part < slots; ++part) {
            std::memset(manager_->Part(block, tier, part), copy.byte + part,
                        static_cast<size_t>(layout_->slot_bytes().count()));
          }
          ASSERT_THAT(manager_->CompleteFill(block, tier), IsOk());
          copy.phase = CopyPhase::kValid;
        }
        break;
      case 2:
        if (copy.phase == CopyPhase::kFilling) {
          manager_->AbandonFill(block, tier);
          copy = {};
        }
        break;
      case 3:
        if (copy.phase == CopyPhase::kValid &&
            (expected.file || other.phase == CopyPhase::kValid)) {
          ASSERT_THAT(manager_->Drop(block, tier), IsOk());
          copy = {};
        }
        break;
      case 4:
        if (copy.phase == CopyPhase::kValid && other.phase != CopyPhase::kFilling) {
          ASSERT_THAT(manager_->KeepOnly(block, tier), IsOk());
          other = {};
          expected.file = false;
        }
        break;
      default:
        if (copy.phase != CopyPhase::kFilling && other.phase != CopyPhase::kFilling) {
          if (below(2) == 0) {
            ASSERT_THAT(manager_->Forget(block), IsOk());
            expected = {};
          } else if (copy.phase == CopyPhase::kValid) {
            manager_->block(block).file_valid = expected.file = true;
          }
        }
    }
    std::array<int64_t, 2> used{};
    for (BlockIndex b = 0; b < 20; ++b) {
      const ModelBlock& want = model[static_cast<size_t>(b)];
      for (const size_t t : {size_t{0}, size_t{1}}) {
        const Tier each = t == 0 ? Tier::kDevice : Tier::kHost;
        ASSERT_EQ(manager_->copy(b, each).phase, want.copies[t].phase) << manager_->Describe(b);
        if (want.copies[t].phase != CopyPhase::kAbsent) used[t] += manager_->block(b).slots;
        if (want.copies[t].phase != CopyPhase::kValid) continue;
        const int part = manager_->block(b).slots - 1;
        ASSERT_EQ(manager_->Part(b, each, part)[0],
                  static_cast<std::byte>(want.copies[t].byte + part));
      }
      ASSERT_EQ(manager_->block(b).file_valid, want.file);
    }
    ASSERT_EQ(Free(Tier::kDevice), 5 - used[0]);
    ASSERT_EQ(Free(Tier::kHost), 5 - used[1]);
  }
  manager_.reset();  // pools abort when a slot is still out
}

}  // namespace
}  // namespace gantry
