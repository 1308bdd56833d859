// The longest path behind ComputeLowerBound. Internal to the lower bound's target; lower_bound.h
// says which edges there are and why they hold.
#ifndef GANTRY_PLACEMENT_POLICY_PATH_BOUND_H_
#define GANTRY_PLACEMENT_POLICY_PATH_BOUND_H_

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "placement_policy/free_border.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/slot_room.h"

namespace gantry {

class PathBound {
 public:
  // Keeps references to its arguments. `border`: of a problem without host updates, the updates
  // that each step has nevertheless, somewhere.
  PathBound(const MovementProblem& problem, const UseCycle& cycle);
  PathBound(const MovementProblem& problem, const UseCycle& cycle, const FreeBorder& border);

  // Sets result.path, its parts and windows. REQUIRES: at least one moment.
  void Compute(const LowerBoundOptions& options, LowerBound& result);

 private:
  // What the lanes must carry between the end of one moment and the start of another, by the
  // distance of the two.
  struct Window {
    int64_t start = 0;
    std::vector<Nanoseconds> up;
    std::vector<Nanoseconds> down;
  };
  // What leads to a position: computing the moment before it (from = position - 1), or an edge.
  struct Parent {
    bool is_edge = false;
    LowerBound::Edge edge = LowerBound::Edge::kFetch;
    int64_t from = 0;
  };
  struct Cut;  // the state of one pass

  static constexpr Nanoseconds kNever = int64_t{1} << 60;

  std::vector<int64_t> Anchors(const LowerBoundOptions& options) const;
  std::vector<Nanoseconds> FetchesFrom(int64_t start) const;
  std::vector<Nanoseconds> WritesFrom(int64_t start) const;
  void Pass(int64_t anchor, LowerBound& result) const;
  void PrepareShops(Cut& cut) const;
  void Reach(Cut& cut, int64_t position) const;
  void ReachByWindows(Cut& cut, int64_t position) const;
  void ReachByUpdates(Cut& cut, int64_t position) const;
  void ReachByBorder(Cut& cut, int64_t position) const;
  void Leave(Cut& cut, int64_t position) const;
  void Record(const Cut& cut, LowerBound& result) const;
  size_t moment_index(int64_t time) const { return static_cast<size_t>(time % count_); }

  const MovementProblem& problem_;
  const UseCycle& cycle_;
  const int64_t count_;  // moments
  std::vector<int64_t> room_;
  std::vector<int64_t> release_;  // by update: the moment at whose end its version can be made
  SlotTime up_;                   // of any block fetched
  SlotTime down_;                 // of any block written down
  SlotTime gradient_down_;        // of any gradient
  std::vector<std::vector<int32_t>> completes_;   // by moment: updates
  std::vector<std::vector<int32_t>> first_used_;  // by moment: updates of parameters first used
  std::vector<int64_t> complete_slots_;           // by moment, of the gradients
  std::vector<Window> windows_;
  const FreeBorder* border_ = nullptr;
  std::vector<std::vector<int32_t>> border_completes_;   // by moment: chunks of border_
  std::vector<std::vector<int32_t>> border_first_used_;  // by moment: the same
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_PATH_BOUND_H_
