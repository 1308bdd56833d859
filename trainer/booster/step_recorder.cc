#include "trainer/booster/step_recorder.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace gantry {

bool StepRecorder::HasRoom() {
  if (current_.events == events_max_) {
    ++current_.step.dropped;
    return false;
  }
  ++current_.events;
  return true;
}

void StepRecorder::Slice(std::string_view track, std::string_view name, Nanoseconds begin,
                         Nanoseconds end) {
  if (next_ != nullptr) next_->Slice(track, name, begin, end);
  MutexLock lock(mutex_);
  if (!HasRoom()) return;
  current_.step.slices.push_back({std::string(track), std::string(name), begin, end});
}

void StepRecorder::Counter(std::string_view name, Nanoseconds time, int64_t value) {
  if (next_ != nullptr) next_->Counter(name, time, value);
  MutexLock lock(mutex_);
  levels_.insert_or_assign(std::string(name), value);
  if (!HasRoom()) return;
  current_.step.counters.push_back({std::string(name), time, value});
}

void StepRecorder::EndStep(Nanoseconds begin, Nanoseconds end) {
  MutexLock lock(mutex_);
  last_but_one_ = std::move(last_);
  if (last_but_one_.has_value()) {
    // What was under way at its end has ended since.
    for (const RecordedSlice& slice : current_.step.slices) {
      if (slice.begin < last_but_one_->end) last_but_one_->slices.push_back(slice);
    }
  }
  last_ = std::exchange(current_.step, RecordedStep());
  current_.events = 0;
  last_->begin = begin;
  last_->end = end;
  std::erase_if(last_->slices, [&](const RecordedSlice& slice) {
    return slice.end <= begin || slice.begin >= end;
  });
  // What the next step begins with.
  for (const auto& [name, value] : levels_) {
    current_.step.counters.push_back({name, std::numeric_limits<Nanoseconds>::min(), value});
  }
}

std::optional<RecordedStep> StepRecorder::Step() const {
  MutexLock lock(mutex_);
  return last_but_one_.has_value() ? last_but_one_ : last_;
}

}  // namespace gantry
