// What updates cost between a moment of one step and one of the next, wherever they run: the
// windows across the step border of the bound over all placements. Internal to the lower bound's
// target.
//
// Take the q chunks whose gradient is used last at or after moment e, and whose parameter is used
// by moment f of the next step. Each is updated between the end of e and the start of f. Let h of
// them be updated on the host:
//
//   - Down: h gradients. The host: a gradient down, h updates, a parameter up.
//   - Up: h parameters; and of the states of the others those that the device does not hold when e
//     ends, beside the blocks that e uses.
//   - The device: the moments in between, and the other updates.
//
// The longest of these, for the h for which it is the shortest, is below any placement's.
#ifndef GANTRY_PLACEMENT_POLICY_FREE_BORDER_H_
#define GANTRY_PLACEMENT_POLICY_FREE_BORDER_H_

#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace gantry {

struct FreeBorder {
  struct Chunk {
    int64_t complete = 0;   // moment that uses its gradient last
    int64_t first_use = 0;  // moment that uses its parameter first
  };

  std::vector<Chunk> chunks;
  // The least of any chunk.
  Nanoseconds gradient_down = 0;
  Nanoseconds parameter_up = 0;
  Nanoseconds states_up = 0;
  Nanoseconds host_update = 0;
  Nanoseconds device_update = 0;
  // Of one slot, at least: what states that are there already save.
  Nanoseconds slot_up_most = 0;
  bool link_half_duplex = false;

  // From the end of e, when the device has `room` slots for states, to the start of f; `compute`:
  // of the moments in between. O(log count).
  Nanoseconds Least(int64_t count, int64_t room, Nanoseconds compute) const;

 private:
  // With so many of them updated on the host. Convex from one on.
  Nanoseconds With(int64_t host, int64_t count, int64_t room, Nanoseconds compute) const;
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_FREE_BORDER_H_
