#include "placement_policy/schedule_replay.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/held_level.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

constexpr Nanoseconds kNever = int64_t{1} << 60;

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return FailedPrecondition("schedule: ", parts...);
}

class Replay {
 public:
  Replay(const MovementProblem& problem, std::span<const SimulatedEvent> events)
      : problem_(problem),
        count_(static_cast<int64_t>(problem.moments.size())),
        blocks_(problem.block_slots.size()),
        updates_(problem.updates.size()) {
    for (const SimulatedEvent& event : events) end_ = std::max(end_, event.end);
    events_.assign(events.begin(), events.end());
    std::ranges::stable_sort(events_, [](const SimulatedEvent& a, const SimulatedEvent& b) {
      return Earlier({a.begin, a.end}, {b.begin, b.end});
    });
  }

  absl::Status Check() {
    GANTRY_RETURN_IF_ERROR(CheckMoments());
    GANTRY_RETURN_IF_ERROR(CheckTransfers());
    for (size_t b = 0; b < blocks_.size(); ++b) {
      GANTRY_RETURN_IF_ERROR(CheckBlock(static_cast<int32_t>(b)));
    }
    FindNorms();
    for (size_t u = 0; u < updates_.size(); ++u) {
      GANTRY_RETURN_IF_ERROR(CheckUpdate(static_cast<int32_t>(u)));
    }
    GANTRY_RETURN_IF_ERROR(CheckNorms());
    GANTRY_RETURN_IF_ERROR(CheckRoom());
    return CheckBuffers();
  }

 private:
  struct Use {
    int64_t moment = 0;  // absolute
    BlockAccess access = BlockAccess::kRead;
    TimeSpan span;
  };
  struct Block {
    std::vector<Use> uses;          // in order
    std::vector<TimeSpan> fetches;  // all spans by begin
    std::vector<TimeSpan> downs;
    std::vector<TimeSpan> reads;  // of its file
    std::vector<TimeSpan> writes;
  };
  struct Update {
    std::vector<TimeSpan> gradients;  // by step: the way down after completion
    std::vector<TimeSpan> updates;
    std::vector<TimeSpan> reads;
    std::vector<TimeSpan> writes;
  };
  // From a fetch or a creation on.
  struct Stay {
    Nanoseconds begin = 0;
    Nanoseconds ready = 0;
    Nanoseconds release = 0;  // may leave
    bool created = false;
  };

  // ------------------------------------------------------------------ events

  absl::Status CheckMoments() {
    for (const SimulatedEvent& event : events_) {
      if (event.kind == SimulatedEvent::Kind::kMoment) moments_.push_back({event.begin, event.end});
    }
    size_t next = 0;
    for (const SimulatedEvent& event : events_) {
      if (event.kind != SimulatedEvent::Kind::kMoment) continue;
      const auto number = static_cast<int64_t>(next);
      if (event.moment < 0 || event.moment >= std::ssize(moments_)) {
        return Broken("moment ", event.moment, " of ", moments_.size(), " that were computed");
      }
      if (count_ == 0 || event.moment != number) {
        return Broken("moment ", event.moment, " comes at ", event.begin, " in place of ", number);
      }
      const MovementProblem::Moment& moment = MomentAt(number);
      if (event.end - event.begin != moment.compute) {
        return Broken("moment ", number, " takes ", event.end - event.begin, " ns, not ",
                      moment.compute);
      }
      if (next > 0 && event.begin < moments_[next - 1].end) {
        return Broken("moment ", number, " begins at ", event.begin,
                      ", before the end of the last");
      }
      for (const BlockUse& use : problem_.uses_of(moment)) {
        blocks_[static_cast<size_t>(use.block)].uses.push_back(
            {.moment = number, .access = use.access, .span = moments_[next]});
      }
      ++next;
    }
    return absl::OkStatus();
  }

