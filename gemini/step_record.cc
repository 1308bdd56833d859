#include "gemini/step_record.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/free_ranges.h"

namespace gantry {
namespace {

using Event = StepRecord::Event;

// Addresses of composed records, as many as a dry run has.
constexpr int64_t kAddressBytes = int64_t{1} << 40;

// Counts each pass's forward allocations and what is alive of them when it ends.
class SavedFinder {
 public:
  SavedFinder(const StepRecord& kept, Bytes slot)
      : kept_(kept), slot_bytes_(slot.count()), spans_(kept.layers.size()) {
    saved_.passes.resize(kept.layers.size());
  }

  SavedMemory Run() {
    for (size_t i = 0; i < kept_.events.size(); ++i) OnEvent(i, kept_.events[i]);
    AssignBlocks();
    return std::move(saved_);
  }

 private:
  // Indices of events; -1: it never comes.
  struct Span {
    int64_t begin = -1;
    int64_t end = -1;
  };

  void OnEvent(size_t index, const Event& event) {
    switch (event.kind) {
      case Event::Kind::kBeginLayer:
        pass_ = event.offset;
        alive_.clear();
        spans_[static_cast<size_t>(pass_)].begin = static_cast<int64_t>(index);
        break;
      case Event::Kind::kAllocate:
        if (pass_ < 0) break;
        alive_[event.offset] = pass().allocations.size();
        pass().allocations.push_back({.bytes = event.bytes});
        break;
      case Event::Kind::kFree:
        if (pass_ >= 0) alive_.erase(event.offset);
        break;
      case Event::Kind::kEndLayer:
        EndLayer();
        break;
      case Event::Kind::kEndLayerBackward:
        spans_[static_cast<size_t>(event.offset)].end = static_cast<int64_t>(index);
        break;
      default:
        break;
    }
  }

  SavedMemory::Pass& pass() { return saved_.passes[static_cast<size_t>(pass_)]; }

  void EndLayer() {
    alive_.erase(kept_.layers[static_cast<size_t>(pass_)].output);
    std::vector<size_t> saved;
    for (const auto& [offset, allocation] : alive_) saved.push_back(allocation);
    std::ranges::sort(saved);
    for (const size_t i : saved) {
      pass().allocations[i].offset = pass().bytes;
      pass().bytes += RoundUp(pass().allocations[i].bytes, FreeRanges::kAlignment);
    }
    pass_ = -1;
  }

  // First fit over the passes in order; a place is free when the backward pass of its last user is
  // over.
  void AssignBlocks() {
    struct Place {
      int64_t blocks;
      int64_t free_from;  // event
      std::vector<size_t> users;
    };
    std::vector<Place> places;
    for (size_t p = 0; p < saved_.passes.size(); ++p) {
      SavedMemory::Pass& pass = saved_.passes[p];
      const LayerSaving wanted = kept_.layers[p].wanted;
      const bool may = wanted == LayerSaving::kMove || wanted == LayerSaving::kPlanned;
      if (!may || spans_[p].end < 0 || pass.bytes == 0) continue;
      pass.blocks = CeilDiv(pass.bytes, slot_bytes_);
      auto place = std::ranges::find_if(places, [&](const Place& candidate) {
        return candidate.free_from <= spans_[p].begin && candidate.blocks >= pass.blocks;
      });
      if (place == places.end()) {
        places.push_back({.blocks = pass.blocks, .free_from = 0, .users = {}});
        place = std::prev(places.end());
      }
      place->free_from = spans_[p].end;
      place->users.push_back(p);
    }
    for (const Place& place : places) {
      for (const size_t p : place.users) saved_.passes[p].first_block = saved_.blocks;
      saved_.blocks += place.blocks;
    }
  }

  const StepRecord& kept_;
  const int64_t slot_bytes_;
  std::vector<Span> spans_;  // by pass: from its forward pass to the end of its backward pass
  SavedMemory saved_;
  int64_t pass_ = -1;                           // whose forward pass it is
  absl::flat_hash_map<int64_t, size_t> alive_;  // offset -> allocation of the pass
};

// A part of a record: one pass of a layer, or what lies between two.
struct Piece {
  int64_t pass = -1;  // -1: between
  bool backward = false;
  size_t first = 0;                  // events
  size_t last = 0;                   // one past
  std::vector<int32_t> leases = {};  // numbers, in order
  std::vector<size_t> outlive = {};  // allocations (events) that outlive the piece, in order
};

// A record cut into pieces, with the allocation that each free ends.
struct CutRecord {
  std::vector<Piece> pieces;
  std::vector<size_t> allocation_of;  // by event: of a free, the event that allocated; else itself

