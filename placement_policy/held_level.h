// How much of something is held over time, from the intervals in which parts of it are. Internal to
// the schedule replay's target.
#ifndef GANTRY_PLACEMENT_POLICY_HELD_LEVEL_H_
#define GANTRY_PLACEMENT_POLICY_HELD_LEVEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"

namespace gantry {

struct TimeSpan {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

inline bool Earlier(const TimeSpan& a, const TimeSpan& b) {
  return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
}
inline bool Overlap(const TimeSpan& a, const TimeSpan& b) {
  return a.begin < b.end && b.begin < a.end;
}

struct Hold {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  int64_t amount = 0;
};

// Sums after all changes at one instant: what is released then makes room for what comes.
class HeldLevel {
 public:
  explicit HeldLevel(std::span<const Hold> holds);

  int64_t At(Nanoseconds time) const { return Most({.begin = time, .end = time + 1}); }
  // The largest sum at an instant in [span.begin, span.end).
  int64_t Most(const TimeSpan& span) const;

 private:
  std::vector<Nanoseconds> times_;
  std::vector<int64_t> sums_;  // from that time on
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_HELD_LEVEL_H_
