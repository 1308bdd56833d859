// The compute queue of a CUDA device: one stream, points in it as events, and the names of the
// operators on it.
//
//   GANTRY_RETURN_IF_ERROR(queue.Run("h.0.mlp.add", [&](CudaStream stream) {
//     return cuda::Add(stream, args);
//   }));
//
// Thread-safe. Lock order: queue, lane or trail, context.
#ifndef GANTRY_DEVICE_CUDA_CUDA_QUEUE_H_
#define GANTRY_DEVICE_CUDA_CUDA_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/operator_trail.h"
#include "device/cuda/stream.h"
#include "device/device.h"

namespace gantry {

// Work on another stream of the device, which the queue can come after.
class CudaStreamWork {
 public:
  virtual ~CudaStreamWork() = default;
  // What is submitted to `stream` from now on comes after the work submitted so far.
  virtual absl::Status MakeWait(CudaStream stream) = 0;
};

class CudaQueue final : public Queue {
 public:
  // `context` outlives the queue.
  static absl::StatusOr<std::unique_ptr<CudaQueue>> Create(CudaContext* context);
  ~CudaQueue() override;  // waits for what was submitted

  absl::Status FillWithZeros(std::byte* address, Bytes bytes) override;
  absl::StatusOr<QueuePoint> Mark() override;
  bool Reached(QueuePoint point) override;
  absl::Status Wait(QueuePoint point) override;
  absl::Status RunAfter(CopyLane& lane) override;

  // Submits an operator's work: `launch` puts kernels on the stream and returns a cudaError (0:
  // none). Errors: that one, naming the operator, or the device's failure.
  absl::Status Run(std::string_view operator_name, absl::FunctionRef<int(CudaStream)> launch);

  // Blocks until all that was submitted is done, or the device has failed.
  void WaitForAll();
  // What is submitted to `stream` from now on comes after the point.
  absl::Status MakeWait(CudaStream stream, QueuePoint point);

 private:
  // A point that may not be reached. Events are used again, so those who wait for one hold it.
  struct Point {
    int64_t number;
    std::shared_ptr<CudaEvent> event;  // shared by the queue and those who wait
  };
  explicit CudaQueue(CudaContext* context) : context_(*context) {}
  // The event behind the point; null: it is reached.
  std::shared_ptr<CudaEvent> EventOf(QueuePoint point) GANTRY_REQUIRES(mutex_);
  void Advance() GANTRY_REQUIRES(mutex_);
  absl::StatusOr<CudaEvent> TakeEvent() GANTRY_REQUIRES(mutex_);

  CudaContext& context_;
  CudaStream stream_ = nullptr;           // set by Create
  std::unique_ptr<OperatorTrail> trail_;  // set by Create
  Mutex mutex_;
  bool work_since_mark_ GANTRY_GUARDED_BY(mutex_) = false;
  int64_t marked_ GANTRY_GUARDED_BY(mutex_) = 0;
  int64_t reached_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::deque<Point> points_ GANTRY_GUARDED_BY(mutex_);
  std::vector<CudaEvent> free_events_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_QUEUE_H_
