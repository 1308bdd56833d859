#include "placement_policy/movement_problem.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

// Sums of times and slots stay far below 2^63.
constexpr Nanoseconds kTimeMax = int64_t{1} << 50;
constexpr int64_t kSlotsMax = int64_t{1} << 40;
constexpr int64_t kCountMax = int64_t{1} << 28;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return InvalidArgument("movement problem: ", parts...);
}

absl::Status CheckLane(std::string_view name, const Lane& lane) {
  if (lane.bytes_per_second <= 0) {
    return Bad(name, ".bytes_per_second is ", lane.bytes_per_second, "; it must be positive");
  }
  if (lane.latency_nanoseconds < 0 || lane.latency_nanoseconds > kTimeMax) {
    return Bad(name, ".latency_nanoseconds is ", lane.latency_nanoseconds);
  }
  return absl::OkStatus();
}

absl::Status CheckMoment(const MovementProblem& problem, size_t m, std::vector<int64_t>& seen) {
  const MovementProblem::Moment& moment = problem.moments[m];
  const auto uses = static_cast<int64_t>(problem.uses.size());
  if (moment.first_use < 0 || moment.first_use > uses || moment.use_count < 0 ||
      moment.use_count > uses - moment.first_use) {
    return Bad("moments[", m, "] has uses ", moment.first_use, " + ", moment.use_count, " of ",
               uses);
  }
  if (moment.compute < 0 || moment.compute > kTimeMax) {
    return Bad("moments[", m, "].compute is ", moment.compute, " ns");
  }
  int64_t slots = 0;
  for (const BlockUse& use : problem.uses_of(moment)) {
    if (use.block < 0 || static_cast<size_t>(use.block) >= problem.block_slots.size()) {
      return Bad("moments[", m, "] uses block ", use.block, " of ", problem.block_slots.size());
    }
    int64_t& last = seen[static_cast<size_t>(use.block)];
    if (last == static_cast<int64_t>(m))
      return Bad("moments[", m, "] uses block ", use.block, " twice");
    last = static_cast<int64_t>(m);
    slots += problem.block_slots[static_cast<size_t>(use.block)];
  }
  if (slots > moment.capacity || moment.capacity > kSlotsMax) {
    return Bad("moments[", m, "].capacity is ", moment.capacity, " slots; its blocks need ", slots);
  }
  return absl::OkStatus();
}

// The parameter and the gradient of an update, given each block's uses as (moment, access).
struct BlockSpan {
  int64_t first = -1;
  int64_t last = -1;
  BlockAccess first_access = BlockAccess::kRead;
  bool written = false;
};

absl::Status CheckUpdate(const MovementProblem& problem, size_t u, std::span<const BlockSpan> spans,
                         std::vector<bool>& taken) {
  const MovementProblem::HostUpdate& update = problem.updates[u];
  for (const int32_t block : {update.parameter, update.gradient}) {
    if (block < 0 || static_cast<size_t>(block) >= spans.size()) {
      return Bad("updates[", u, "] names block ", block, " of ", spans.size());
    }
    if (taken[static_cast<size_t>(block)]) {
      return Bad("updates[", u, "] names block ", block, ", which another update has");
    }
    taken[static_cast<size_t>(block)] = true;
    if (problem.block_stays(block)) {
      return Bad("updates[", u, "] is on the host; block ", block, " stays on the device");
    }
  }
  if (update.complete < 0 || static_cast<size_t>(update.complete) >= problem.moments.size()) {
    return Bad("updates[", u, "].complete is ", update.complete, " of ", problem.moments.size(),
               " moments");
  }
  if (update.update < 0 || update.update > kTimeMax || update.file_bytes < 0 ||
      update.file_bytes > kSlotsMax) {
    return Bad("updates[", u, "] takes ", update.update, " ns and ", update.file_bytes,
               " bytes of files");
  }
  const BlockSpan& parameter = spans[static_cast<size_t>(update.parameter)];
  const BlockSpan& gradient = spans[static_cast<size_t>(update.gradient)];
  if (problem.in_file[static_cast<size_t>(update.parameter)] && update.file_bytes == 0) {
    return Bad("updates[", u, "].parameter is in a file, its states are not");
  }
  if (problem.in_file[static_cast<size_t>(update.gradient)]) {
    return Bad("updates[", u, "].gradient is in a file");
  }
  if (parameter.written) return Bad("updates[", u, "].parameter is written by a moment");
  if (parameter.last > update.complete) {
    return Bad("updates[", u, "].parameter is used at moment ", parameter.last,
               ", after its gradient is complete");
  }
  if (gradient.first < 0 || gradient.first_access != BlockAccess::kCreate ||
      gradient.last > update.complete) {
    return Bad("updates[", u, "].gradient must be created by its first use and not be used after ",
               "moment ", update.complete);
  }
  return absl::OkStatus();
}

