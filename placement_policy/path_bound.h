// The longest path behind ComputeLowerBound. Internal to the lower bound's target; lower_bound.h
// says which edges there are and why they hold.
#ifndef GANTRY_PLACEMENT_POLICY_PATH_BOUND_H_
#define GANTRY_PLACEMENT_POLICY_PATH_BOUND_H_

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/movement_problem.h"

namespace gantry {

// Time per slot as a fraction: the least of any block counted.
struct SlotTime {
  Nanoseconds time = 0;
  int64_t slots = 1;

  bool is_set = false;

  // Time of `count` slots, rounded down.
  Nanoseconds Of(int64_t count) const;
  // Takes a block's time into account.
  void Include(Nanoseconds block_time, int64_t block_slots);
};

// Slots at each moment of the blocks that it uses, of gradients from their last use until they are
// complete, and of blocks that stay.
std::vector<int64_t> BaseSlots(const MovementProblem& problem, const UseCycle& cycle);
// Slots left beside `base`, at least 0.
std::vector<int64_t> RoomBeside(const MovementProblem& problem, const std::vector<int64_t>& base);

class PathBound {
 public:
  // Keeps references to both arguments.
  PathBound(const MovementProblem& problem, const UseCycle& cycle);

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
  // Updates of one subset, as jobs of a flow shop: down, update, up.
  struct Shop {
    Nanoseconds begin = 0;  // earliest start of the first machine
    int64_t position = 0;   // of the moment at whose end that is
    int64_t count = 0;
    Nanoseconds down_sum = 0;
    Nanoseconds update_sum = 0;
    Nanoseconds up_sum = 0;
    Nanoseconds down_least = kNever;
    Nanoseconds update_least = kNever;
    Nanoseconds up_least = kNever;
    Nanoseconds before_up_least = kNever;   // down + update
    Nanoseconds after_down_least = kNever;  // update + up
    int64_t in_file = 0;
    Nanoseconds file_least = kNever;        // a read; and a write when they share the device
    Nanoseconds after_file_least = kNever;  // update + up, of those in files
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
  void Leave(Cut& cut, int64_t position) const;
  void Join(Shop& shop, int32_t update) const;
  Nanoseconds ThreeMachines(const Shop& shop) const;
  Nanoseconds TwoMachines(const Shop& shop) const;
  Nanoseconds FilesBefore(const Shop& shop) const;
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
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_PATH_BOUND_H_
