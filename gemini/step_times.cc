#include "gemini/step_times.h"

#include <algorithm>

namespace gantry {

void RecentTimes::Add(int64_t item, Nanoseconds time) {
  Item& kept = items_[static_cast<size_t>(item)];
  kept.times[static_cast<size_t>(kept.added++ % kKept)] = time;
}

Nanoseconds RecentTimes::Median(int64_t item) const {
  const Item& kept = items_[static_cast<size_t>(item)];
  const int64_t count = std::min<int64_t>(kept.added, kKept);
  if (count == 0) return 0;
  std::array<Nanoseconds, kKept> times = kept.times;
  const auto middle = times.begin() + (count - 1) / 2;
  std::nth_element(times.begin(), middle, times.begin() + count);
  return *middle;
}

void StepTimer::Begin(Nanoseconds busy) {
  next_ = 0;
  in_order_ = true;
  if (!begun_.empty()) begun_[0] = busy;
}

void StepTimer::OnMoment(int64_t moment, Nanoseconds busy) {
  if (moment != next_) in_order_ = false;
  if (!in_order_) return;
  // The first moment has begun with the step.
  if (moment > 0) begun_[static_cast<size_t>(moment)] = busy;
  ++next_;
}

void StepTimer::End(Nanoseconds busy) {
  if (!in_order_ || next_ != static_cast<int64_t>(begun_.size())) return;
  ++steps_;
  for (size_t i = 0; i < begun_.size(); ++i) {
    const Nanoseconds end = i + 1 < begun_.size() ? begun_[i + 1] : busy;
    recent_.Add(static_cast<int64_t>(i), end - begun_[i]);
  }
}

}  // namespace gantry
