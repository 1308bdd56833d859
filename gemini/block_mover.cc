#include "gemini/block_mover.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

// Planned prefetches under way at a time: one and its successor on a copy lane; files like more.
constexpr int64_t kCopiesAheadMax = 2;
constexpr int64_t kFetchesAheadMax = 6;

// How urgent a file transfer is that was started for a want of `rank`.
IoPriority PriorityOf(int32_t rank, Tier to) {
  constexpr int32_t kDemandEnd = (static_cast<int32_t>(WantPriority::kDemand) + 1) << 20;
  if (rank < kDemandEnd) return IoPriority::kDemand;
  return to == Tier::kFile ? IoPriority::kWriteBack : IoPriority::kPrefetch;
}

}  // namespace

BlockMover::BlockMover(const Options& options)
    : manager_(*options.manager), transfers_(*options.transfers), order_(options.order) {
  const auto blocks = static_cast<size_t>(manager_.block_count());
  keys_.assign(blocks, 0);
  homes_.assign(blocks, Tier::kHost);
  for (int tier = 0; tier < 2; ++tier) {
    rank_[static_cast<size_t>(tier)].assign(blocks, kUnwanted);
    evictor_[static_cast<size_t>(tier)].assign(blocks, kUnwanted);
    residency_[static_cast<size_t>(tier)].assign(blocks, Residency::kFloating);
  }
}

void BlockMover::SetResidency(BlockIndex block, Tier tier, Residency residency) {
  residency_[static_cast<size_t>(tier)][static_cast<size_t>(block)] = residency;
}

void BlockMover::SetWants(WantPriority priority, std::vector<Want> wants) {
  std::vector<Want>& current = wants_[static_cast<size_t>(priority)];
  for (const Want& want : current) {
    rank_[0][static_cast<size_t>(want.block)] = kUnwanted;
    rank_[1][static_cast<size_t>(want.block)] = kUnwanted;
  }
  current = std::move(wants);
  // Lists may name the same block, so ranks are set anew for all of them, least urgent first.
  for (int p = kWantPriorityCount; p-- > 0;) {
    const std::vector<Want>& list = wants_[static_cast<size_t>(p)];
    for (size_t i = list.size(); i-- > 0;) {
      const Rank rank = (p << 20) + static_cast<Rank>(i);
      rank_[static_cast<size_t>(list[i].tier)][static_cast<size_t>(list[i].block)] = rank;
    }
  }
}

absl::StatusOr<int64_t> BlockMover::Pump() {
  progress_ = 0;
  claimed_ = {0, 0};
  shortage_.reset();
  if (activation_need_ > 0) {
    const Want room{.block = -1, .tier = Tier::kDevice, .source = Want::Source::kNothing};
    GANTRY_ASSIGN_OR_RETURN(const bool there, MakeRoom(Tier::kDevice, activation_need_, room, -1));
    // The compute thread takes the slots itself, after this.
    if (there) claimed_[static_cast<size_t>(Tier::kDevice)] += activation_need_;
  }
  // Each right before the want that it makes room for.
  std::vector<BlockIndex> drains = drains_;
  std::ranges::stable_sort(drains, {}, [this](BlockIndex block) { return DrainRank(block); });
  auto drain = drains.begin();
  for (int p = 0; p < kWantPriorityCount; ++p) {
    const std::vector<Want>& list = wants_[static_cast<size_t>(p)];
    for (size_t i = 0; i < list.size(); ++i) {
      const Rank rank = (p << 20) + static_cast<Rank>(i);
      for (; drain != drains.end() && DrainRank(*drain) < rank; ++drain) {
        GANTRY_RETURN_IF_ERROR(RetryDrain(*drain));
      }
      GANTRY_RETURN_IF_ERROR(Advance(list[i], rank));
    }
  }
  for (; drain != drains.end(); ++drain) GANTRY_RETURN_IF_ERROR(RetryDrain(*drain));
  UpdatePriorities();
  GANTRY_RETURN_IF_ERROR(LiftForHost());
  return progress_;
}

