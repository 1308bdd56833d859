// How long the moments of a step compute, measured while it runs: a moment lasts from when its
// lease was asked for until the next one is, less all waiting in between. So everything that the
// compute thread does in a step belongs to a moment (what comes before the first lease to the
// first), and no waiting does. Kept are the last steps; their median is not moved by a few that
// were disturbed.
//
// Nothing is allocated after creation. Thread-compatible.
#ifndef GANTRY_GEMINI_STEP_TIMES_H_
#define GANTRY_GEMINI_STEP_TIMES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace gantry {

// The last times of each of several things.
class RecentTimes {
 public:
  static constexpr int kKept = 7;

  explicit RecentTimes(int64_t items) : items_(static_cast<size_t>(items)) {}

  void Add(int64_t item, Nanoseconds time);
  // Of those kept, the lower one of an even number; 0 when there are none.
  Nanoseconds Median(int64_t item) const;

 private:
  struct Item {
    std::array<Nanoseconds, kKept> times;
    int64_t added = 0;
  };
  std::vector<Item> items_;
};

// The moments of one step, over and over. `busy` is the time by a clock that stands still while the
// compute thread waits.
class StepTimer {
 public:
  explicit StepTimer(int64_t moments) : begun_(static_cast<size_t>(moments), 0), recent_(moments) {}

  void Begin(Nanoseconds busy);
  void OnMoment(int64_t moment, Nanoseconds busy);
  // Keeps the step's times if its moments came in order, all of them. REQUIRES: Begin.
  void End(Nanoseconds busy);

  Nanoseconds Median(int64_t moment) const { return recent_.Median(moment); }
  // Whose times were kept.
  int64_t steps() const { return steps_; }

 private:
  std::vector<Nanoseconds> begun_;
  int64_t next_ = 0;      // the moment that must come
  bool in_order_ = true;  // so far
  int64_t steps_ = 0;
  RecentTimes recent_;
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_STEP_TIMES_H_
