// Slots that moments leave, and the time of a slot on a lane: what the bounds have in common.
// Internal to the lower bound's target.
#ifndef GANTRY_PLACEMENT_POLICY_SLOT_ROOM_H_
#define GANTRY_PLACEMENT_POLICY_SLOT_ROOM_H_

#include <cstdint>
#include <vector>

#include "base/clock.h"
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

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_SLOT_ROOM_H_
