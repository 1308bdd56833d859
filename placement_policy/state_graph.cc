#include "placement_policy/state_graph.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/strings.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

constexpr int kContentBits = 2;
constexpr int kMomentBits = 6;
constexpr int kBlockBits = 4;
constexpr int kTimeBits = 10;

// Appends numbers to, and takes them from, a key.
class Packer {
 public:
  explicit Packer(uint64_t key = 0) : key_(key) {}
  void Put(int64_t value, int bits) {
    GANTRY_DCHECK(value >= 0 && value < int64_t{1} << bits);
    key_ |= static_cast<uint64_t>(value) << used_;
    used_ += bits;
  }
  int32_t Take(int bits) {
    const auto value = static_cast<int32_t>((key_ >> used_) & ((uint64_t{1} << bits) - 1));
    used_ += bits;
    return value;
  }
  uint64_t key() const { return key_; }

 private:
  uint64_t key_;
  int used_ = 0;
};

}  // namespace

StateGraph::StateGraph(const MovementProblem& problem, ExhaustiveOptimumOptions::Choices choices)
    : problem_(problem),
      reduced_(choices == ExhaustiveOptimumOptions::Choices::kReduced),
      blocks_(static_cast<int32_t>(problem.block_slots.size())),
      count_(static_cast<int32_t>(problem.moments.size())) {
  const auto cells = static_cast<size_t>(count_) * static_cast<size_t>(blocks_);
  access_.assign(cells, -1);
  next_.assign(cells, Next());
  created_.assign(static_cast<size_t>(count_), 0);
  for (int32_t m = 0; m < count_; ++m) {
    for (const BlockUse& use : problem.uses_of(moment_at(m))) {
      access_[static_cast<size_t>(m * blocks_ + use.block)] = static_cast<int8_t>(use.access);
      if (use.access == BlockAccess::kCreate) created_[static_cast<size_t>(m)] += slots(use.block);
    }
  }
  for (int32_t b = 0; b < blocks_; ++b) {
    one_size_ = one_size_ && slots(b) == slots(0);
    fetch_time_.push_back(
        static_cast<int32_t>(LaneTime(problem.host_to_device, problem.block_bytes(b))));
    write_time_.push_back(
        static_cast<int32_t>(LaneTime(problem.device_to_host, problem.block_bytes(b))));
    for (int32_t m = 0; m < count_; ++m) {
      Next& next = next_[static_cast<size_t>(m * blocks_ + b)];
      while (next.distance < count_) {
        const int8_t access =
            access_[static_cast<size_t>((m + next.distance) % count_ * blocks_ + b)];
        next.needed = access >= 0 && static_cast<BlockAccess>(access) != BlockAccess::kCreate;
        if (access >= 0) break;
        ++next.distance;
      }
    }
  }
}

uint64_t StateGraph::Encode(const State& state) const {
  Packer packer;
  for (const Content content : state.content) {
    packer.Put(static_cast<int64_t>(content), kContentBits);
  }
  packer.Put(state.moment, kMomentBits);
  packer.Put(state.compute_left + 1, kTimeBits);
  packer.Put(state.fetch + 1, kBlockBits);
  packer.Put(state.fetch_left, kTimeBits);
  packer.Put(state.write + 1, kBlockBits);
  packer.Put(state.write_left, kTimeBits);
  return packer.key();
}

StateGraph::State StateGraph::Decode(uint64_t key) const {
  Packer packer(key);
  State state;
  for (Content& content : state.content) content = static_cast<Content>(packer.Take(kContentBits));
  state.moment = packer.Take(kMomentBits);
  state.compute_left = packer.Take(kTimeBits) - 1;
  state.fetch = packer.Take(kBlockBits) - 1;
  state.fetch_left = packer.Take(kTimeBits);
  state.write = packer.Take(kBlockBits) - 1;
  state.write_left = packer.Take(kTimeBits);
  return state;
}

int32_t StateGraph::moment_of(int32_t state) const {
  return Decode(keys_[static_cast<size_t>(state)]).moment;
}

absl::Status StateGraph::Build(int64_t states_max) {
  keys_ = {Encode(State())};
  index_.clear();
  index_[keys_[0]] = 0;
  edges_.clear();
  first_edge_ = {0};
  for (size_t s = 0; s < keys_.size(); ++s) {
    Expand(Decode(keys_[s]));
    first_edge_.push_back(static_cast<int64_t>(edges_.size()));
    if (size() > states_max) {
      return ResourceExhausted("exhaustive optimum: more than ", states_max, " states");
    }
  }
  return absl::OkStatus();
}