// Gradients stay from their last use until they are complete: beside the blocks in use then.
absl::Status CheckGradients(const MovementProblem& problem, std::span<const BlockSpan> spans) {
  std::vector<int64_t> change(problem.moments.size() + 1, 0);
  for (const MovementProblem::HostUpdate& update : problem.updates) {
    const auto gradient = static_cast<size_t>(update.gradient);
    change[static_cast<size_t>(spans[gradient].last + 1)] += problem.block_slots[gradient];
    change[static_cast<size_t>(update.complete) + 1] -= problem.block_slots[gradient];
  }
  int64_t held = 0;
  for (size_t m = 0; m < problem.moments.size(); ++m) {
    held += change[m];
    int64_t slots = held;
    for (const BlockUse& use : problem.uses_of(problem.moments[m])) {
      slots += problem.block_slots[static_cast<size_t>(use.block)];
    }
    if (slots > problem.moments[m].capacity) {
      return Bad("moments[", m, "].capacity is ", problem.moments[m].capacity,
                 " slots; its blocks and gradients that are not complete need ", slots);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MovementProblem::Validate() const {
  if (static_cast<int64_t>(moments.size()) > kCountMax ||
      static_cast<int64_t>(uses.size()) > kCountMax) {
    return Bad("more than ", kCountMax, " moments or uses");
  }
  if (slot_bytes < 1 || slot_bytes > kSlotsMax) return Bad("slot_bytes is ", slot_bytes);
  for (size_t b = 0; b < block_slots.size(); ++b) {
    if (block_slots[b] < 1) return Bad("block_slots[", b, "] is ", block_slots[b]);
  }
  if (in_file.size() != block_slots.size()) {
    return Bad("in_file has ", in_file.size(), " entries for ", block_slots.size(), " blocks");
  }
  if (!stays.empty() && stays.size() != block_slots.size()) {
    return Bad("stays has ", stays.size(), " entries for ", block_slots.size(), " blocks");
  }
  for (size_t b = 0; b < stays.size(); ++b) {
    if (stays[b] && in_file[b]) return Bad("block ", b, " stays and is in a file");
  }
  GANTRY_RETURN_IF_ERROR(CheckLane("host_to_device", host_to_device));
  GANTRY_RETURN_IF_ERROR(CheckLane("device_to_host", device_to_host));
  bool files = std::ranges::find(in_file, true) != in_file.end();
  for (const HostUpdate& update : updates) files = files || update.file_bytes > 0;
  if (files) {
    GANTRY_RETURN_IF_ERROR(CheckLane("file_read", file_read));
    GANTRY_RETURN_IF_ERROR(CheckLane("file_write", file_write));
    if (host_buffers < 2) return Bad("host_buffers is ", host_buffers, "; files need at least 2");
  }
  std::vector<int64_t> seen(block_slots.size(), -1);
  for (size_t m = 0; m < moments.size(); ++m) {
    GANTRY_RETURN_IF_ERROR(CheckMoment(*this, m, seen));
  }
  if (norm_moment < -1 || norm_moment >= static_cast<int64_t>(moments.size())) {
    return Bad("norm_moment is ", norm_moment, " of ", moments.size());
  }
  std::vector<BlockSpan> spans(block_slots.size());
  for (size_t m = 0; m < moments.size(); ++m) {
    for (const BlockUse& use : uses_of(moments[m])) {
      BlockSpan& span = spans[static_cast<size_t>(use.block)];
      if (span.first < 0) {
        span.first = static_cast<int64_t>(m);
        span.first_access = use.access;
      }
      span.last = static_cast<int64_t>(m);
      span.written = span.written || use.access != BlockAccess::kRead;
    }
  }
  std::vector<bool> taken(block_slots.size(), false);
  for (size_t u = 0; u < updates.size(); ++u) {
    GANTRY_RETURN_IF_ERROR(CheckUpdate(*this, u, spans, taken));
  }
  return CheckGradients(*this, spans);
}

UseCycle LinkUses(const MovementProblem& problem) {
  UseCycle cycle;
  cycle.links.resize(problem.uses.size());
  cycle.first_use.assign(problem.block_slots.size(), -1);
  cycle.update_of.assign(problem.block_slots.size(), -1);
  std::vector<bool> gradient(problem.block_slots.size(), false);
  for (size_t u = 0; u < problem.updates.size(); ++u) {
    cycle.update_of[static_cast<size_t>(problem.updates[u].parameter)] = static_cast<int32_t>(u);
    cycle.update_of[static_cast<size_t>(problem.updates[u].gradient)] = static_cast<int32_t>(u);
    gradient[static_cast<size_t>(problem.updates[u].gradient)] = true;
  }
  const auto count = static_cast<int32_t>(problem.moments.size());
  std::vector<int32_t> last(problem.block_slots.size(), -1);
  const auto link = [&](int32_t from, int32_t to, bool wraps) {
    UseCycle::Link& l = cycle.links[static_cast<size_t>(from)];
    l.next = to;
    l.distance = cycle.links[static_cast<size_t>(to)].moment - l.moment + (wraps ? count : 0);
    const BlockUse& use = problem.uses[static_cast<size_t>(from)];
    const auto block = static_cast<size_t>(use.block);
    if (gradient[block] && wraps) {
      l.gap = Gap::kNone;  // it was consumed by its update
    } else if (use.access == BlockAccess::kConsume ||
               problem.uses[static_cast<size_t>(to)].access == BlockAccess::kCreate) {
      l.gap = Gap::kNone;
    } else {
      const Gap same = problem.block_stays(use.block) ? Gap::kStays : Gap::kSame;
      l.gap = wraps && cycle.update_of[block] >= 0 ? Gap::kNew : same;
    }
  };
  for (int32_t m = 0; m < count; ++m) {
    const MovementProblem::Moment& moment = problem.moments[static_cast<size_t>(m)];
    for (int64_t i = 0; i < moment.use_count; ++i) {
      const auto use = static_cast<int32_t>(moment.first_use + i);
      const auto block = static_cast<size_t>(problem.uses[static_cast<size_t>(use)].block);
      cycle.links[static_cast<size_t>(use)].moment = m;
      if (last[block] >= 0) {
        link(last[block], use, /*wraps=*/false);
      } else {
        cycle.first_use[block] = use;
      }
      last[block] = use;
    }
  }
  for (size_t block = 0; block < last.size(); ++block) {
    if (last[block] >= 0) link(last[block], cycle.first_use[block], /*wraps=*/true);
  }
  return cycle;
}

Nanoseconds LaneTime(const Lane& lane, int64_t bytes) {
  GANTRY_CHECK_GE(bytes, 0);
  GANTRY_CHECK_GT(lane.bytes_per_second, 0);
  const __int128 scaled = static_cast<__int128>(bytes) * 1'000'000'000;
  return lane.latency_nanoseconds +
         static_cast<Nanoseconds>((scaled + lane.bytes_per_second - 1) / lane.bytes_per_second);
}

}  // namespace gantry
