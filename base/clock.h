// Injectable time. Production code takes a Clock*; tests pass a VirtualClock that only moves when
// told, so that nothing sleeps.
#ifndef GANTRY_BASE_CLOCK_H_
#define GANTRY_BASE_CLOCK_H_

#include <cstdint>

#include "base/mutex.h"

namespace gantry {

// A point in time or a duration, in nanoseconds. The epoch is the clock's own.
using Nanoseconds = int64_t;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanoseconds Now() const = 0;
  // Blocks until Now() >= deadline.
  virtual void SleepUntil(Nanoseconds deadline) = 0;
};

// CLOCK_MONOTONIC. Stateless.
class MonotonicClock final : public Clock {
 public:
  Nanoseconds Now() const override;
  void SleepUntil(Nanoseconds deadline) override;
};

// Time that moves by Advance, or at once to the deadline of whoever sleeps.
class VirtualClock final : public Clock {
 public:
  Nanoseconds Now() const override;
  void SleepUntil(Nanoseconds deadline) override;  // sets the time to max(now, deadline)
  void Advance(Nanoseconds duration);

 private:
  mutable Mutex mutex_;
  Nanoseconds now_ GANTRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry

#endif  // GANTRY_BASE_CLOCK_H_