StateGraph::Next StateGraph::NextOf(const State& state, int32_t block) const {
  // A block that the computing moment uses stays until its end; its next use is a later one.
  const bool after = state.compute_left >= 0;
  Next next =
      next_[static_cast<size_t>((state.moment + (after ? 1 : 0)) % count_ * blocks_ + block)];
  if (after) ++next.distance;
  return next;
}

bool StateGraph::Uses(const State& state, int32_t block) const {
  return state.compute_left >= 0 &&
         access_[static_cast<size_t>(state.moment * blocks_ + block)] >= 0;
}

bool StateGraph::EndsContent(int32_t moment, int32_t block) const {
  const int8_t access = access_[static_cast<size_t>(moment * blocks_ + block)];
  return static_cast<BlockAccess>(access) != BlockAccess::kRead ||
         !next_[static_cast<size_t>((moment + 1) % count_ * blocks_ + block)].needed;
}

int64_t StateGraph::Held(const State& state) const {
  int64_t held = state.fetch >= 0 ? slots(state.fetch) : 0;
  for (int32_t b = 0; b < blocks_; ++b) {
    if (state.content[static_cast<size_t>(b)] != Content::kAbsent) held += slots(b);
  }
  return held;
}

void StateGraph::FindDrops(const State& state, int64_t needed, std::vector<BlockSet>& drops) const {
  drops.clear();
  if (needed <= 0) {
    drops.push_back(0);
    return;
  }
  // Those that may go, the one used last first.
  std::vector<int32_t> candidates;
  for (int32_t b = 0; b < blocks_; ++b) {
    const bool may_go = state.content[static_cast<size_t>(b)] == Content::kUnchanged &&
                        !Uses(state, b) && state.write != b;
    if (may_go) candidates.push_back(b);
  }
  std::ranges::stable_sort(candidates, [&](int32_t a, int32_t b) {
    return NextOf(state, a).distance > NextOf(state, b).distance;
  });
  for (BlockSet set = 1; set < BlockSet{1} << candidates.size(); ++set) {
    int64_t freed = 0;
    int64_t smallest = std::numeric_limits<int64_t>::max();
    BlockSet blocks = 0;
    bool furthest = true;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const int64_t size = slots(candidates[i]);
      if ((set >> i & 1) != 0) {
        freed += size;
        smallest = std::min(smallest, size);
        blocks |= BlockSet{1} << candidates[i];
        continue;
      }
      // It stays: no later candidate of its size may go.
      for (size_t j = i + 1; j < candidates.size(); ++j) {
        furthest = furthest && ((set >> j & 1) == 0 || slots(candidates[j]) != size);
      }
    }
    if (freed < needed || freed - smallest >= needed || (reduced_ && !furthest)) continue;
    drops.push_back(blocks);
  }
}

bool StateGraph::Ready(const State& state) const {
  for (const BlockUse& use : problem_.uses_of(moment_at(state.moment))) {
    const bool present = state.content[static_cast<size_t>(use.block)] != Content::kAbsent;
    if (use.access == BlockAccess::kCreate) continue;
    if (!present) return false;
    if (state.write == use.block && EndsContent(state.moment, use.block)) return false;
  }
  return true;
}

bool StateGraph::StartsAtOnce(const State& state) const {
  return reduced_ && one_size_ && created_[static_cast<size_t>(state.moment)] == 0 &&
         Held(state) <= moment_at(state.moment).capacity &&
         moment_at(state.moment + 1).capacity >= moment_at(state.moment).capacity;
}

bool StateGraph::Lingers(const State& state) const {
  return state.compute_left < 0 && Ready(state) &&
         moment_at(state.moment + 1).capacity < moment_at(state.moment).capacity;
}

void StateGraph::StartMoment(State& state) const {
  const MovementProblem::Moment& moment = moment_at(state.moment);
  for (const BlockUse& use : problem_.uses_of(moment)) {
    if (use.access == BlockAccess::kCreate) {
      state.content[static_cast<size_t>(use.block)] = Content::kChanged;
    }
  }
  state.compute_left = static_cast<int32_t>(moment.compute);
}

void StateGraph::Expand(const State& state) {
  if (state.compute_left >= 0 || !Ready(state)) {
    ExpandFetches(state);
    return;
  }
  // What the moment itself uses cannot be dropped for it.
  State started = state;
  StartMoment(started);
  std::vector<BlockSet> drops;
  FindDrops(started, Held(started) - moment_at(state.moment).capacity, drops);
  for (const BlockSet set : drops) {
    State next = started;
    for (int32_t b = 0; b < blocks_; ++b) {
      if ((set >> b & 1) != 0) next.content[static_cast<size_t>(b)] = Content::kAbsent;
    }
    ExpandFetches(next);
  }
  if (!StartsAtOnce(state)) ExpandFetches(state);
}