  explicit CutRecord(const StepRecord& record) {
    std::vector<size_t> piece_of(record.events.size(), 0);
    absl::flat_hash_map<int64_t, size_t> alive;  // offset -> event
    std::vector<bool> outlives(record.events.size(), false);
    int32_t leases = 0;
    for (size_t i = 0; i < record.events.size(); ++i) {
      const Event& event = record.events[i];
      allocation_of.push_back(i);
      const bool begins =
          event.kind == Event::Kind::kBeginLayer || event.kind == Event::Kind::kBeginLayerBackward;
      if (begins || pieces.empty() || ended_) Begin(event, i, begins);
      piece_of[i] = pieces.size() - 1;
      pieces.back().last = i + 1;
      ended_ = event.kind == Event::Kind::kEndLayer || event.kind == Event::Kind::kEndLayerBackward;
      if (event.kind == Event::Kind::kAcquire) pieces.back().leases.push_back(leases++);
      if (event.kind == Event::Kind::kAllocate) alive[event.offset] = i;
      if (event.kind != Event::Kind::kFree) continue;
      const auto found = alive.find(event.offset);
      if (found == alive.end()) continue;  // allocated before the record began
      allocation_of[i] = found->second;
      if (piece_of[found->second] != piece_of[i]) outlives[found->second] = true;
      alive.erase(found);
    }
    for (const auto& [offset, event] : alive) outlives[event] = true;
    for (size_t i = 0; i < outlives.size(); ++i) {
      if (outlives[i]) pieces[piece_of[i]].outlive.push_back(i);
    }
  }

 private:
  void Begin(const Event& event, size_t at, bool layer) {
    pieces.push_back({.pass = layer ? event.offset : -1,
                      .backward = event.kind == Event::Kind::kBeginLayerBackward,
                      .first = at,
                      .last = at});
  }
  bool ended_ = false;
};

class Composer {
 public:
  Composer(const StepRecord& kept, const StepRecord* again, const SavedMemory& saved,
           std::span<const LayerSaving> savings)
      : kept_(kept),
        again_(again == nullptr ? kept : *again),
        saved_(saved),
        savings_(savings),
        kept_cut_(kept),
        again_cut_(again_),
        addresses_(kAddressBytes) {}

  absl::StatusOr<StepRecord> Run() {
    GANTRY_CHECK_EQ(savings_.size(), kept_.layers.size());
    if (kept_cut_.pieces.size() != again_cut_.pieces.size()) return Differ("pieces");
    FindSaved();
    forward_leases_.resize(kept_.layers.size());
    for (size_t i = 0; i < kept_cut_.pieces.size(); ++i) GANTRY_RETURN_IF_ERROR(Pair(i));
    result_.names = kept_.names;
    result_.uses = kept_.uses;
    result_.layers = kept_.layers;
    result_.micro_batches = kept_.micro_batches;
    result_.optimizer = kept_.optimizer;
    for (size_t p = 0; p < savings_.size(); ++p) result_.layers[p].saving = savings_[p];
    for (size_t i = 0; i < kept_cut_.pieces.size(); ++i) GANTRY_RETURN_IF_ERROR(Emit(i));
    return std::move(result_);
  }

 private:
  static absl::Status Differ(const char* what) {
    return FailedPrecondition("a step with its layers run again has other ", what,
                              " between them than one that keeps all");
  }
  bool RunsAgain(int64_t pass) const {
    return pass >= 0 && savings_[static_cast<size_t>(pass)] == LayerSaving::kRecompute;
  }

  // Marks the saved allocations, which a step that runs the layer again does not make there.
  void FindSaved() {
    saved_event_.assign(kept_.events.size(), -1);
    for (const Piece& piece : kept_cut_.pieces) {
      if (piece.pass < 0 || piece.backward) continue;
      const SavedMemory::Pass& pass = saved_.passes[static_cast<size_t>(piece.pass)];
      size_t allocation = 0;
      for (size_t i = piece.first; i < piece.last; ++i) {
        if (kept_.events[i].kind != Event::Kind::kAllocate) continue;
        if (pass.allocations[allocation++].offset >= 0) saved_event_[i] = piece.pass;
      }
    }
  }

  // What outlives a piece has a twin in the other record.
  absl::Status Pair(size_t index) {
    const Piece& kept = kept_cut_.pieces[index];
    const Piece& again = again_cut_.pieces[index];
    if (kept.pass != again.pass || kept.backward != again.backward) return Differ("layers");
    if (kept.pass >= 0 && !kept.backward) {
      forward_leases_[static_cast<size_t>(kept.pass)] = kept.leases;
    }
    if (&again_ == &kept_) return absl::OkStatus();
    // A layer that both keep saves the same in both.
    const bool both = kept.pass < 0 || again_.layers[static_cast<size_t>(kept.pass)].saving !=
                                           LayerSaving::kRecompute;
    std::vector<size_t> outlive;
    for (const size_t event : kept.outlive) {
      if (both || saved_event_[event] < 0) outlive.push_back(event);
    }
    const std::vector<size_t>& twins = again.outlive;
    if (twins.size() != outlive.size()) return Differ("memory");
    for (size_t i = 0; i < outlive.size(); ++i) {
      if (kept_.events[outlive[i]].bytes != again_.events[twins[i]].bytes) return Differ("memory");
      twin_[twins[i]] = outlive[i];
    }
    return absl::OkStatus();
  }