absl::Status BlockMover::Advance(const Want& want, Rank rank) {
  BlockCopy& target = manager_.copy(want.block, want.tier);
  if (target.phase == CopyPhase::kFilling) return absl::OkStatus();
  if (target.phase == CopyPhase::kValid) {
    // Unless it makes room for something more urgent.
    const Rank evictor = evictor_[static_cast<size_t>(want.tier)][static_cast<size_t>(want.block)];
    if (evictor >= rank) CancelEviction(want.block, want.tier);
    return absl::OkStatus();
  }
  if (!MayStartAhead(want, rank)) return absl::OkStatus();
  const BlockRecord& record = manager_.block(want.block);
  const bool device_from_host = want.tier == Tier::kDevice && !manager_.unified();
  if (want.source == Want::Source::kNothing || record.content == BlockContent::kZero) {
    if (device_from_host && want.source != Want::Source::kNothing) {
      // Zeros are made on the host and copied up like any other content.
      if (manager_.copy(want.block, Tier::kHost).phase == CopyPhase::kAbsent) {
        return Materialise({.block = want.block, .tier = Tier::kHost}, rank);
      }
    } else {
      return Materialise(want, rank);
    }
  }
  const Tier neighbour = want.tier == Tier::kDevice ? Tier::kHost : Tier::kDevice;
  const BlockCopy& near = manager_.copy(want.block, neighbour);
  if (!manager_.unified() && near.phase == CopyPhase::kFilling) return absl::OkStatus();
  const bool from_near = !manager_.unified() && near.phase == CopyPhase::kValid;
  if (from_near && near.writers > 0) return absl::OkStatus();  // its next version is being made
  if (!from_near && device_from_host) {
    // A file's bytes reach a discrete device through a host slot.
    const Want via{.block = want.block, .tier = Tier::kHost, .need_time = want.need_time};
    if (near.phase == CopyPhase::kAbsent && record.file_valid) {
      GANTRY_ASSIGN_OR_RETURN(const Fetch fetch, TryFetch(want, rank));
      if (fetch != Fetch::kWaitsForDevice) return absl::OkStatus();
    }
    return Advance(via, rank);
  }
  GANTRY_CHECK(from_near || record.file_valid)
      << "wanted on " << want.tier << " but nowhere valid: " << manager_.Describe(want.block);
  GANTRY_ASSIGN_OR_RETURN(const bool room, MakeRoom(want.tier, record.slots, want, rank));
  if (!room) {
    NoteShortage(want, rank);
    return absl::OkStatus();
  }
  // Making room may have moved the source itself.
  if (from_near && manager_.copy(want.block, neighbour).phase != CopyPhase::kValid) {
    return absl::OkStatus();
  }
  return StartMove(want.block, from_near ? neighbour : Tier::kFile, want.tier, rank);
}

// A lane is kept busy, but what it will carry is decided as late as possible: meanwhile something
// more urgent may become available, and slots are not held longer than need be.
bool BlockMover::MayStartAhead(const Want& want, Rank rank) const {
  if (prefetch_reserve_ < 0 || want.tier != Tier::kDevice || rank < kPrefetchBegin) return true;
  const bool from_host =
      !manager_.unified() && manager_.copy(want.block, Tier::kHost).phase != CopyPhase::kAbsent;
  int64_t under_way = 0;
  for (const auto& [ticket, move] : moves_) under_way += move.to == Tier::kDevice ? 1 : 0;
  return under_way < (from_host ? kCopiesAheadMax : kFetchesAheadMax);
}

// Gives the block slots without a transfer: undefined bytes for a caller that overwrites them, or
// the zeros that the block logically holds.
absl::Status BlockMover::Materialise(const Want& want, Rank rank) {
  const BlockRecord& record = manager_.block(want.block);
  GANTRY_ASSIGN_OR_RETURN(const bool room, MakeRoom(want.tier, record.slots, want, rank));
  if (!room) {
    NoteShortage(want, rank);
    return absl::OkStatus();
  }
  GANTRY_CHECK(manager_.TryBeginFill(want.block, want.tier)) << manager_.Describe(want.block);
  if (want.source == Want::Source::kContent) {
    const auto bytes = static_cast<size_t>(manager_.layout().slot_bytes().count());
    for (int part = 0; part < record.slots; ++part) {
      std::memset(manager_.Part(want.block, want.tier, part), 0, bytes);
    }
  }
  ++progress_;
  return manager_.CompleteFill(want.block, want.tier);
}

absl::Status BlockMover::TakeExtents(BlockIndex block) {
  BlockRecord& record = manager_.block(block);
  for (int part = 0; part < record.slots; ++part) {
    if (record.extents[static_cast<size_t>(part)] >= 0) continue;
    GANTRY_ASSIGN_OR_RETURN(const ExtentId extent, transfers_.store()->AllocateExtent());
    record.extents[static_cast<size_t>(part)] = extent.value();
  }
  return absl::OkStatus();
}

