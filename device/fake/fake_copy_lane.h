// A copy lane on an EventLoop: a copy takes latency + bytes / bandwidth of virtual time behind the
// ones before it, and moves its bytes when it completes, so that whoever reads or writes them
// earlier is found out. Copies fail and dawdle as a FaultPlan says.
//
// One thread. A short copy moves its first half and reports an error.
#ifndef GANTRY_DEVICE_FAKE_FAKE_COPY_LANE_H_
#define GANTRY_DEVICE_FAKE_FAKE_COPY_LANE_H_

#include <cstdint>
#include <deque>
#include <string_view>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/testing/fault_plan.h"
#include "device/device.h"

namespace gantry {

class FakeCopyLane final : public CopyLane {
 public:
  struct Options {
    CopyDirection direction;
    int64_t bandwidth_bytes_per_second;  // 0: only the latency counts
    Nanoseconds latency;
    // Outlive the lane.
    EventLoop* loop;
    const Clock* clock;  // the loop's
    FaultPlan* faults;
    CopySink* sink;
  };
  explicit FakeCopyLane(const Options& options);
  ~FakeCopyLane() override { Finish(); }

  // REQUIRES: source and destination do not overlap and are the lane's until the completion.
  void Submit(const CopyRequest& request) override;
  LaneCounters counters() const override { return counters_; }
  // Runs the loop until the lane is empty.
  void Finish();

 private:
  struct Entry {
    CopyRequest request;
    FaultPlan::Verdict verdict;
    Nanoseconds submitted;
    Nanoseconds due;
  };
  void ScheduleFirst();
  void FinishFirst();
  // Moves the bytes; the error when the copy is to fail.
  absl::Status Copy(const Entry& entry) const;

  const Options options_;
  std::deque<Entry> queue_;  // the first has its event in the loop
  Nanoseconds due_ = 0;      // of the copy submitted last
  LaneCounters counters_{};
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_FAKE_FAKE_COPY_LANE_H_
