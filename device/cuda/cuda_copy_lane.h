// A copy engine of a GPU: a stream, and a thread that waits for its copies and tells the sink.
// Submit hands a copy to the driver, which waits only when a thousand are under way.
//
// Thread-safety and errors as CopyLane. The host's side must lie in a slab of kHostPinned.
#ifndef GANTRY_DEVICE_CUDA_CUDA_COPY_LANE_H_
#define GANTRY_DEVICE_CUDA_CUDA_COPY_LANE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_queue.h"
#include "device/cuda/stream.h"
#include "device/device.h"

namespace gantry {

class CudaCopyLane final : public CopyLane, public CudaStreamWork {
 public:
  struct Options {
    CopyDirection direction;
    // Outlive the lane.
    CudaContext* context;
    CudaQueue* queue;
    CopySink* sink;
  };
  static absl::StatusOr<std::unique_ptr<CudaCopyLane>> Create(const Options& options);
  ~CudaCopyLane() override;

  void Submit(const CopyRequest& request) override GANTRY_EXCLUDES(mutex_);
  // busy_nanoseconds: time during which a request was unfinished.
  LaneCounters counters() const override GANTRY_EXCLUDES(mutex_);

  absl::Status MakeWait(CudaStream stream) override GANTRY_EXCLUDES(mutex_);

 private:
  struct Entry {
    CopyRequest request;
    Nanoseconds submitted;
    absl::Status status;             // of handing it to the driver
    std::optional<CudaEvent> event;  // behind the copy; nothing when that failed
  };
  explicit CudaCopyLane(const Options& options);
  absl::StatusOr<QueuePoint> PointOf(const CopyRequest& request);
  absl::StatusOr<CudaEvent> Issue(const CopyRequest& request) GANTRY_REQUIRES(mutex_);
  absl::StatusOr<CudaEvent> TakeEvent() GANTRY_REQUIRES(mutex_);
  void Run() GANTRY_EXCLUDES(mutex_);
  void Finish(Entry entry) GANTRY_EXCLUDES(mutex_);

  const Options options_;
  CudaContext& context_;
  CudaStream stream_ = nullptr;  // set by Create
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Entry> entries_ GANTRY_GUARDED_BY(mutex_);
  bool closing_ GANTRY_GUARDED_BY(mutex_) = false;
  std::vector<CudaEvent> free_events_ GANTRY_GUARDED_BY(mutex_);
  LaneCounters counters_ GANTRY_GUARDED_BY(mutex_) = {};
  Nanoseconds finished_ = 0;  // when the last one was; the lane's thread only
  // thread: it blocks until a copy is complete, for the life of the device.
  std::thread thread_;  // set by Create
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_COPY_LANE_H_