  absl::Status CheckTransfers() {
    std::array<Nanoseconds, kSimulatedLaneCount> lane_end{};
    for (const SimulatedEvent& event : events_) {
      if (event.kind != SimulatedEvent::Kind::kTransfer) continue;
      GANTRY_RETURN_IF_ERROR(CheckTransfer(event));
      // Lanes that share one resource count as the first of them.
      SimulatedLane lane = event.lane;
      if (lane == SimulatedLane::kDeviceToHost && problem_.link_half_duplex) {
        lane = SimulatedLane::kHostToDevice;
      }
      if (lane == SimulatedLane::kFileWrite && problem_.file_half_duplex) {
        lane = SimulatedLane::kFileRead;
      }
      Nanoseconds& free = lane_end[static_cast<size_t>(lane)];
      if (event.begin < free) {
        return Broken("lane ", Name(event.lane), " carries two transfers at ", event.begin);
      }
      free = event.end;
    }
    return absl::OkStatus();
  }

  absl::Status CheckTransfer(const SimulatedEvent& event) {
    const bool of_block = event.block >= 0 && event.block < std::ssize(blocks_);
    const bool of_update = event.update >= 0 && event.update < std::ssize(updates_);
    const bool is_copy =
        event.lane == SimulatedLane::kHostToDevice || event.lane == SimulatedLane::kDeviceToHost;
    const bool named = is_copy                                    ? of_block
                       : event.lane == SimulatedLane::kHostUpdate ? of_update
                                                                  : of_block != of_update;
    if (!named) {
      return Broken("a transfer on lane ", Name(event.lane), " names block ", event.block,
                    " and update ", event.update);
    }
    const TimeSpan span = {event.begin, event.end};
    Nanoseconds time = 0;
    if (is_copy) {
      const bool up = event.lane == SimulatedLane::kHostToDevice;
      time = LaneTime(up ? problem_.host_to_device : problem_.device_to_host,
                      problem_.block_bytes(event.block));
      Block& block = blocks_[static_cast<size_t>(event.block)];
      (up ? block.fetches : block.downs).push_back(span);
    } else if (event.lane == SimulatedLane::kHostUpdate) {
      time = problem_.updates[static_cast<size_t>(event.update)].update;
      updates_[static_cast<size_t>(event.update)].updates.push_back(span);
    } else {
      const bool read = event.lane == SimulatedLane::kFileRead;
      const int64_t bytes =
          of_update ? StateBytes(event.update, read) : problem_.block_bytes(event.block);
      time = LaneTime(read ? problem_.file_read : problem_.file_write, bytes);
      if (of_update) {
        Update& update = updates_[static_cast<size_t>(event.update)];
        (read ? update.reads : update.writes).push_back(span);
      } else {
        Block& block = blocks_[static_cast<size_t>(event.block)];
        (read ? block.reads : block.writes).push_back(span);
      }
    }
    if (event.end - event.begin == time) return absl::OkStatus();
    return Broken("a transfer on lane ", Name(event.lane), " at ", event.begin, " takes ",
                  event.end - event.begin, " ns, not ", time);
  }

  // A parameter in a file is written with its states.
  int64_t StateBytes(int32_t index, bool read) const {
    const MovementProblem::HostUpdate& update = problem_.updates[static_cast<size_t>(index)];
    const bool with_parameter = !read && problem_.in_file[static_cast<size_t>(update.parameter)];
    return update.file_bytes + (with_parameter ? problem_.block_bytes(update.parameter) : 0);
  }

  // ------------------------------------------------------------------ blocks

  const MovementProblem::Moment& MomentAt(int64_t number) const {
    return problem_.moments[static_cast<size_t>(number % count_)];
  }
  static bool Changes(BlockAccess access) { return access != BlockAccess::kRead; }

  // The update whose gradient or parameter the block is.
  int32_t UpdateOf(int32_t block, int32_t MovementProblem::HostUpdate::* member) const {
    for (size_t u = 0; u < problem_.updates.size(); ++u) {
      if (problem_.updates[u].*member == block) return static_cast<int32_t>(u);
    }
    return -1;
  }

