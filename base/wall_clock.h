// The time of day, for stamps in files that others read.
#ifndef GANTRY_BASE_WALL_CLOCK_H_
#define GANTRY_BASE_WALL_CLOCK_H_

#include "base/clock.h"

namespace gantry {

// CLOCK_REALTIME: since 1970, UTC. It jumps when it is set, so durations are measured with a
// MonotonicClock. Stateless.
class WallClock final : public Clock {
 public:
  Nanoseconds Now() const override;
  void SleepUntil(Nanoseconds deadline) override;
};

}  // namespace gantry

#endif  // GANTRY_BASE_WALL_CLOCK_H_
