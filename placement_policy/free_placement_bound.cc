#include "placement_policy/free_placement_bound.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/free_border.h"
#include "placement_policy/interval_sweep.h"
#include "placement_policy/path_bound.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

__extension__ using Wide = __int128;

// Without latency, rounded down.
Nanoseconds TimeOf(const Lane& lane, int64_t bytes) {
  return static_cast<Nanoseconds>(static_cast<Wide>(bytes) * 1'000'000'000 / lane.bytes_per_second);
}

class FreeLanes {
 public:
  explicit FreeLanes(const FreePlacementInput& input)
      : input_(input),
        step_(input.step),
        count_(static_cast<int64_t>(input.chunks.size())),
        room_(step_.moments.size()) {
    const UseCycle cycle = LinkUses(step_);
    for (size_t m = 0; m < step_.moments.size(); ++m) {
      const MovementProblem::Moment& moment = step_.moments[m];
      compute_ += moment.compute;
      room_[m] = moment.capacity;
      capacity_least_ = std::min(capacity_least_, moment.capacity);
      for (const BlockUse& use : step_.uses_of(moment)) room_[m] -= slots(use.block);
      room_least_ = std::min(room_least_, room_[m]);
    }
    AddIntervals(LinkUses(step_));
    for (const FreePlacementInput::Chunk& chunk : input.chunks) {
      const auto least = [](auto& value, auto other) { value = std::min(value, other); };
      least(parameter_, slots(chunk.parameter));
      least(gradient_, slots(chunk.gradient));
      least(states_, chunk.state_slots);
      least(host_update_, chunk.host_update);
      least(device_update_, chunk.device_update);
      states_most_ = std::max(states_most_, chunk.state_slots);
      states_total_ += chunk.state_slots;
      parameters_total_ += slots(chunk.parameter);
    }
  }

  // Halves the range of R whose bound is the least until it is one slot wide.
  void Compute(FreePlacementBound& result) {
    struct Range {
      Nanoseconds time;
      int64_t host_updates;
      int64_t low;
      int64_t high;
      // The longest time first; of equal ones the widest.
      bool operator<(const Range& other) const {
        return std::tuple(time, high - low, low) >
               std::tuple(other.time, other.high - other.low, other.low);
      }
    };
    std::priority_queue<Range> ranges;
    const auto add = [&](int64_t low, int64_t high) {
      const auto [time, host_updates] = LeastBetween(low, high);
      ranges.push({.time = time, .host_updates = host_updates, .low = low, .high = high});
    };
    add(0, std::max<int64_t>(0, std::min(room_least_, states_total_)));
    while (ranges.top().high - ranges.top().low > 1) {
      const Range range = ranges.top();
      ranges.pop();
      const int64_t middle = range.low + (range.high - range.low) / 2;
      add(range.low, middle);
      add(middle, range.high);
    }
    result.lanes = ranges.top().time;
    result.host_updates = ranges.top().host_updates;
    result.resident_state_slots = ranges.top().low;
  }

  Nanoseconds Files() const {
    if (!input_.has_files || count_ == 0) return 0;
    const int64_t states = states_total_ - input_.host_slots - std::max<int64_t>(0, room_least_);
    const int64_t all = states_total_ + parameters_total_ - input_.host_slots - capacity_least_;
    const int64_t bytes = std::max({int64_t{0}, states, all}) * step_.slot_bytes;
    const Nanoseconds read = TimeOf(step_.file_read, bytes);
    const Nanoseconds write = TimeOf(step_.file_write, bytes);
    return step_.file_half_duplex ? read + write : std::max(read, write);
  }

 private:
  // Between two uses. Across the border, a chunk that is updated holds gradient or parameter from
  // its last use to its first, or one of them is fetched.
  void AddIntervals(const UseCycle& cycle) {
    std::vector<int32_t> gradient_of(step_.block_slots.size(), -1);
    for (const FreePlacementInput::Chunk& chunk : input_.chunks) {
      gradient_of[static_cast<size_t>(chunk.parameter)] = chunk.gradient;
    }
    std::vector<int32_t> last(step_.block_slots.size(), -1);  // moment
    for (size_t use = 0; use < step_.uses.size(); ++use) {
      int32_t& moment = last[static_cast<size_t>(step_.uses[use].block)];
      moment = std::max(moment, cycle.links[use].moment);
    }
    for (size_t use = 0; use < step_.uses.size(); ++use) {
      const UseCycle::Link& link = cycle.links[use];
      const int32_t block = step_.uses[use].block;
      if (link.gap != Gap::kSame) continue;
      UnitInterval interval = {
          .start = link.moment, .distance = link.distance, .units = slots(block)};
      const bool crosses = link.moment + int64_t{link.distance} >= std::ssize(step_.moments);
      if (!crosses) within_.push_back(interval);
      const int32_t gradient = gradient_of[static_cast<size_t>(block)];
      if (crosses && gradient >= 0) {
        const int32_t after = std::max(0, last[static_cast<size_t>(gradient)] - interval.start);
        interval.start += after;
        interval.distance -= after;
        interval.units = std::min(interval.units, slots(gradient));
      }
      all_.push_back(interval);
    }
  }

  struct Misses {
    Wide all = 0;     // bytes per step, of all intervals
    Wide within = 0;  // of those within a step
  };

  int64_t slots(int32_t block) const { return step_.block_slots[static_cast<size_t>(block)]; }

  // What cannot be kept when `resident` slots hold states, rounded down.
  Misses MissesBeside(int64_t resident) {
    const auto found = misses_.find(resident);
    if (found != misses_.end()) return found->second;
    std::vector<int64_t> room = room_;
    for (int64_t& r : room) r = std::max<int64_t>(0, r - resident);
    const auto bytes = [&](const std::vector<UnitInterval>& intervals) {
      const DropRate rate = LeastDrops(intervals, room);
      return static_cast<Wide>(rate.units) * step_.slot_bytes / rate.periods;
    };
    return misses_[resident] = {.all = bytes(all_), .within = bytes(within_)};
  }

  // States of `device` chunks, at least.
  int64_t StatesOfLeast(int64_t device) const {
    return std::max(device * states_, states_total_ - (count_ - device) * states_most_);
  }

  // The least time for any number of host updates, below every R from `low` to `high`.
  std::pair<Nanoseconds, int64_t> LeastBetween(int64_t low, int64_t high) {
    const Misses misses = MissesBeside(low);
    Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
    int64_t least_host = 0;
    for (int64_t host = 0; host <= count_; ++host) {
      const int64_t device = count_ - host;
      const int64_t streamed =
          device == 0 ? 0 : std::max<int64_t>(0, StatesOfLeast(device) - high) * step_.slot_bytes;
      const Wide versions = static_cast<Wide>(host) * (host == 0 ? 0 : parameter_);
      const Wide fetched = std::max(misses.all, versions * step_.slot_bytes + misses.within);
      const auto up = TimeOf(step_.host_to_device, static_cast<int64_t>(fetched) + streamed);
      const int64_t gradients = host == 0 ? 0 : host * gradient_ * step_.slot_bytes;
      const Nanoseconds down = TimeOf(step_.device_to_host, gradients + streamed);
      const Nanoseconds on_host = host == 0 ? 0 : host * host_update_;
      const Nanoseconds on_device = compute_ + (device == 0 ? 0 : device * device_update_);
      Nanoseconds time = std::max({up, down, on_host, on_device});
      if (step_.link_half_duplex) time = std::max(time, up + down);
      if (time >= least) continue;
      least = time;
      least_host = host;
    }
    return {least, least_host};
  }

  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

  const FreePlacementInput& input_;
  const MovementProblem& step_;
  const int64_t count_;
  std::vector<int64_t> room_;  // beside the blocks in use
  int64_t room_least_ = kMost;
  int64_t capacity_least_ = kMost;
  Nanoseconds compute_ = 0;
  std::vector<UnitInterval> all_;
  std::vector<UnitInterval> within_;
  // The least of any chunk, and totals.
  int64_t parameter_ = kMost;
  int64_t gradient_ = kMost;
  int64_t states_ = kMost;
  Nanoseconds host_update_ = kMost;
  Nanoseconds device_update_ = kMost;
  int64_t states_most_ = 0;
  int64_t states_total_ = 0;
  int64_t parameters_total_ = 0;
  std::unordered_map<int64_t, Misses> misses_;
};

// The last use of `block` in the step; -1: none.
int32_t LastUse(const UseCycle& cycle, int32_t block) {
  int32_t use = cycle.first_use[static_cast<size_t>(block)];
  const auto next = [&] { return cycle.links[static_cast<size_t>(use)].next; };
  while (use >= 0 && next() > use) use = next();
  return use;
}

FreeBorder BorderOf(const FreePlacementInput& input, const UseCycle& cycle) {
  constexpr Nanoseconds kMost = int64_t{1} << 50;
  const MovementProblem& step = input.step;
  FreeBorder border;
  border.gradient_down = border.parameter_up = border.states_up = kMost;
  border.host_update = border.device_update = kMost;
  border.slot_up_most = TimeOf(step.host_to_device, step.slot_bytes) + 1;
  border.link_half_duplex = step.link_half_duplex;
  const auto least = [](Nanoseconds& value, Nanoseconds other) { value = std::min(value, other); };
  for (const FreePlacementInput::Chunk& chunk : input.chunks) {
    const int32_t first = cycle.first_use[static_cast<size_t>(chunk.parameter)];
    const int32_t last = LastUse(cycle, chunk.gradient);
    if (first < 0 || last < 0) continue;
    border.chunks.push_back({.complete = cycle.links[static_cast<size_t>(last)].moment,
                             .first_use = cycle.links[static_cast<size_t>(first)].moment});
    least(border.gradient_down, TimeOf(step.device_to_host, step.block_bytes(chunk.gradient)));
    least(border.parameter_up, TimeOf(step.host_to_device, step.block_bytes(chunk.parameter)));
    least(border.states_up, TimeOf(step.host_to_device, chunk.state_slots * step.slot_bytes));
    least(border.host_update, chunk.host_update);
    least(border.device_update, chunk.device_update);
  }
  return border;
}

// The path on the step in which no version dies. As in AddIntervals, a gap across the border holds
// gradient or parameter; where the gradient is smaller, or used after the parameter, the gap is
// left out.
Nanoseconds WindowsOf(const FreePlacementInput& input, const LowerBoundOptions& options) {
  const MovementProblem& step = input.step;
  UseCycle cycle = LinkUses(step);
  for (const FreePlacementInput::Chunk& chunk : input.chunks) {
    const int32_t parameter = LastUse(cycle, chunk.parameter);
    const int32_t gradient = LastUse(cycle, chunk.gradient);
    if (parameter < 0 || gradient < 0) continue;
    UseCycle::Link& link = cycle.links[static_cast<size_t>(parameter)];
    const bool smaller = step.block_slots[static_cast<size_t>(chunk.gradient)] <
                         step.block_slots[static_cast<size_t>(chunk.parameter)];
    const bool later = cycle.links[static_cast<size_t>(gradient)].moment > link.moment;
    if (smaller || later) link.gap = Gap::kNone;
  }
  const FreeBorder border = BorderOf(input, cycle);
  LowerBoundOptions with_anchors = options;
  if (!border.chunks.empty()) {
    // Cut where the updates' time begins.
    const auto [first, last] = std::ranges::minmax(border.chunks, {}, &FreeBorder::Chunk::complete);
    with_anchors.anchors.push_back(static_cast<int32_t>(first.complete));
    with_anchors.anchors.push_back(static_cast<int32_t>(last.complete));
  }
  LowerBound bound;
  PathBound(step, cycle, border).Compute(with_anchors, bound);
  return bound.path;
}

}  // namespace

