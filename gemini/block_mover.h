// Brings blocks to the tiers where they are wanted and makes room for them: the reactive core of
// the engine. Callers state wants, in three priorities; Pump starts every transfer that can start
// now; OnCompletion finishes transfers. Between calls the mover is data.
//
// Room is made by eviction: the block whose next use is furthest (or whose last use is oldest) and
// which nobody of higher priority wants leaves first. A copy that exists elsewhere too is dropped
// at once; a last copy is written to the next tier first, and its slots count as "incoming"
// meanwhile, so that no more is evicted than is needed.
//
// Wants never hold slots while they wait, so two of them cannot wait for each other: a block that
// has arrived may be evicted again for a want of higher priority.
//
// Without a file tier last copies cannot leave the host downwards. When nothing moves any more and
// a want of the host still lacks room, one of them goes up to free slots of the device, before all
// one whose home the device is. The budget (gemini/budget.h) sees to it that one of the two tiers
// then has room for any block, so such a want never waits for ever.
//
// Not thread-safe: the engine's mutex guards it.
#ifndef GANTRY_GEMINI_BLOCK_MOVER_H_
#define GANTRY_GEMINI_BLOCK_MOVER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tier.h"
#include "chunk/chunk_manager.h"
#include "nvme/io_backend.h"
#include "offload/transfer_engine.h"
#include "placement_policy/policy.h"

namespace gantry {

enum class WantPriority : uint8_t { kDemand, kUpdate, kPrefetch };
inline constexpr int kWantPriorityCount = 3;

struct Want {
  enum class Source : uint8_t {
    kContent,  // the block's bytes
    kNothing,  // room only: the caller overwrites everything
  };
  BlockIndex block;
  Tier tier;
  Source source = Source::kContent;
  int64_t need_time = 0;  // prefetch only: absolute moment of the use, compared with victims' keys
};

struct MoverCounters {
  std::array<int64_t, kTierCount> evictions{};    // copies that left the tier
  std::array<int64_t, kTierCount> write_downs{};  // of these, written to the next tier first
};

class BlockMover {
 public:
  struct Options {
    ChunkManager* manager;
    TransferEngine* transfers;  // with the file tier's store, where there is one
    EvictionOrder order;
  };
  explicit BlockMover(const Options& options);

  // Replaces the wants of one priority, most urgent first.
  void SetWants(WantPriority priority, std::vector<Want> wants);
  std::span<const Want> wants(WantPriority priority) const {
    return wants_[static_cast<size_t>(priority)];
  }
  // Free slots that the activation arena waits for (demand priority, before all other wants).
  void SetActivationNeed(int64_t slots) { activation_need_ = slots; }

  // The order of eviction: the largest key leaves first. Engine sets it at each use.
  void SetKey(BlockIndex block, int64_t key) { keys_[static_cast<size_t>(block)] = key; }
  int64_t key(BlockIndex block) const { return keys_[static_cast<size_t>(block)]; }
  void SetResidency(BlockIndex block, Tier tier, Residency residency);
  // The tier whose budget holds the block where there are no files; the host unless set.
  void SetHome(BlockIndex block, Tier tier) { homes_[static_cast<size_t>(block)] = tier; }

  // With a plan that says what stays, prefetches to the device push nothing out and leave `slots`
  // free for what is on its way out. Negative (as at first): they push out what is used later.
  void SetPrefetchReserve(int64_t slots) { prefetch_reserve_ = slots; }

  // Starts what can start. Returns how many steps (transfers, fills, drops) were made.
  // Errors: from mapping; the engine stops then.
  absl::StatusOr<int64_t> Pump();
  absl::Status OnCompletion(const TransferCompletion& completion);

  // Asks an idle copy to leave its tier now (transient blocks, gradients on their way down).
  absl::Status Evict(BlockIndex block, Tier tier);
  // The block is used or rewritten where it is: any eviction of that copy is called off.
  void CancelEviction(BlockIndex block, Tier tier);

  // Whether the copy on `tier` may be written in place now: no transfer reads or fills any copy.
  bool Writable(BlockIndex block, Tier tier) const;
  // Pins the copy on `tier` for writing: it becomes the only one. REQUIRES: Writable.
  absl::Status BeginWrite(BlockIndex block, Tier tier);
  void EndWrite(BlockIndex block, Tier tier);
  // Like BeginWrite, and sets the version that is overwritten aside in the file tier until
  // KeepVersion or TakeBack. REQUIRES: Writable, ChunkManager::CanSetAside.
  absl::Status BeginTentativeWrite(BlockIndex block, Tier tier);
  void KeepVersion(BlockIndex block);
  // REQUIRES: Idle.
  absl::Status TakeBack(BlockIndex block);
  // Whether no transfer and no pin is on any copy.
  bool Idle(BlockIndex block) const;
  // The block's content is used up. REQUIRES: its copies are idle.
  absl::Status Forget(BlockIndex block);

