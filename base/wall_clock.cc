#include "base/wall_clock.h"

#include <time.h>  // clock_nanosleep: POSIX, not in <ctime>

#include <cerrno>

#include "base/check.h"
#include "base/clock.h"

namespace gantry {
namespace {

constexpr Nanoseconds kNanosecondsPerSecond = 1'000'000'000;

}  // namespace

Nanoseconds WallClock::Now() const {
  timespec now{};
  GANTRY_CHECK_EQ(clock_gettime(CLOCK_REALTIME, &now), 0);
  return static_cast<Nanoseconds>(now.tv_sec) * kNanosecondsPerSecond + now.tv_nsec;
}

void WallClock::SleepUntil(Nanoseconds deadline) {
  if (deadline <= Now()) return;  // and so a negative deadline, which the kernel would refuse
  const timespec until = {.tv_sec = deadline / kNanosecondsPerSecond,
                          .tv_nsec = deadline % kNanosecondsPerSecond};
  int result = 0;
  do {
    result = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, nullptr);
  } while (result == EINTR);
  GANTRY_CHECK_EQ(result, 0) << "deadline " << deadline << " ns";
}

}  // namespace gantry
