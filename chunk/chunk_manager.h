// Which blocks have copies where, and the slots under them: the bookkeeping of all tiers, and the
// primitive steps (take slots, map at home, drop) from which every move is made. It decides nothing
// and copies nothing: gemini/ decides, offload/ copies.
//
// Rules it enforces with checks:
//   - a copy is dropped only when it is not pinned and no transfer reads it;
//   - a copy is readable only in phase kValid; a transfer fills it in phase kFilling;
//   - parameter, gradient and activation copies on the device are mapped at their home addresses
//     exactly while they are valid, so that touching an evicted parameter is a fault; optimizer
//     blocks are used by the engine alone, slot by slot, and have no home;
//   - a block that had content never loses its last copy except by Forget.
//
// Not thread-safe: the engine's mutex guards it.
#ifndef GANTRY_CHUNK_CHUNK_MANAGER_H_
#define GANTRY_CHUNK_CHUNK_MANAGER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/tier.h"
#include "chunk/block.h"
#include "chunk/block_state.h"
#include "chunk/chunk_layout.h"
#include "device/device.h"
#include "device/slot_pool.h"

namespace gantry {

// Dense number of a block: state kind x chunk count + chunk. Behind them come blocks of
// activations, of one slot each, that belong to no chunk.
using BlockIndex = int32_t;

enum class CopyPhase : uint8_t { kAbsent, kFilling, kValid };

// A block's copy on a memory tier (device or host).
struct BlockCopy {
  CopyPhase phase = CopyPhase::kAbsent;
  bool evicting = false;  // chosen to leave; a write-down may be in flight
  int32_t pins = 0;       // leases and updates using it
  int32_t readers = 0;    // transfers reading it
  int32_t writers = 0;    // pins that write it: no transfer may read it meanwhile
  int8_t unmapped = 0;    // parts that a drop has unmapped before it failed
  std::array<int64_t, 2> slots{-1, -1};

  bool idle() const { return phase == CopyPhase::kValid && pins == 0 && readers == 0; }
};

// What a block holds when it has no copy at all.
enum class BlockContent : uint8_t {
  kUndefined,  // nothing anyone may read
  kZero,       // zeros, not yet materialised
  kStored,     // some tier has a valid copy
};

struct BlockRecord {
  int8_t slots = 0;  // 0: the block does not exist
  BlockContent content = BlockContent::kUndefined;
  std::array<BlockCopy, 2> copies;  // device, host
  bool file_valid = false;
  std::array<int64_t, 2> extents{-1, -1};  // of the file tier, taken at the first write-down
  std::array<int64_t, 2> aside{-1, -1};    // extents of a version that was set aside
};

class ChunkManager {
 public:
  struct Options {
    Device* device;             // outlives the manager
    const ChunkLayout* layout;  // outlives the manager
    int64_t device_slots;
    int64_t host_slots;  // 0 on a unified device
    int64_t activation_blocks = 0;
  };
  // Errors: kResourceExhausted from the slabs, kInternal from address reservation.
  static absl::StatusOr<std::unique_ptr<ChunkManager>> Create(const Options& options);
  ~ChunkManager();

  ChunkManager(const ChunkManager&) = delete;
  ChunkManager& operator=(const ChunkManager&) = delete;

  const ChunkLayout& layout() const { return layout_; }
  bool unified() const { return unified_; }
  // The tier next below the device: host, or the file tier on a unified device.
  Tier storage_tier() const { return unified_ ? Tier::kDevice : Tier::kHost; }

  int64_t chunk_count() const { return layout_.chunk_count(); }
  int64_t block_count() const { return static_cast<int64_t>(blocks_.size()); }
  BlockIndex IndexOf(BlockId block) const {
    return static_cast<BlockIndex>(static_cast<int64_t>(block.kind) * chunk_count() +
                                   block.chunk.value());
  }
  bool IsActivation(BlockIndex block) const { return block >= chunk_count() * kStateKindCount; }
  BlockIndex ActivationBlock(int64_t number) const {
    return static_cast<BlockIndex>(chunk_count() * kStateKindCount + number);
  }
  // REQUIRES: not an activation's.
  BlockId IdOf(BlockIndex block) const {
    return {static_cast<StateKind>(block / chunk_count()), ChunkId(block % chunk_count())};
  }