void StateGraph::ExpandFetches(const State& state) {
  ExpandWrites(state);
  if (state.fetch >= 0) return;
  std::vector<BlockSet> drops;
  for (int32_t b = 0; b < blocks_; ++b) {
    const Next next = NextOf(state, b);
    if (state.content[static_cast<size_t>(b)] != Content::kAbsent || !next.needed) continue;
    bool first = true;  // of the absent blocks of its size
    for (int32_t other = 0; other < blocks_; ++other) {
      const Next rival = NextOf(state, other);
      if (other == b || state.content[static_cast<size_t>(other)] != Content::kAbsent) continue;
      if (!rival.needed || slots(other) != slots(b)) continue;
      first = first &&
              (next.distance < rival.distance || (next.distance == rival.distance && b < other));
    }
    if (reduced_ && !first) continue;
    FindDrops(state, Held(state) + slots(b) - moment_at(state.moment).capacity, drops);
    for (const BlockSet set : drops) {
      State fetching = state;
      bool useful = true;
      for (int32_t d = 0; d < blocks_; ++d) {
        if ((set >> d & 1) == 0) continue;
        fetching.content[static_cast<size_t>(d)] = Content::kAbsent;
        const bool alone = set == BlockSet{1} << d && slots(d) == slots(b);
        useful = useful && !(alone && NextOf(state, d).distance <= next.distance);
      }
      if (reduced_ && !useful) continue;
      fetching.fetch = b;
      fetching.fetch_left = fetch_time_[static_cast<size_t>(b)];
      ExpandWrites(fetching);
    }
  }
}

void StateGraph::ExpandWrites(const State& state) {
  Advance(state);
  if (state.write >= 0) return;
  for (int32_t b = 0; b < blocks_; ++b) {
    if (state.content[static_cast<size_t>(b)] != Content::kChanged) continue;
    if (Uses(state, b) && EndsContent(state.moment, b)) continue;
    State writing = state;
    writing.write = b;
    writing.write_left = write_time_[static_cast<size_t>(b)];
    Advance(writing);
  }
}

// To the next end of anything, or by 1 ns; adds the edge.
void StateGraph::Advance(State state) {
  constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  int32_t time = kNever;
  if (state.compute_left >= 0) time = state.compute_left;
  if (state.fetch >= 0) time = std::min(time, state.fetch_left);
  if (state.write >= 0) time = std::min(time, state.write_left);
  if (time == kNever) return;
  if (!reduced_ || Lingers(state)) time = std::min(time, 1);
  int32_t steps = 0;
  if (state.fetch >= 0 && (state.fetch_left -= time) == 0) {
    state.content[static_cast<size_t>(state.fetch)] = Content::kUnchanged;
    state.fetch = -1;
  }
  if (state.write >= 0 && (state.write_left -= time) == 0) {
    state.content[static_cast<size_t>(state.write)] = Content::kUnchanged;
    state.write = -1;
  }
  if (state.compute_left >= 0 && (state.compute_left -= time) == 0) {
    EndMoment(state);
    steps = state.moment == 0 ? 1 : 0;
  }
  const uint64_t key = Encode(state);
  const auto [found, inserted] = index_.emplace(key, size());
  if (inserted) keys_.push_back(key);
  const auto begin = edges_.begin() + first_edge_.back();
  const Edge edge = {.to = found->second, .time = time, .steps = steps};
  const bool known = std::any_of(begin, edges_.end(), [&](const Edge& other) {
    return other.to == edge.to && other.time == edge.time && other.steps == edge.steps;
  });
  if (!known) edges_.push_back(edge);
}

void StateGraph::EndMoment(State& state) const {
  for (const BlockUse& use : problem_.uses_of(moment_at(state.moment))) {
    Content& content = state.content[static_cast<size_t>(use.block)];
    if (use.access == BlockAccess::kWrite || use.access == BlockAccess::kCreate) {
      content = Content::kChanged;
    }
    if (use.access == BlockAccess::kConsume) content = Content::kAbsent;
  }
  state.compute_left = -1;
  state.moment = (state.moment + 1) % count_;
  for (const BlockUse& use : problem_.uses_of(moment_at(state.moment + count_ - 1))) {
    if (!NextOf(state, use.block).needed) {
      state.content[static_cast<size_t>(use.block)] = Content::kAbsent;
    }
  }
}

}  // namespace gantry
