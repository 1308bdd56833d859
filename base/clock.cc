#include "base/clock.h"

#include <time.h>  // clock_nanosleep: POSIX, not in <ctime>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/mutex.h"

namespace gantry {
namespace {

constexpr Nanoseconds kNanosecondsPerSecond = 1'000'000'000;

}  // namespace

Nanoseconds MonotonicClock::Now() const {
  timespec now{};
  GANTRY_CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &now), 0);
  return static_cast<Nanoseconds>(now.tv_sec) * kNanosecondsPerSecond + now.tv_nsec;
}

void MonotonicClock::SleepUntil(Nanoseconds deadline) {
  if (deadline <= Now()) return;  // and so a negative deadline, which the kernel would refuse
  const timespec until = {.tv_sec = deadline / kNanosecondsPerSecond,
                          .tv_nsec = deadline % kNanosecondsPerSecond};
  int result = 0;
  do {
    result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  } while (result == EINTR);
  GANTRY_CHECK_EQ(result, 0) << "deadline " << deadline << " ns";
}

Nanoseconds VirtualClock::Now() const {
  MutexLock lock(mutex_);
  return now_;
}

void VirtualClock::SleepUntil(Nanoseconds deadline) {
  MutexLock lock(mutex_);
  now_ = std::max(now_, deadline);
}

void VirtualClock::Advance(Nanoseconds duration) {
  GANTRY_CHECK_GE(duration, 0) << "time does not run backwards";
  MutexLock lock(mutex_);
  now_ += duration;
}

}  // namespace gantry