  BlockRecord& block(BlockIndex index) { return blocks_[static_cast<size_t>(index)]; }
  const BlockRecord& block(BlockIndex index) const { return blocks_[static_cast<size_t>(index)]; }
  BlockCopy& copy(BlockIndex index, Tier tier) {
    return block(index).copies[static_cast<size_t>(tier)];
  }
  const BlockCopy& copy(BlockIndex index, Tier tier) const {
    return block(index).copies[static_cast<size_t>(tier)];
  }
  ChunkStateMachine& state(ChunkId chunk) { return states_[static_cast<size_t>(chunk.value())]; }

  SlotPool& pool(Tier tier) { return tier == Tier::kDevice ? *device_pool_ : *host_pool_; }
  Slab* device_slab() { return device_slab_.get(); }

  // Whether another valid copy than the one on `tier` exists.
  bool HasOtherCopy(BlockIndex index, Tier tier) const;
  bool HasAnyCopy(BlockIndex index) const;

  // Takes the block's slots on `tier` and puts the copy into kFilling; false, with nothing taken,
  // when the tier has too few free slots. REQUIRES: the copy is absent.
  bool TryBeginFill(BlockIndex index, Tier tier);
  // Makes a filled copy readable (maps it on the device). Errors: from mapping; the copy stays
  // kFilling.
  absl::Status CompleteFill(BlockIndex index, Tier tier);
  // Gives a filling copy's slots back.
  void AbandonFill(BlockIndex index, Tier tier);
  // Gives a valid, idle copy's slots back (unmaps it first). Aborts when it is the last copy of
  // stored content.
  absl::Status Drop(BlockIndex index, Tier tier);
  // The copy on `tier` is now the newest: all other copies are dropped or declared stale.
  absl::Status KeepOnly(BlockIndex index, Tier tier);
  // The block has no content any more: drops all copies.
  absl::Status Forget(BlockIndex index);

  // Sets the block's version aside before it is overwritten in memory: what is in its extents stays
  // there, and its next version goes to others. REQUIRES: CanSetAside.
  void SetAside(BlockIndex index);
  // Whether the file tier holds the newest version, and none is set aside yet.
  bool CanSetAside(BlockIndex index) const;
  // Keeps the new version; returns the extents of the old one, which are free now.
  std::array<int64_t, 2> ForgetAside(BlockIndex index);
  // Back to the version set aside; drops all copies of the new one and returns its extents, which
  // are free now. REQUIRES: the copies are idle.
  absl::StatusOr<std::array<int64_t, 2>> TakeBack(BlockIndex index);

  // All slots of the storage tier at their parking addresses: what the file tier moves blocks of.
  // (A unified device's parameters and gradients are elsewhere while they are valid.)
  std::span<std::byte> storage_memory() const;

  // The bytes of slot `part` (0 or 1) of a copy that is filling or valid.
  std::byte* Part(BlockIndex index, Tier tier, int part) const;
  // The home address of the block's first byte. REQUIRES: a block of parameters, gradients or
  // activations. Those of activations follow each other.
  std::byte* Home(BlockIndex index) const;

  std::string NameOf(BlockIndex index) const;
  std::string Describe(BlockIndex index) const;

 private:
  // The address space of one group's parameters or gradients, or of activations.
  struct HomeSpace {
    std::unique_ptr<AddressSpace> space;
    int64_t first_chunk = 0;
    int64_t pages_per_block = 1;
  };

  explicit ChunkManager(const Options& options)
      : layout_(*options.layout),
        unified_(options.device->topology() == DeviceTopology::kUnified) {}
  absl::Status ReserveHomes(Device* device);
  bool HasHome(BlockIndex index) const;
  HomeSpace& HomeOf(BlockIndex index);
  const HomeSpace& HomeOf(BlockIndex index) const;
  int64_t FirstPage(BlockIndex index) const;
  MemoryTag TagOf(BlockIndex index) const;
  absl::Status UnmapParts(BlockIndex index, int parts);
  absl::Status DropUnchecked(BlockIndex index, Tier tier);

  const ChunkLayout& layout_;
  bool unified_;
  std::unique_ptr<Slab> device_slab_;
  std::unique_ptr<Slab> host_slab_;
  std::unique_ptr<SlotPool> device_pool_;
  std::unique_ptr<SlotPool> host_pool_;
  std::vector<HomeSpace> homes_;  // 2 x group: parameter, gradient
  HomeSpace activation_home_;
  std::vector<int32_t> group_of_chunk_;
  std::vector<BlockRecord> blocks_;
  std::vector<ChunkStateMachine> states_;
};

}  // namespace gantry

#endif  // GANTRY_CHUNK_CHUNK_MANAGER_H_
