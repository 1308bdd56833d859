#include "placement_policy/slot_room.h"

#include <algorithm>

namespace gantry {
namespace {

__extension__ using Wide = __int128;

}  // namespace

Nanoseconds SlotTime::Of(int64_t count) const {
  return static_cast<Nanoseconds>(static_cast<Wide>(time) * count / slots);
}

void SlotTime::Include(Nanoseconds block_time, int64_t block_slots) {
  const bool less = static_cast<Wide>(block_time) * slots < static_cast<Wide>(time) * block_slots;
  if (is_set && !less) return;
  is_set = true;
  time = block_time;
  slots = block_slots;
}

std::vector<int64_t> BaseSlots(const MovementProblem& problem, const UseCycle& cycle) {
  const size_t count = problem.moments.size();
  // Over two periods, as what is held may reach into the next.
  std::vector<int64_t> change(2 * count + 1, 0);
  for (size_t use = 0; use < problem.uses.size(); ++use) {
    const UseCycle::Link& link = cycle.links[use];
    const int32_t block = problem.uses[use].block;
    int64_t end = link.moment + 1;
    const int32_t u = cycle.update_of[static_cast<size_t>(block)];
    if (u >= 0 && problem.updates[static_cast<size_t>(u)].gradient == block &&
        link.gap == Gap::kNone) {
      end = problem.updates[static_cast<size_t>(u)].complete + int64_t{1};
    }
    if (link.gap == Gap::kStays) end = link.moment + int64_t{link.distance};
    const int64_t slots = problem.block_slots[static_cast<size_t>(block)];
    change[static_cast<size_t>(link.moment)] += slots;
    change[static_cast<size_t>(end)] -= slots;
  }
  std::vector<int64_t> base(count, 0);
  int64_t held = 0;
  for (size_t m = 0; m < 2 * count; ++m) {
    held += change[m];
    base[m % count] += held;
  }
  return base;
}

std::vector<int64_t> RoomBeside(const MovementProblem& problem, const std::vector<int64_t>& base) {
  std::vector<int64_t> room(base.size());
  for (size_t m = 0; m < room.size(); ++m) {
    room[m] = std::max<int64_t>(0, problem.moments[m].capacity - base[m]);
  }
  return room;
}

}  // namespace gantry
