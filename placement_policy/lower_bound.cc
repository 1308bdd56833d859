#include "placement_policy/lower_bound.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "placement_policy/interval_sweep.h"
#include "placement_policy/machine.h"
#include "placement_policy/path_bound.h"
#include "placement_policy/slot_room.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

// What a lane must carry for gaps that can be kept: intervals, the room they share, and the least
// time of a slot.
struct Avoidable {
  std::vector<UnitInterval> intervals;
  std::vector<int64_t> room;
  SlotTime slot_time;

  DropRate Drops() const { return intervals.empty() ? DropRate() : LeastDrops(intervals, room); }
  Nanoseconds TimeOf(const DropRate& drops) const {
    return drops.units == 0 ? 0 : slot_time.Of(drops.units) / drops.periods;
  }
  // Beside `fixed` per step, on average.
  Nanoseconds Least(Nanoseconds fixed) const { return fixed + TimeOf(Drops()); }
};

class LaneBounds {
 public:
  LaneBounds(const MovementProblem& problem, const UseCycle& cycle)
      : problem_(problem), cycle_(cycle), base_(BaseSlots(problem, cycle)) {}

  void Compute(LowerBound& result) const {
    Nanoseconds new_versions = 0;
    int64_t version_slots = 0;
    for (size_t use = 0; use < problem_.uses.size(); ++use) {
      if (cycle_.links[use].gap != Gap::kNew) continue;
      version_slots += slots(problem_.uses[use].block);
      new_versions += LaneTime(problem_.host_to_device, bytes(problem_.uses[use].block));
    }
    Nanoseconds gradients = 0;
    for (const MovementProblem::HostUpdate& update : problem_.updates) {
      gradients += LaneTime(problem_.device_to_host, bytes(update.gradient));
      result.host_update += update.update;
    }
    const auto all = [](int32_t) { return true; };
    const Avoidable fetches = Fetches(problem_.host_to_device, all);
    const DropRate drops = fetches.Drops();
    result.slots_fetched = version_slots + drops.units / drops.periods;
    result.host_to_device = new_versions + fetches.TimeOf(drops);
    result.device_to_host = Writes(problem_.device_to_host, all).Least(gradients);
    if (problem_.link_half_duplex) result.link = result.host_to_device + result.device_to_host;
    ComputeFiles(result);
  }

 private:
  using Counted = std::function<bool(int32_t)>;  // whether a block counts

  int64_t bytes(int32_t block) const { return problem_.block_bytes(block); }
  int64_t slots(int32_t block) const { return problem_.block_slots[static_cast<size_t>(block)]; }

  bool in_file(int32_t block) const { return problem_.in_file[static_cast<size_t>(block)]; }

  // Each gap in which the content stays the same: kept or fetched at its end.
  Avoidable Fetches(const Lane& lane, const Counted& counts) const {
    Avoidable result;
    result.room = RoomBeside(problem_, base_);
    for (size_t use = 0; use < problem_.uses.size(); ++use) {
      const int32_t block = problem_.uses[use].block;
      const UseCycle::Link& link = cycle_.links[use];
      if (link.gap != Gap::kSame || !counts(block)) continue;
      result.intervals.push_back(
          {.start = link.moment, .distance = link.distance, .units = slots(block)});
      result.slot_time.Include(LaneTime(lane, bytes(block)), slots(block));
    }
    return result;
  }

