// How a tier gets room: victims, copies on their way out, lifts. The evicting part of BlockMover.
#include <algorithm>
#include <tuple>

#include "base/status_macros.h"
#include "gemini/block_mover.h"

namespace gantry {

void BlockMover::NoteShortage(const Want& want, Rank rank) {
  if (want.tier != Tier::kHost || rank >= kPrefetchBegin || shortage_.has_value()) return;
  shortage_ = Shortage{.want = want, .rank = rank};
}

absl::StatusOr<bool> BlockMover::MakeRoom(Tier tier, int64_t slots, const Want& want, Rank rank) {
  const auto t = static_cast<size_t>(tier);
  if (prefetch_reserve_ >= 0 && tier == Tier::kDevice && rank >= kPrefetchBegin) {
    return manager_.pool(tier).free_slots() - claimed_[t] >= slots + prefetch_reserve_;
  }
  while (manager_.pool(tier).free_slots() + incoming_[t] - claimed_[t] < slots) {
    const BlockIndex victim = PickVictim(tier, want, rank);
    if (victim < 0) break;
    GANTRY_RETURN_IF_ERROR(StartEviction(victim, tier, rank));
    ++progress_;
  }
  const int64_t free = manager_.pool(tier).free_slots();
  const bool reachable = free + incoming_[t] - claimed_[t] >= slots;
  // A want that must wait keeps its claim, so that a less urgent one does not take its slots.
  const bool now = reachable && free - claimed_[t] >= slots;
  if (reachable && !now) Hurry(tier, slots - std::max<int64_t>(free - claimed_[t], 0), rank);
  if (!now) claimed_[t] += std::min(slots, std::max<int64_t>(free + incoming_[t] - claimed_[t], 0));
  return now;
}

void BlockMover::Hurry(Tier tier, int64_t slots, Rank rank) {
  const auto hurry = [&](BlockIndex block) {
    Rank& evictor = evictor_[static_cast<size_t>(tier)][static_cast<size_t>(block)];
    evictor = std::min(evictor, rank);
    slots -= manager_.block(block).slots;
  };
  for (const auto& [ticket, move] : moves_) {
    if (slots <= 0) return;
    if (move.from != tier || !manager_.copy(move.block, tier).evicting) continue;
    hurry(move.block);
  }
  if (tier != Tier::kDevice) return;
  for (const BlockIndex block : drains_) {
    if (slots <= 0) return;
    hurry(block);
  }
}

bool BlockMover::MayLeave(BlockIndex block, Tier tier, const Want& want, Rank rank) const {
  const BlockCopy& c = manager_.copy(block, tier);
  if (!c.idle() || c.evicting || block == want.block) return false;
  if (RankOf(block, tier) <= rank) return false;
  if (!has_files() && WritesToFile(tier) && !manager_.HasOtherCopy(block, tier)) return false;
  if (rank < kPrefetchBegin) return true;
  if (residency_[static_cast<size_t>(tier)][static_cast<size_t>(block)] == Residency::kPinned) {
    return false;
  }
  // A prefetch must not push out what is needed sooner than itself.
  return order_ == EvictionOrder::kLeastRecentlyUsed || key(block) > want.need_time;
}

// Pinned copies last. Before that: what nobody wants, then the least urgent wants. Among those,
// copies that the device has too, then transient, then floating ones; then by the key.
BlockMover::Score BlockMover::ScoreOf(BlockIndex block, Tier tier) const {
  const Residency residency = residency_[static_cast<size_t>(tier)][static_cast<size_t>(block)];
  return {residency != Residency::kPinned, RankOf(block, tier) >> 20, OnDeviceToo(block, tier),
          residency == Residency::kTransient, key(block)};
}

BlockMover::Rank BlockMover::RankOf(BlockIndex block, Tier tier) const {
  const Rank rank = rank_[static_cast<size_t>(tier)][static_cast<size_t>(block)];
  // On the way to the device the host copy is wanted as much; not when the device has the block.
  if (tier != Tier::kHost || OnDeviceToo(block, tier)) return rank;
  return std::min(rank, rank_[static_cast<size_t>(Tier::kDevice)][static_cast<size_t>(block)]);
}

BlockIndex BlockMover::PickVictim(Tier tier, const Want& want, Rank rank) const {
  BlockIndex best = -1;
  Score best_score;
  for (BlockIndex block = 0; block < manager_.block_count(); ++block) {
    if (manager_.copy(block, tier).phase != CopyPhase::kValid) continue;
    if (!MayLeave(block, tier, want, rank)) continue;
    const Score score = ScoreOf(block, tier);
    if (best < 0 || score > best_score) {
      best = block;
      best_score = score;
    }
  }
  return best;
}

absl::Status BlockMover::LiftForHost() {
  if (!shortage_ || !moves_.empty() || has_files() || manager_.unified()) return absl::OkStatus();
  const Rank rank = shortage_->rank;
  SlotPool& device = manager_.pool(Tier::kDevice);
  const int64_t claimed = claimed_[static_cast<size_t>(Tier::kDevice)];
  int64_t slots_max = device.free_slots() - claimed;
  for (BlockIndex block = 0; block < manager_.block_count(); ++block) {
    if (IsSpareOnDevice(block, rank)) slots_max += manager_.block(block).slots;
  }
  const BlockIndex lifted = PickToLift(shortage_->want, rank, slots_max);
  if (lifted < 0) return absl::OkStatus();
  const int64_t slots = manager_.block(lifted).slots;
  for (BlockIndex block = 0; device.free_slots() - claimed < slots; ++block) {
    if (IsSpareOnDevice(block, rank)) {
      GANTRY_RETURN_IF_ERROR(StartEviction(block, Tier::kDevice, rank));
    }
  }
  manager_.copy(lifted, Tier::kHost).evicting = true;
  evictor_[static_cast<size_t>(Tier::kHost)][static_cast<size_t>(lifted)] = rank;
  incoming_[static_cast<size_t>(Tier::kHost)] += slots;
  return StartMove(lifted, Tier::kHost, Tier::kDevice, rank);
}

bool BlockMover::IsSpareOnDevice(BlockIndex block, Rank rank) const {
  const BlockCopy& c = manager_.copy(block, Tier::kDevice);
  return c.idle() && !c.evicting && RankOf(block, Tier::kDevice) > rank &&
         manager_.HasOtherCopy(block, Tier::kDevice);
}

BlockIndex BlockMover::PickToLift(const Want& want, Rank rank, int64_t slots_max) const {
  BlockIndex best = -1;
  std::tuple<bool, Score> best_score;
  for (BlockIndex block = 0; block < manager_.block_count(); ++block) {
    const BlockCopy& c = manager_.copy(block, Tier::kHost);
    if (!c.idle() || c.evicting || block == want.block || RankOf(block, Tier::kHost) <= rank) {
      continue;
    }
    if (manager_.copy(block, Tier::kDevice).phase != CopyPhase::kAbsent) continue;
    if (manager_.block(block).slots > slots_max) continue;
    const bool at_home = homes_[static_cast<size_t>(block)] == Tier::kHost;
    const std::tuple<bool, Score> score{!at_home, ScoreOf(block, Tier::kHost)};
    if (best < 0 || score > best_score) {
      best = block;
      best_score = score;
    }
  }
  return best;
}

absl::Status BlockMover::Evict(BlockIndex block, Tier tier) {
  const BlockCopy& c = manager_.copy(block, tier);
  if (!c.idle() || c.evicting) return absl::OkStatus();
  if (!has_files() && WritesToFile(tier) && !manager_.HasOtherCopy(block, tier)) {
    return absl::OkStatus();
  }
  return StartEviction(block, tier, kUnwanted);
}

void BlockMover::CancelEviction(BlockIndex block, Tier tier) {
  BlockCopy& c = manager_.copy(block, tier);
  if (!c.evicting) return;
  c.evicting = false;
  incoming_[static_cast<size_t>(tier)] -= manager_.block(block).slots;
  if (tier == Tier::kDevice) std::erase(drains_, block);
}

absl::Status BlockMover::StartEviction(BlockIndex block, Tier tier, Rank rank) {
  if (manager_.HasOtherCopy(block, tier)) {
    ++counters_.evictions[static_cast<size_t>(tier)];
    return manager_.Drop(block, tier);
  }
  BlockCopy& c = manager_.copy(block, tier);
  c.evicting = true;
  evictor_[static_cast<size_t>(tier)][static_cast<size_t>(block)] = rank;
  incoming_[static_cast<size_t>(tier)] += manager_.block(block).slots;
  ++counters_.write_downs[static_cast<size_t>(tier)];
  if (WritesToFile(tier)) {
    GANTRY_RETURN_IF_ERROR(TakeExtents(block));
    return StartMove(block, tier, Tier::kFile, rank);
  }
  GANTRY_ASSIGN_OR_RETURN(const bool done, AdvanceDrain(block));
  if (!done) drains_.push_back(block);
  return absl::OkStatus();
}

BlockMover::Rank BlockMover::DrainRank(BlockIndex block) const {
  const Rank evictor = evictor_[static_cast<size_t>(Tier::kDevice)][static_cast<size_t>(block)];
  return std::min(evictor, kPrefetchBegin) - 1;
}

absl::Status BlockMover::RetryDrain(BlockIndex block) {
  // It may have been called off meanwhile.
  if (std::ranges::find(drains_, block) == drains_.end()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(const bool done, AdvanceDrain(block));
  if (done) std::erase(drains_, block);
  return absl::OkStatus();
}

absl::StatusOr<bool> BlockMover::AdvanceDrain(BlockIndex block) {
  const CopyPhase host = manager_.copy(block, Tier::kHost).phase;
  if (host != CopyPhase::kAbsent) {
    // Somebody wanted it on the host anyway; that transfer's end finishes the eviction.
    if (host == CopyPhase::kValid) GANTRY_RETURN_IF_ERROR(FinishEviction(block, Tier::kDevice));
    return true;
  }
  const Want want{.block = block, .tier = Tier::kHost};
  GANTRY_ASSIGN_OR_RETURN(
      const bool room, MakeRoom(Tier::kHost, manager_.block(block).slots, want, DrainRank(block)));
  if (room) GANTRY_RETURN_IF_ERROR(StartMove(block, Tier::kDevice, Tier::kHost, -1));
  return room;
}

// Drops a copy whose write-down is complete, unless the eviction was called off meanwhile.
absl::Status BlockMover::FinishEviction(BlockIndex block, Tier tier) {
  BlockCopy& c = manager_.copy(block, tier);
  if (!c.evicting || !c.idle()) return absl::OkStatus();
  CancelEviction(block, tier);
  ++counters_.evictions[static_cast<size_t>(tier)];
  return manager_.Drop(block, tier);
}

}  // namespace gantry
