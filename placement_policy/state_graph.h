// The states of a small movement problem and what leads from one to the next. Internal to the
// exhaustive optimum's target, whose header has the rules.
#ifndef GANTRY_PLACEMENT_POLICY_STATE_GRAPH_H_
#define GANTRY_PLACEMENT_POLICY_STATE_GRAPH_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "placement_policy/exhaustive_optimum.h"
#include "placement_policy/movement_problem.h"

namespace gantry {

class StateGraph {
 public:
  static constexpr int kBlocksMax = 8;
  static constexpr int64_t kMomentsMax = 62;
  static constexpr Nanoseconds kTimeMax = 1000;

  struct Edge {
    int32_t to;
    int32_t time;   // ns
    int32_t steps;  // 1 when it ends the last moment of a step
  };

  // Keeps a reference to `problem`. REQUIRES: within the limits above.
  StateGraph(const MovementProblem& problem, ExhaustiveOptimumOptions::Choices choices);

  // Visits every state that the empty device before the first moment leads to.
  // Errors: kResourceExhausted beyond states_max.
  absl::Status Build(int64_t states_max);

  int32_t size() const { return static_cast<int32_t>(keys_.size()); }
  // Edges of state s: edges()[first_edge()[s]] up to edges()[first_edge()[s + 1]].
  const std::vector<Edge>& edges() const { return edges_; }
  const std::vector<int64_t>& first_edge() const { return first_edge_; }
  int32_t moment_of(int32_t state) const;

 private:
  enum class Content : uint8_t { kAbsent, kUnchanged, kChanged };

  struct State {
    std::array<Content, kBlocksMax> content{};
    int32_t moment = 0;         // that computes or is next
    int32_t compute_left = -1;  // -1: it has not started
    int32_t fetch = -1;         // block
    int32_t fetch_left = 0;
    int32_t write = -1;
    int32_t write_left = 0;
  };
  // The next use of a block's content.
  struct Next {
    int32_t distance = 0;  // moments
    bool needed = false;   // false: it is created anew, or the block is not used
  };
  using BlockSet = uint32_t;

  uint64_t Encode(const State& state) const;
  State Decode(uint64_t key) const;
  void Expand(const State& state);
  void ExpandFetches(const State& state);
  void ExpandWrites(const State& state);
  void Advance(State state);
  void EndMoment(State& state) const;
  bool Ready(const State& state) const;
  bool StartsAtOnce(const State& state) const;
  // Whether the moment could start, and may wait for any time to keep the room it has.
  bool Lingers(const State& state) const;
  void StartMoment(State& state) const;
  int64_t Held(const State& state) const;
  // Sets of unchanged blocks whose drop frees `slots`, none of which could stay.
  void FindDrops(const State& state, int64_t slots, std::vector<BlockSet>& drops) const;
  Next NextOf(const State& state, int32_t block) const;
  bool Uses(const State& state, int32_t block) const;  // the moment that computes does
  // Whether the moment, which uses the block, changes it or is the last to read it.
  bool EndsContent(int32_t moment, int32_t block) const;
  int32_t slots(int32_t block) const { return problem_.block_slots[static_cast<size_t>(block)]; }
  const MovementProblem::Moment& moment_at(int64_t moment) const {
    return problem_.moments[static_cast<size_t>(moment % count_)];
  }

  const MovementProblem& problem_;
  const bool reduced_;
  const int32_t blocks_;
  const int32_t count_;  // moments
  bool one_size_ = true;
  // By moment x block: the first use from that moment on, and what the moment does with the block.
  std::vector<Next> next_;
  std::vector<int8_t> access_;       // BlockAccess or -1
  std::vector<int32_t> created_;     // by moment, slots
  std::vector<int32_t> fetch_time_;  // by block
  std::vector<int32_t> write_time_;

  std::vector<uint64_t> keys_;
  absl::flat_hash_map<uint64_t, int32_t> index_;
  std::vector<Edge> edges_;
  std::vector<int64_t> first_edge_;
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_STATE_GRAPH_H_