  int64_t transfers_under_way() const { return static_cast<int64_t>(moves_.size()); }
  const MoverCounters& counters() const { return counters_; }

 private:
  struct Move {
    BlockIndex block;
    Tier from;
    Tier to;
    bool fetch = false;  // from a file through the host to the device: both copies are being filled
    IoPriority priority = IoPriority::kDemand;  // from or to a file
  };
  // Position in the order of wants; smaller is more urgent.
  using Rank = int32_t;
  static constexpr Rank kUnwanted = 1 << 30;
  static constexpr Rank kPrefetchBegin = static_cast<Rank>(WantPriority::kPrefetch) << 20;

  std::string LabelOf(BlockIndex block, Rank rank) const;
  absl::Status Advance(const Want& want, Rank rank);
  bool MayStartAhead(const Want& want, Rank rank) const;
  absl::Status Materialise(const Want& want, Rank rank);
  absl::StatusOr<bool> MakeRoom(Tier tier, int64_t slots, const Want& want, Rank rank);
  // The want of `rank` waits for these slots: what is on its way out of the tier is as urgent.
  void Hurry(Tier tier, int64_t slots, Rank rank);
  BlockIndex PickVictim(Tier tier, const Want& want, Rank rank) const;
  void NoteShortage(const Want& want, Rank rank);
  // For the want of the host that found no room in this Pump, if nothing moves: see above.
  absl::Status LiftForHost();
  BlockIndex PickToLift(const Want& want, Rank rank, int64_t slots_max) const;
  // Whether the copy on the device may be dropped at once for a want of this rank.
  bool IsSpareOnDevice(BlockIndex block, Rank rank) const;
  bool MayLeave(BlockIndex block, Tier tier, const Want& want, Rank rank) const;
  // How gladly a copy is given up; the largest leaves first.
  using Score = std::tuple<bool, Rank, bool, bool, int64_t>;
  Score ScoreOf(BlockIndex block, Tier tier) const;
  // Of the most urgent want that needs the copy on `tier`.
  Rank RankOf(BlockIndex block, Tier tier) const;
  bool OnDeviceToo(BlockIndex block, Tier tier) const {
    return tier == Tier::kHost && manager_.copy(block, Tier::kDevice).phase == CopyPhase::kValid;
  }
  // `rank`: of the want that needs the room. No less urgent want calls the eviction off.
  absl::Status StartEviction(BlockIndex block, Tier tier, Rank rank);
  // Of a device copy that waits for host slots: just more urgent than the want that it makes room
  // for; one that leaves for no want is more urgent than what is fetched ahead.
  Rank DrainRank(BlockIndex block) const;
  absl::Status RetryDrain(BlockIndex block);
  // Returns whether the copy waits for nothing any more.
  absl::StatusOr<bool> AdvanceDrain(BlockIndex block);
  absl::Status StartMove(BlockIndex block, Tier from, Tier to, Rank rank);
  // From a file to a discrete device in one go, when both tiers have room now.
  enum class Fetch : uint8_t {
    kStarted,
    kWaitsForHost,    // whose slots are claimed
    kWaitsForDevice,  // the host has room
  };
  absl::StatusOr<Fetch> TryFetch(const Want& want, Rank rank);
  // Tells the store what has become urgent, and what nobody wants any more.
  void UpdatePriorities();
  bool has_files() const { return transfers_.store() != nullptr; }
  absl::Status FinishEviction(BlockIndex block, Tier tier);
  bool WritesToFile(Tier tier) const { return manager_.unified() || tier == Tier::kHost; }
  absl::Status TakeExtents(BlockIndex block);
  void FreeExtents(const std::array<int64_t, 2>& extents);

  ChunkManager& manager_;
  TransferEngine& transfers_;
  EvictionOrder order_;
  std::array<std::vector<Want>, kWantPriorityCount> wants_;
  std::array<std::vector<Rank>, 2> rank_;  // per tier and block, from the wants
  // Per tier and block: the rank for which a copy that is evicting leaves.
  std::array<std::vector<Rank>, 2> evictor_;
  std::vector<int64_t> keys_;
  std::array<std::vector<Residency>, 2> residency_;  // per tier and block
  std::vector<Tier> homes_;                          // per block
  std::vector<BlockIndex> drains_;                   // device copies waiting for host slots
  std::map<int64_t, Move> moves_;                    // by ticket
  std::array<int64_t, 2> incoming_{};                // slots that evictions under way will free
  std::array<int64_t, 2> claimed_{};                 // within one Pump: promised to earlier wants
  // Within one Pump: the most urgent want of the host that found no room.
  struct Shortage {
    Want want;
    Rank rank;
  };
  std::optional<Shortage> shortage_;
  int64_t activation_need_ = 0;
  int64_t prefetch_reserve_ = -1;
  int64_t progress_ = 0;  // steps made in this Pump
  MoverCounters counters_;
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_BLOCK_MOVER_H_