  absl::Status CheckBlock(int32_t index) {
    const Block& block = blocks_[static_cast<size_t>(index)];
    std::vector<Stay> stays;
    for (const TimeSpan& fetch : block.fetches) {
      stays.push_back({.begin = fetch.begin, .ready = fetch.end, .release = fetch.end});
    }
    for (const Use& use : block.uses) {
      if (use.access != BlockAccess::kCreate) continue;
      stays.push_back({.begin = use.span.begin,
                       .ready = use.span.begin,
                       .release = use.span.begin,
                       .created = true});
    }
    std::ranges::stable_sort(stays, {}, &Stay::begin);
    GANTRY_RETURN_IF_ERROR(CheckUses(index, stays));
    GANTRY_RETURN_IF_ERROR(CheckDowns(index, stays));
    GANTRY_RETURN_IF_ERROR(CheckContents(index, stays));
    if (problem_.block_stays(index)) GANTRY_RETURN_IF_ERROR(CheckStays(index, stays));
    for (size_t i = 0; i < stays.size(); ++i) {
      if (i + 1 < stays.size() && stays[i + 1].begin < stays[i].release) {
        return Broken("block ", index, " comes at ", stays[i + 1].begin,
                      " while it is there until ", stays[i].release);
      }
      held_.push_back({.begin = stays[i].begin,
                       .end = stays[i].release,
                       .amount = problem_.block_slots[static_cast<size_t>(index)]});
    }
    return absl::OkStatus();
  }

  // Fetched once, it is there to the end of the recording; created, as long as it is used.
  absl::Status CheckStays(int32_t index, std::vector<Stay>& stays) const {
    for (size_t i = 1; i < stays.size(); ++i) {
      if (stays[i].created) continue;
      return Broken("block ", index, " stays, and is fetched again at ", stays[i].begin);
    }
    if (stays.size() == 1 && !stays[0].created) stays[0].release = end_;
    return absl::OkStatus();
  }

  // The last stay that is ready at `time`; null: none.
  static Stay* StayAt(std::vector<Stay>& stays, Nanoseconds time) {
    Stay* found = nullptr;
    for (Stay& stay : stays) {
      if (stay.ready <= time) found = &stay;
    }
    return found;
  }

