// A copy engine emulated by a thread: copies in order of submission, paced to a bandwidth.
//
// A lane is modelled as a queue: a request starts when it was submitted or when the one before is
// due, whichever is later, and is due after latency + bytes / bandwidth. It completes no earlier
// than that, and later only when the memory is slower than the lane should be. Time of submission
// counts rather than time of wake-up, so several lanes on one VirtualClock do not delay each other.
#ifndef GANTRY_DEVICE_HOST_HOST_COPY_LANE_H_
#define GANTRY_DEVICE_HOST_HOST_COPY_LANE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "device/device.h"

namespace gantry {

class HostCopyLane final : public CopyLane {
 public:
  struct Options {
    int64_t bandwidth_bytes_per_second;  // 0: as fast as memcpy
    int64_t latency_nanoseconds;         // of each request
    Clock* clock;                        // outlives the lane
    CopySink* sink;                      // outlives the lane
  };
  // Errors: kUnavailable when the system refuses another thread. REQUIRES: bandwidth and latency
  // not negative.
  static absl::StatusOr<std::unique_ptr<HostCopyLane>> Create(const Options& options);
  ~HostCopyLane() override;

  // Source and destination must stay valid until the completion; they must not overlap.
  void Submit(const CopyRequest& request) override;
  // Blocks until all that was submitted so far is complete.
  void WaitForAll();
  // busy_nanoseconds: time during which a request was unfinished.
  LaneCounters counters() const override;

 private:
  struct Entry {
    CopyRequest request;
    Nanoseconds submitted;
  };
  explicit HostCopyLane(const Options& options);
  void Run();
  void Copy(const Entry& entry);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Entry> queue_ GANTRY_GUARDED_BY(mutex_);
  int64_t submitted_ GANTRY_GUARDED_BY(mutex_) = 0;
  bool closing_ GANTRY_GUARDED_BY(mutex_) = false;
  LaneCounters counters_ GANTRY_GUARDED_BY(mutex_) = {};
  Nanoseconds due_ = 0;       // of the request before; the lane's thread only
  Nanoseconds finished_ = 0;  // when it was in fact; the lane's thread only
  // thread: a lane blocks in sleeps and runs beside the compute team for the life of the device.
  std::thread thread_;  // set by Create
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_HOST_HOST_COPY_LANE_H_