  absl::Status Emit(size_t index) {
    const Piece& kept = kept_cut_.pieces[index];
    const bool again = RunsAgain(kept.pass);
    const Piece& piece = again ? again_cut_.pieces[index] : kept;
    const StepRecord& source = again ? again_ : kept_;
    std::vector<int32_t> origins = kept.leases;
    if (again && kept.backward) {
      // First the operators that run again, then the backward passes of all.
      const std::vector<int32_t>& forward = forward_leases_[static_cast<size_t>(kept.pass)];
      const int64_t repeated = std::ssize(piece.leases) - std::ssize(kept.leases);
      if (repeated < 0 || repeated > std::ssize(forward)) return Differ("leases");
      origins.insert(origins.begin(), forward.begin(), forward.begin() + repeated);
    }
    if (origins.size() != piece.leases.size()) return Differ("leases");
    size_t lease = 0;
    for (size_t i = piece.first; i < piece.last; ++i) {
      Event event = source.events[i];
      if (event.kind == Event::Kind::kAcquire) {
        event.origin = origins[lease++];
        if (again) Translate(event);
      }
      const bool memory = event.kind == Event::Kind::kAllocate || event.kind == Event::Kind::kFree;
      if (!memory || Place(again, i, event)) result_.events.push_back(event);
    }
    return absl::OkStatus();
  }

  // Names and uses of the other record.
  void Translate(Event& event) {
    const std::string& name = again_.names[static_cast<size_t>(event.name)];
    const auto known = std::ranges::find(result_.names, name);
    event.name = static_cast<int32_t>(known - result_.names.begin());
    if (known == result_.names.end()) result_.names.push_back(name);
    const auto first = again_.uses.begin() + event.first_use;
    event.first_use = static_cast<int32_t>(result_.uses.size());
    result_.uses.insert(result_.uses.end(), first, first + event.use_count);
  }

  // Gives an allocation its place and finds it for its free; false: it is not in the arena.
  bool Place(bool again, size_t index, Event& event) {
    const size_t allocation = (again ? again_cut_ : kept_cut_).allocation_of[index];
    const Key key = KeyOf(again, allocation);
    if (event.kind == Event::Kind::kFree) {
      const auto found = places_.find(key);
      if (found == places_.end()) return false;  // moved, or from before the record began
      event.offset = found->second;
      addresses_.Return(event.offset, event.bytes);
      places_.erase(found);
      return true;
    }
    if (event.bytes == 0) return true;
    if (!again && saved_event_[allocation] >= 0 &&
        savings_[static_cast<size_t>(saved_event_[allocation])] == LayerSaving::kMove) {
      return false;
    }
    const std::optional<int64_t> offset = addresses_.Take(event.bytes);
    GANTRY_CHECK(offset.has_value()) << event.bytes << " bytes of activation addresses";
    event.offset = *offset;
    places_[key] = *offset;
    return true;
  }

  using Key = std::pair<bool, size_t>;  // whether of the other record, and the event there
  Key KeyOf(bool again, size_t allocation) const {
    if (!again || &again_ == &kept_) return {false, allocation};
    const auto found = twin_.find(allocation);
    return found == twin_.end() ? Key{true, allocation} : Key{false, found->second};
  }

  const StepRecord& kept_;
  const StepRecord& again_;
  const SavedMemory& saved_;
  std::span<const LayerSaving> savings_;
  CutRecord kept_cut_;
  CutRecord again_cut_;
  std::vector<int64_t> saved_event_;  // by event of kept_: the pass that saves it; -1
  std::vector<std::vector<int32_t>> forward_leases_;  // by pass
  absl::flat_hash_map<size_t, size_t> twin_;          // allocation of again_ -> of kept_
  FreeRanges addresses_;
  absl::flat_hash_map<Key, int64_t> places_;
  StepRecord result_;
};

}  // namespace

SavedMemory LayOutSaved(const StepRecord& kept, Bytes slot) {
  return SavedFinder(kept, slot).Run();
}

absl::StatusOr<StepRecord> ComposeRecord(const StepRecord& kept, const StepRecord* again,
                                         const SavedMemory& saved,
                                         std::span<const LayerSaving> savings) {
  return Composer(kept, again, saved, savings).Run();
}

}  // namespace gantry