  absl::Status CheckUses(int32_t index, std::vector<Stay>& stays) {
    const int32_t parameter_of = UpdateOf(index, &MovementProblem::HostUpdate::parameter);
    const int32_t gradient_of = UpdateOf(index, &MovementProblem::HostUpdate::gradient);
    const std::vector<Use>& uses = blocks_[static_cast<size_t>(index)].uses;
    for (size_t i = 0; i < uses.size(); ++i) {
      const Use& use = uses[i];
      Stay* stay = StayAt(stays, use.span.begin);
      if (stay == nullptr) return Broken("moment ", use.moment, " misses block ", index);
      stay->release = std::max(stay->release, use.span.end);
      const int64_t step = use.moment / count_;
      if (parameter_of >= 0 && step > 0) {
        const auto& made = updates_[static_cast<size_t>(parameter_of)].updates;
        if (std::ssize(made) < step || made[static_cast<size_t>(step) - 1].end > stay->begin) {
          return Broken("moment ", use.moment, " uses an old version of block ", index);
        }
      }
      // A gradient stays from its last use of the step until it is complete.
      const bool last = i + 1 == uses.size() || uses[i + 1].moment / count_ != step;
      if (gradient_of < 0 || !last) continue;
      const int64_t complete =
          step * count_ + problem_.updates[static_cast<size_t>(gradient_of)].complete;
      if (complete < std::ssize(moments_)) {
        stay->release = std::max(stay->release, moments_[static_cast<size_t>(complete)].end);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckDowns(int32_t index, std::vector<Stay>& stays) {
    const Block& block = blocks_[static_cast<size_t>(index)];
    for (const TimeSpan& down : block.downs) {
      Stay* stay = StayAt(stays, down.begin);
      if (stay == nullptr) return Broken("block ", index, " goes down before it was there");
      stay->release = std::max(stay->release, down.end);
      for (const Use& use : block.uses) {
        if (!Changes(use.access) || !Overlap(use.span, down)) continue;
        return Broken("block ", index, " goes down at ", down.begin, " while moment ", use.moment,
                      " changes it");
      }
    }
    return absl::OkStatus();
  }

  // What is fetched is on the host: down after its last change.
  absl::Status CheckContents(int32_t index, const std::vector<Stay>& stays) const {
    const Block& block = blocks_[static_cast<size_t>(index)];
    for (const Stay& stay : stays) {
      if (stay.created) continue;
      Nanoseconds changed = -1;
      for (const Use& use : block.uses) {
        if (Changes(use.access) && use.span.end <= stay.begin) changed = use.span.end;
      }
      const bool down = std::ranges::any_of(block.downs, [&](const TimeSpan& span) {
        return span.begin >= changed && span.end <= stay.begin;
      });
      if (changed >= 0 && !down) {
        return Broken("block ", index, " is fetched at ", stay.begin,
                      ", but its content is not on the host");
      }
    }
    return absl::OkStatus();
  }

  // ------------------------------------------------------------------ updates

  // When the norm of each step is known.
  void FindNorms() {
    const auto steps = static_cast<size_t>(std::ssize(moments_) / std::max<int64_t>(count_, 1) + 1);
    norms_.assign(steps, 0);
    for (size_t u = 0; u < updates_.size(); ++u) {
      const MovementProblem::HostUpdate& what = problem_.updates[u];
      for (size_t step = 0; step < steps; ++step) {
        const size_t complete =
            step * static_cast<size_t>(count_) + static_cast<size_t>(what.complete);
        if (complete >= moments_.size()) {
          norms_[step] = kNever;
          break;
        }
        // The first way down that begins when the gradient is complete.
        TimeSpan down = {kNever, kNever};
        for (const TimeSpan& span : blocks_[static_cast<size_t>(what.gradient)].downs) {
          if (span.begin >= moments_[complete].end) down = std::min(down, span, Earlier);
        }
        updates_[u].gradients.push_back(down);
        norms_[step] = std::max(norms_[step], down.end);
      }
    }
    if (problem_.norm_moment < 0) return;
    for (size_t step = 0; step < steps; ++step) {
      const size_t moment =
          step * static_cast<size_t>(count_) + static_cast<size_t>(problem_.norm_moment);
      norms_[step] =
          moment < moments_.size() ? std::max(norms_[step], moments_[moment].end) : kNever;
    }
  }

  absl::Status CheckUpdate(int32_t index) {
    const MovementProblem::HostUpdate& what = problem_.updates[static_cast<size_t>(index)];
    Update& update = updates_[static_cast<size_t>(index)];
    for (size_t step = 0; step < update.updates.size(); ++step) {
      const TimeSpan& made = update.updates[step];
      if (step >= update.gradients.size() || update.gradients[step].end > made.begin) {
        return Broken("update ", index, " of step ", step, " begins at ", made.begin,
                      " without its gradient");
      }
      if (problem_.wait_for_norm && norms_[step] > made.begin) {
        return Broken("update ", index, " of step ", step, " begins at ", made.begin,
                      " before the norm is known");
      }
    }
    return what.file_bytes > 0 ? CheckStates(index) : absl::OkStatus();
  }

  // Read, updated, written, and so on.
  absl::Status CheckStates(int32_t index) {
    const Update& update = updates_[static_cast<size_t>(index)];
    std::vector<std::pair<TimeSpan, char>> order;
    for (const TimeSpan& span : update.reads) order.emplace_back(span, 'r');
    for (const TimeSpan& span : update.updates) order.emplace_back(span, 'u');
    for (const TimeSpan& span : update.writes) order.emplace_back(span, 'w');
    std::ranges::stable_sort(
        order, [](const auto& a, const auto& b) { return Earlier(a.first, b.first); });
    char before = 'w';  // the states are in the file
    Nanoseconds free = 0;
    Nanoseconds begin = 0;  // of the buffer's use
    for (const auto& [span, what] : order) {
      const bool follows = (what == 'r' && before == 'w') || (what == 'w' && before == 'u') ||
                           (what == 'u' && before == 'r');
      if (!follows || span.begin < free) {
        return Broken("the states of update ", index, " at ", span.begin, ": '", what,
                      "' comes after '", before, "'");
      }
      if (what == 'r') begin = span.begin;
      if (what == 'w') buffers_.push_back({.begin = begin, .end = span.end, .amount = 1});
      before = what;
      free = span.end;
    }
    if (before != 'w') buffers_.push_back({.begin = begin, .end = end_, .amount = 1});
    return absl::OkStatus();
  }

  absl::Status CheckNorms() const {
    for (size_t m = 0; m < moments_.size(); ++m) {
      const auto number = static_cast<int64_t>(m);
      int64_t step = number / count_;
      switch (MomentAt(number).norm) {
        case MovementProblem::Norm::kNotNeeded:
          continue;
        case MovementProblem::Norm::kOfThisStep:
          break;
        case MovementProblem::Norm::kOfLastStep:
          --step;
          break;
      }
      if (step < 0 || norms_[static_cast<size_t>(step)] <= moments_[m].begin) continue;
      return Broken("moment ", m, " begins at ", moments_[m].begin, " before the norm is known");
    }
    return absl::OkStatus();
  }

  // ------------------------------------------------------------------ room

  absl::Status CheckRoom() const {
    const HeldLevel level(held_);
    for (size_t m = 0; m < moments_.size(); ++m) {
      const int64_t capacity = MomentAt(static_cast<int64_t>(m)).capacity;
      const int64_t most = level.Most(moments_[m]);
      if (moments_[m].end > moments_[m].begin && most > capacity) {
        return Broken("moment ", m, " has ", capacity, " slots; ", most, " are held");
      }
    }
    // Between moments: what begins to come fits the next, or one that takes no time then.
    for (const Hold& hold : held_) {
      const auto next = std::ranges::lower_bound(moments_, hold.begin, {}, &TimeSpan::end);
      int64_t capacity = 0;
      for (auto m = next; m != moments_.end(); ++m) {
        if (m->end == hold.begin && m->begin < hold.begin) continue;  // has ended
        capacity = std::max(capacity, MomentAt(m - moments_.begin()).capacity);
        if (m->end > hold.begin) break;
      }
      if (next == moments_.end() || level.At(hold.begin) <= capacity) continue;
      return Broken("at ", hold.begin, " there are ", capacity, " slots; ", level.At(hold.begin),
                    " are held");
    }
    return absl::OkStatus();
  }

  absl::Status CheckBuffers() {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      if (problem_.in_file[b]) GANTRY_RETURN_IF_ERROR(CheckFileBlock(static_cast<int32_t>(b)));
    }
    const HeldLevel level(buffers_);
    for (const Hold& hold : buffers_) {
      if (level.At(hold.begin) <= problem_.host_buffers) continue;
      return Broken("at ", hold.begin, " there are ", problem_.host_buffers, " host buffers; ",
                    level.At(hold.begin), " are in use");
    }
    return absl::OkStatus();
  }

  // Read and fetched, or down and written: each the first before the second.
  absl::Status CheckFileBlock(int32_t index) {
    const Block& block = blocks_[static_cast<size_t>(index)];
    std::vector<std::pair<TimeSpan, char>> order;
    for (const TimeSpan& span : block.reads) order.emplace_back(span, 'r');
    for (const TimeSpan& span : block.fetches) order.emplace_back(span, 'f');
    for (const TimeSpan& span : block.downs) order.emplace_back(span, 'd');
    for (const TimeSpan& span : block.writes) order.emplace_back(span, 'w');
    std::ranges::stable_sort(
        order, [](const auto& a, const auto& b) { return Earlier(a.first, b.first); });
    char before = 'w';
    bool in_buffer = false;
    Nanoseconds free = 0;
    Nanoseconds begin = 0;
    for (const auto& [span, what] : order) {
      const bool ok = ((what == 'r' || what == 'd') && !in_buffer) ||
                      (what == 'f' && before == 'r') || (what == 'w' && before == 'd');
      if (!ok || span.begin < free) {
        return Broken("block ", index, " of a file at ", span.begin, ": '", what, "' comes after '",
                      before, "'");
      }
      in_buffer = what == 'r' || what == 'd';
      if (in_buffer) begin = span.begin;
      if (!in_buffer) buffers_.push_back({.begin = begin, .end = span.end, .amount = 1});
      before = what;
      free = span.end;
    }
    if (in_buffer) buffers_.push_back({.begin = begin, .end = end_, .amount = 1});
    return absl::OkStatus();
  }

  const MovementProblem& problem_;
  const int64_t count_;  // moments of a step
  Nanoseconds end_ = 0;
  std::vector<SimulatedEvent> events_;  // by begin
  std::vector<TimeSpan> moments_;       // absolute
  std::vector<Block> blocks_;
  std::vector<Update> updates_;
  std::vector<Nanoseconds> norms_;  // by step
  std::vector<Hold> held_;          // slots
  std::vector<Hold> buffers_;
};

}  // namespace

absl::Status ReplaySchedule(const MovementProblem& problem,
                            std::span<const SimulatedEvent> events) {
  return Replay(problem, events).Check();
}

}  // namespace gantry