// For the trace: "parameter of chunk#3 (demand)"; nothing when nobody sees it. What leaves is as
// urgent as the want it makes room for.
std::string BlockMover::LabelOf(BlockIndex block, Rank rank) const {
  if (!transfers_.traced()) return {};
  std::string label = StrCat(manager_.IdOf(block));
  constexpr std::array<std::string_view, kWantPriorityCount> kNames = {"demand", "update",
                                                                       "prefetch"};
  // The activations' need comes before all wants; what nobody wants, behind them.
  const int32_t priority = rank >> 20;
  if (rank < 0 || priority >= kWantPriorityCount) return label;
  return StrCat(label, " (", kNames[static_cast<size_t>(priority)], ")");
}

absl::Status BlockMover::StartMove(BlockIndex block, Tier from, Tier to, Rank rank) {
  BlockRecord& record = manager_.block(block);
  ++progress_;
  if (to != Tier::kFile) {
    GANTRY_CHECK(manager_.TryBeginFill(block, to)) << manager_.Describe(block);
  }
  if (from != Tier::kFile) {
    BlockCopy& source = manager_.copy(block, from);
    GANTRY_CHECK_EQ(source.writers, 0) << manager_.Describe(block);
    ++source.readers;
  }
  Move move{.block = block, .from = from, .to = to};
  TransferTicket ticket(-1);
  if (from == Tier::kFile || to == Tier::kFile) {
    std::vector<FilePart> parts;
    const Tier memory = from == Tier::kFile ? to : from;
    for (int part = 0; part < record.slots; ++part) {
      parts.push_back({ExtentId(record.extents[static_cast<size_t>(part)]),
                       manager_.Part(block, memory, part)});
    }
    move.priority = PriorityOf(rank, to);
    ticket = from == Tier::kFile ? transfers_.ReadFile(parts, move.priority, LabelOf(block, rank))
                                 : transfers_.WriteFile(parts, move.priority, LabelOf(block, rank));
  } else {
    std::vector<CopyPart> parts;
    for (int part = 0; part < record.slots; ++part) {
      parts.push_back({manager_.Part(block, to, part), manager_.Part(block, from, part)});
    }
    ticket = transfers_.Copy(
        to == Tier::kDevice ? CopyDirection::kHostToDevice : CopyDirection::kDeviceToHost, parts,
        LabelOf(block, rank));
  }
  moves_.emplace(ticket.value(), move);
  return absl::OkStatus();
}

absl::StatusOr<BlockMover::Fetch> BlockMover::TryFetch(const Want& want, Rank rank) {
  const int64_t slots = manager_.block(want.block).slots;
  const Want via{.block = want.block, .tier = Tier::kHost, .need_time = want.need_time};
  GANTRY_ASSIGN_OR_RETURN(const bool host_room, MakeRoom(Tier::kHost, slots, via, rank));
  if (!host_room) return Fetch::kWaitsForHost;
  GANTRY_ASSIGN_OR_RETURN(const bool device_room, MakeRoom(Tier::kDevice, slots, want, rank));
  if (!device_room) return Fetch::kWaitsForDevice;
  // Making room on the device may have taken the host's.
  if (manager_.pool(Tier::kHost).free_slots() < slots) return Fetch::kWaitsForHost;
  GANTRY_CHECK(manager_.TryBeginFill(want.block, Tier::kHost)) << manager_.Describe(want.block);
  GANTRY_CHECK(manager_.TryBeginFill(want.block, Tier::kDevice)) << manager_.Describe(want.block);
  ++progress_;
  std::vector<FetchPart> parts;
  for (int part = 0; part < slots; ++part) {
    parts.push_back({ExtentId(manager_.block(want.block).extents[static_cast<size_t>(part)]),
                     manager_.Part(want.block, Tier::kHost, part),
                     manager_.Part(want.block, Tier::kDevice, part)});
  }
  const IoPriority priority = PriorityOf(rank, Tier::kDevice);
  const TransferTicket ticket = transfers_.FetchFile(parts, priority, LabelOf(want.block, rank));
  moves_.emplace(ticket.value(), Move{.block = want.block,
                                      .from = Tier::kFile,
                                      .to = Tier::kDevice,
                                      .fetch = true,
                                      .priority = priority});
  return Fetch::kStarted;
}

