#include "placement_policy/exhaustive_optimum.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/state_graph.h"

namespace gantry {
namespace {

absl::Status CheckSmall(const MovementProblem& problem) {
  const auto bad = [](const auto&... parts) {
    return InvalidArgument("exhaustive optimum: ", parts...);
  };
  if (!problem.updates.empty()) return bad("the problem has host updates");
  if (problem.link_half_duplex) return bad("the link is half-duplex");
  if (std::ranges::find(problem.in_file, true) != problem.in_file.end()) {
    return bad("a block is in a file");
  }
  if (problem.moments.empty() ||
      static_cast<int64_t>(problem.moments.size()) > StateGraph::kMomentsMax) {
    return bad(problem.moments.size(), " moments; 1 to ", StateGraph::kMomentsMax, " are possible");
  }
  if (static_cast<int64_t>(problem.block_slots.size()) > StateGraph::kBlocksMax) {
    return bad(problem.block_slots.size(), " blocks; at most ", StateGraph::kBlocksMax,
               " are possible");
  }
  for (const MovementProblem::Moment& moment : problem.moments) {
    if (moment.norm != MovementProblem::Norm::kNotNeeded) return bad("a moment needs a norm");
    if (moment.compute > StateGraph::kTimeMax) return bad("a moment of ", moment.compute, " ns");
  }
  for (size_t b = 0; b < problem.block_slots.size(); ++b) {
    const int64_t bytes = problem.block_bytes(static_cast<int32_t>(b));
    const Nanoseconds up = LaneTime(problem.host_to_device, bytes);
    const Nanoseconds down = LaneTime(problem.device_to_host, bytes);
    if (std::max(up, down) > StateGraph::kTimeMax) {
      return bad("block ", b, " takes ", up, " ns up and ", down, " ns down");
    }
  }
  return absl::OkStatus();
}

// The cycle with the least time per step. Works down from the ratio of any cycle: with time - ratio
// x steps as length, shortest ways are relaxed until nothing changes, which proves that no cycle is
// shorter, or until the choices form a cycle, which then has a smaller ratio.
class LeastCycle {
 public:
  explicit LeastCycle(const StateGraph& graph)
      : graph_(graph), alive_(static_cast<size_t>(graph.size()), true) {
    for (int32_t s = 0; s < graph.size(); ++s) order_.push_back(s);
    // Against time, so that one sweep carries lengths through a whole step.
    std::vector<int32_t> moments;
    for (const int32_t s : order_) moments.push_back(graph.moment_of(s));
    std::ranges::sort(order_, [&](int32_t a, int32_t b) {
      const int32_t of_a = moments[static_cast<size_t>(a)];
      const int32_t of_b = moments[static_cast<size_t>(b)];
      return of_a != of_b ? of_a > of_b : a > b;
    });
  }

  absl::Status Find(ExhaustiveOptimum& optimum) {
    RemoveDeadEnds();
    if (!alive_[0]) return CannotGoOn();
    // Longer than any cycle that goes through no state twice.
    const Nanoseconds none = StateGraph::kTimeMax * (int64_t{graph_.size()} + 1);
    optimum.time = none;
    optimum.steps = 1;
    while (FindShorter(optimum)) {
    }
    if (optimum.time == none) return CannotGoOn();
    return absl::OkStatus();
  }

 private:
  static absl::Status CannotGoOn() {
    return FailedPrecondition("exhaustive optimum: no schedule can go on forever");
  }

  const StateGraph::Edge& edge(int64_t e) const { return graph_.edges()[static_cast<size_t>(e)]; }
  int64_t first(size_t s) const { return graph_.first_edge()[s]; }

  // States from which nothing, or only dead ends, can be reached.
  void RemoveDeadEnds() {
    bool changed = true;
    while (changed) {
      changed = false;
      for (const int32_t state : order_) {
        const auto s = static_cast<size_t>(state);
        if (!alive_[s]) continue;
        bool goes_on = false;
        for (int64_t e = first(s); e < first(s + 1) && !goes_on; ++e) {
          goes_on = alive_[static_cast<size_t>(edge(e).to)];
        }
        alive_[s] = goes_on;
        changed = changed || !goes_on;
      }
    }
  }

  // Lowers `best` to the least ratio of the cycles that following choice_ leads into; false: none
  // is less.
  bool LowerToChoices(ExhaustiveOptimum& best) const {
    std::vector<int32_t> seen(alive_.size(), -1);  // by which walk
    bool lower = false;
    for (int32_t walk = 0; walk < graph_.size(); ++walk) {
      auto s = static_cast<size_t>(walk);
      while (seen[s] < 0 && choice_[s] >= 0) {
        seen[s] = walk;
        s = static_cast<size_t>(edge(choice_[s]).to);
      }
      if (choice_[s] < 0 || seen[s] != walk) continue;
      Nanoseconds time = 0;
      int64_t steps = 0;
      const size_t start = s;
      do {
        time += edge(choice_[s]).time;
        steps += edge(choice_[s]).steps;
        s = static_cast<size_t>(edge(choice_[s]).to);
      } while (s != start);
      if (time * best.steps >= best.time * steps) continue;
      lower = true;
      best.time = time;
      best.steps = steps;
    }
    return lower;
  }

  // Relaxes lengths until the choices have a cycle below `best`, or nothing changes: then there is
  // none, since around a cycle the lengths' differences cancel.
  bool FindShorter(ExhaustiveOptimum& best) {
    std::vector<int64_t> length(alive_.size(), 0);
    choice_.assign(alive_.size(), -1);
    while (true) {
      bool changed = false;
      for (const int32_t state : order_) {
        const auto s = static_cast<size_t>(state);
        for (int64_t e = first(s); alive_[s] && e < first(s + 1); ++e) {
          const auto to = static_cast<size_t>(edge(e).to);
          const int64_t way = edge(e).time * best.steps - best.time * edge(e).steps + length[to];
          if (!alive_[to] || way >= length[s]) continue;
          length[s] = way;
          choice_[s] = e;
          changed = true;
        }
      }
      if (!changed) return false;
      if (LowerToChoices(best)) return true;
    }
  }

  const StateGraph& graph_;
  std::vector<bool> alive_;
  std::vector<int32_t> order_;
  std::vector<int64_t> choice_;  // by state: an edge; -1: none
};

}  // namespace

absl::StatusOr<ExhaustiveOptimum> FindExhaustiveOptimum(const MovementProblem& problem,
                                                        const ExhaustiveOptimumOptions& options) {
  GANTRY_RETURN_IF_ERROR(CheckSmall(problem));
  StateGraph graph(problem, options.choices);
  GANTRY_RETURN_IF_ERROR(graph.Build(options.states_max));
  ExhaustiveOptimum optimum;
  optimum.states = graph.size();
  GANTRY_RETURN_IF_ERROR(LeastCycle(graph).Find(optimum));
  return optimum;
}

}  // namespace gantry