  // From each write of a block to its next write, or its last use before the content ends: kept all
  // along, or written back. Uses in between that only read are part of the interval.
  Avoidable Writes(const Lane& lane, const Counted& counts) const {
    Avoidable result;
    std::vector<int64_t> base = base_;
    for (size_t use = 0; use < problem_.uses.size(); ++use) {
      const BlockUse& what = problem_.uses[use];
      const bool writes = what.access == BlockAccess::kWrite || what.access == BlockAccess::kCreate;
      if (!writes || cycle_.links[use].gap != Gap::kSame || !counts(what.block)) continue;
      UnitInterval interval = {
          .start = cycle_.links[use].moment, .distance = 0, .units = slots(what.block)};
      size_t at = use;
      while (true) {
        interval.distance += cycle_.links[at].distance;
        at = static_cast<size_t>(cycle_.links[at].next);
        const bool reads = problem_.uses[at].access == BlockAccess::kRead;
        if (!reads || cycle_.links[at].gap != Gap::kSame) break;
        base[static_cast<size_t>(cycle_.links[at].moment)] -= interval.units;
      }
      result.intervals.push_back(interval);
      result.slot_time.Include(LaneTime(lane, bytes(what.block)), interval.units);
    }
    result.room = RoomBeside(problem_, base);
    return result;
  }

  void ComputeFiles(LowerBound& result) const {
    Nanoseconds reads = 0;
    Nanoseconds writes = 0;
    for (const MovementProblem::HostUpdate& update : problem_.updates) {
      if (update.file_bytes == 0) continue;
      reads += LaneTime(problem_.file_read, update.file_bytes);
      const int64_t parameter = in_file(update.parameter) ? bytes(update.parameter) : 0;
      writes += LaneTime(problem_.file_write, update.file_bytes + parameter);
    }
    for (size_t use = 0; use < problem_.uses.size(); ++use) {
      const int32_t block = problem_.uses[use].block;
      if (cycle_.links[use].gap != Gap::kNew || !in_file(block)) continue;
      reads += LaneTime(problem_.file_read, bytes(block));
    }
    const auto any = std::ranges::find(problem_.in_file, true) != problem_.in_file.end();
    if (reads == 0 && !any) return;
    const Counted counted = [this](int32_t block) { return in_file(block); };
    result.file_read = Fetches(problem_.file_read, counted).Least(reads);
    result.file_write = Writes(problem_.file_write, counted).Least(writes);
    if (problem_.file_half_duplex) result.files = result.file_read + result.file_write;
  }

  const MovementProblem& problem_;
  const UseCycle& cycle_;
  const std::vector<int64_t> base_;
};

void SetTotal(LowerBound& result) {
  using Limit = LowerBound::Limit;
  const std::pair<Nanoseconds, Limit> parts[] = {
      {result.compute, Limit::kCompute},
      {result.host_to_device, Limit::kHostToDevice},
      {result.device_to_host, Limit::kDeviceToHost},
      {result.link, Limit::kLink},
      {result.host_update, Limit::kHostUpdate},
      {result.file_read, Limit::kFileRead},
      {result.file_write, Limit::kFileWrite},
      {result.files, Limit::kFiles},
      {result.path, Limit::kPath},
  };
  for (const auto& [time, limit] : parts) {
    if (time <= result.total) continue;
    result.total = time;
    result.limit = limit;
  }
}

}  // namespace

std::string_view Name(LowerBound::Limit limit) {
  switch (limit) {
    case LowerBound::Limit::kCompute:
      return "compute";
    case LowerBound::Limit::kHostToDevice:
      return "host to device";
    case LowerBound::Limit::kDeviceToHost:
      return "device to host";
    case LowerBound::Limit::kLink:
      return "link, both directions";
    case LowerBound::Limit::kHostUpdate:
      return "host update";
    case LowerBound::Limit::kFileRead:
      return "file read";
    case LowerBound::Limit::kFileWrite:
      return "file write";
    case LowerBound::Limit::kFiles:
      return "files, both directions";
    case LowerBound::Limit::kPath:
      return "windows";
  }
  return "?";
}

LowerBound ComputeLowerBound(const MovementProblem& problem, const LowerBoundOptions& options) {
  LowerBound result;
  if (problem.moments.empty()) return result;
  const UseCycle cycle = LinkUses(problem);
  for (const MovementProblem::Moment& moment : problem.moments) result.compute += moment.compute;
  LaneBounds(problem, cycle).Compute(result);
  PathBound(problem, cycle).Compute(options, result);
  SetTotal(result);
  return result;
}

}  // namespace gantry
