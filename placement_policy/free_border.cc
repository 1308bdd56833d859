#include "placement_policy/free_border.h"

#include <algorithm>

namespace gantry {

Nanoseconds FreeBorder::With(int64_t host, int64_t count, int64_t room, Nanoseconds compute) const {
  const int64_t device = count - host;
  const Nanoseconds states = std::max<Nanoseconds>(0, device * states_up - room * slot_up_most);
  const Nanoseconds up = host * parameter_up + states;
  const Nanoseconds down = host * gradient_down;
  const Nanoseconds on_host = host == 0 ? 0 : gradient_down + host * host_update + parameter_up;
  const Nanoseconds on_device = compute + device * device_update;
  const Nanoseconds link = link_half_duplex ? up + down : std::max(up, down);
  return std::max({link, on_host, on_device});
}

Nanoseconds FreeBorder::Least(int64_t count, int64_t room, Nanoseconds compute) const {
  const Nanoseconds none = With(0, count, room, compute);
  if (count == 0) return none;
  int64_t low = 1;
  int64_t high = count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (With(middle, count, room, compute) <= With(middle + 1, count, room, compute)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::min(none, With(low, count, room, compute));
}

}  // namespace gantry
