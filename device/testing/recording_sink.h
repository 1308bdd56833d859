// A CopySink that keeps completions and lets a test wait for them. Thread-safe.
#ifndef GANTRY_DEVICE_TESTING_RECORDING_SINK_H_
#define GANTRY_DEVICE_TESTING_RECORDING_SINK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "device/device.h"

namespace gantry {

class RecordingSink final : public CopySink {
 public:
  struct Completion {
    uint64_t tag;
    absl::Status status;
    Nanoseconds time;  // 0 without a clock
  };
  // `clock` may be null; else it must outlive the sink.
  explicit RecordingSink(const Clock* clock) : clock_(clock) {}

  void OnCopyComplete(uint64_t tag, absl::Status status) override;

  // Blocks until at least `count` completions are in, and returns all of them in order.
  std::vector<Completion> WaitFor(size_t count);
  std::vector<Completion> completions() const;

 private:
  const Clock* clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Completion> completions_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_TESTING_RECORDING_SINK_H_
