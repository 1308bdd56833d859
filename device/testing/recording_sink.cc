#include "device/testing/recording_sink.h"

#include <utility>

namespace gantry {

void RecordingSink::OnCopyComplete(uint64_t tag, absl::Status status) {
  const Nanoseconds time = clock_ == nullptr ? 0 : clock_->Now();
  MutexLock lock(mutex_);
  completions_.push_back({.tag = tag, .status = std::move(status), .time = time});
  changed_.NotifyAll();
}

std::vector<RecordingSink::Completion> RecordingSink::WaitFor(size_t count) {
  MutexLock lock(mutex_);
  while (completions_.size() < count) changed_.Wait(mutex_);
  return completions_;
}

std::vector<RecordingSink::Completion> RecordingSink::completions() const {
  MutexLock lock(mutex_);
  return completions_;
}

}  // namespace gantry