void BlockMover::UpdatePriorities() {
  for (auto& [number, move] : moves_) {
    if (move.priority == IoPriority::kDemand) continue;
    const bool read = move.from == Tier::kFile;
    const Tier memory = read ? move.to : move.from;
    const Rank rank = read ? RankOf(move.block, memory)
                           : evictor_[static_cast<size_t>(memory)][static_cast<size_t>(move.block)];
    if (read && rank == kUnwanted) {
      transfers_.Cancel(TransferTicket(number));
      continue;
    }
    const IoPriority priority = PriorityOf(rank, move.to);
    if (priority >= move.priority) continue;
    move.priority = priority;
    transfers_.Promote(TransferTicket(number), priority);
  }
}

absl::Status BlockMover::OnCompletion(const TransferCompletion& completion) {
  const auto found = moves_.find(completion.ticket.value());
  GANTRY_CHECK(found != moves_.end()) << completion.ticket;
  const Move move = found->second;
  moves_.erase(found);
  if (move.from != Tier::kFile) --manager_.copy(move.block, move.from).readers;
  if (!completion.status.ok()) {
    if (move.to != Tier::kFile) manager_.AbandonFill(move.block, move.to);
    if (move.fetch) manager_.AbandonFill(move.block, Tier::kHost);
    // Called off by UpdatePriorities: nobody wanted it any more, and the file has it still.
    if (absl::IsCancelled(completion.status)) return absl::OkStatus();
    return absl::Status(
        completion.status.code(),
        ToAbsl(StrCat("moving ", manager_.NameOf(move.block), " from ", move.from, " to ", move.to,
                      ": ", FromAbsl(completion.status.message()))));
  }
  if (move.to == Tier::kFile) {
    manager_.block(move.block).file_valid = true;
  } else {
    GANTRY_RETURN_IF_ERROR(manager_.CompleteFill(move.block, move.to));
    if (move.fetch) GANTRY_RETURN_IF_ERROR(manager_.CompleteFill(move.block, Tier::kHost));
  }
  return move.from == Tier::kFile ? absl::OkStatus() : FinishEviction(move.block, move.from);
}

bool BlockMover::Writable(BlockIndex block, Tier tier) const {
  const Tier other = tier == Tier::kDevice ? Tier::kHost : Tier::kDevice;
  const BlockCopy& c = manager_.copy(block, tier);
  const BlockCopy& o = manager_.copy(block, other);
  return c.phase == CopyPhase::kValid && c.readers == 0 && o.readers == 0 && o.pins == 0 &&
         o.phase != CopyPhase::kFilling;
}

absl::Status BlockMover::BeginWrite(BlockIndex block, Tier tier) {
  GANTRY_CHECK(Writable(block, tier)) << manager_.Describe(block);
  CancelEviction(block, Tier::kDevice);
  CancelEviction(block, Tier::kHost);
  GANTRY_RETURN_IF_ERROR(manager_.KeepOnly(block, tier));
  BlockCopy& copy = manager_.copy(block, tier);
  ++copy.pins;
  ++copy.writers;
  return absl::OkStatus();
}

void BlockMover::EndWrite(BlockIndex block, Tier tier) {
  BlockCopy& copy = manager_.copy(block, tier);
  GANTRY_CHECK(copy.pins > 0 && copy.writers > 0) << manager_.Describe(block);
  --copy.pins;
  --copy.writers;
}

absl::Status BlockMover::BeginTentativeWrite(BlockIndex block, Tier tier) {
  manager_.SetAside(block);
  return BeginWrite(block, tier);
}

void BlockMover::KeepVersion(BlockIndex block) { FreeExtents(manager_.ForgetAside(block)); }

absl::Status BlockMover::TakeBack(BlockIndex block) {
  CancelEviction(block, Tier::kDevice);
  CancelEviction(block, Tier::kHost);
  GANTRY_ASSIGN_OR_RETURN(const auto extents, manager_.TakeBack(block));
  FreeExtents(extents);
  return absl::OkStatus();
}

void BlockMover::FreeExtents(const std::array<int64_t, 2>& extents) {
  for (const int64_t extent : extents) {
    if (extent >= 0) transfers_.store()->FreeExtent(ExtentId(extent));
  }
}

bool BlockMover::Idle(BlockIndex block) const {
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    const BlockCopy& c = manager_.copy(block, tier);
    if (c.phase != CopyPhase::kAbsent && !c.idle()) return false;
  }
  return true;
}

absl::Status BlockMover::Forget(BlockIndex block) {
  CancelEviction(block, Tier::kDevice);
  CancelEviction(block, Tier::kHost);
  return manager_.Forget(block);
}

}  // namespace gantry
