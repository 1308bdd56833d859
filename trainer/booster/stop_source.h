// A request to stop, which a run honours at the end of its step: from a signal handler, another
// thread, or a test. Thread-safe and async-signal-safe.
#ifndef GANTRY_TRAINER_BOOSTER_STOP_SOURCE_H_
#define GANTRY_TRAINER_BOOSTER_STOP_SOURCE_H_

#include <atomic>

namespace gantry {

class StopSource {
 public:
  void Request() { requested_.store(true, std::memory_order_relaxed); }
  bool requested() const { return requested_.load(std::memory_order_relaxed); }

 private:
  static_assert(std::atomic<bool>::is_always_lock_free);
  std::atomic<bool> requested_ = false;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_STOP_SOURCE_H_