absl::StatusOr<FreePlacementInput> FreePlacementInputOf(const Trace& trace,
                                                        const Machine& machine) {
  if (machine.unified) {
    return InvalidArgument("free placement: device and host are one memory");
  }
  const TrainingChoices choices = {.chunks = std::vector<ChunkChoice>(trace.chunks.size())};
  GANTRY_ASSIGN_OR_RETURN(TrainingProblem training, BuildProblem(trace, machine, choices));
  FreePlacementInput input;
  input.has_files = machine.has_file_tier;
  input.host_slots = machine.host_slots;
  const int64_t rate = machine.rates.device_memory_bytes_per_second;
  for (const MovementProblem::HostUpdate& update : training.problem.updates) {
    const auto chunk =
        std::ranges::find(training.parameter, update.parameter) - training.parameter.begin();
    const UpdateFacts facts = UpdateFactsOf(trace, trace.chunks[static_cast<size_t>(chunk)]);
    const int64_t traffic = facts.traffic() * training.problem.slot_bytes;
    input.chunks.push_back(
        {.parameter = update.parameter,
         .gradient = update.gradient,
         .state_slots = facts.states,
         .host_update = update.update,
         .device_update = rate > 0 ? TimeOf({.bytes_per_second = rate}, traffic) : 0});
  }
  input.step = std::move(training.problem);
  input.step.updates.clear();
  input.step.wait_for_norm = false;
  return input;
}

std::string_view Name(FreePlacementBound::Limit limit) {
  switch (limit) {
    case FreePlacementBound::Limit::kLanes:
      return "lanes";
    case FreePlacementBound::Limit::kFiles:
      return "files";
    case FreePlacementBound::Limit::kWindows:
      return "windows";
  }
  return "?";
}

FreePlacementBound ComputeFreePlacementBound(const FreePlacementInput& input,
                                             const LowerBoundOptions& options) {
  GANTRY_CHECK(input.step.updates.empty());
  FreePlacementBound result;
  if (input.step.moments.empty()) return result;
  FreeLanes lanes(input);
  lanes.Compute(result);
  result.files = lanes.Files();
  result.windows = WindowsOf(input, options);
  const std::pair<Nanoseconds, FreePlacementBound::Limit> parts[] = {
      {result.lanes, FreePlacementBound::Limit::kLanes},
      {result.files, FreePlacementBound::Limit::kFiles},
      {result.windows, FreePlacementBound::Limit::kWindows},
  };
  for (const auto& [time, limit] : parts) {
    if (time <= result.total) continue;
    result.total = time;
    result.limit = limit;
  }
  return result;
}

}  // namespace gantry
