// Unmaps what the device still uses, behind that use, on a thread of its own, so that nobody waits
// who has better things to do.
//
// Thread-safe.
#ifndef GANTRY_DEVICE_CUDA_CUDA_UNMAPPER_H_
#define GANTRY_DEVICE_CUDA_CUDA_UNMAPPER_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_queue.h"
#include "device/device.h"

namespace gantry {

class CudaUnmapper {
 public:
  // Both outlive the unmapper. Errors: kUnavailable when the system refuses a thread.
  static absl::StatusOr<std::unique_ptr<CudaUnmapper>> Create(CudaContext* context,
                                                              CudaQueue* queue);
  ~CudaUnmapper();  // does what it was given

  // Calls `unmap` when the point is reached, or can be reached no more. In order of the calls.
  void After(QueuePoint point, std::function<void()> unmap) GANTRY_EXCLUDES(mutex_);

 private:
  struct Entry {
    QueuePoint point;
    std::function<void()> unmap;
  };
  CudaUnmapper(CudaContext* context, CudaQueue* queue) : context_(*context), queue_(*queue) {}
  void Run() GANTRY_EXCLUDES(mutex_);

  CudaContext& context_;
  CudaQueue& queue_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Entry> entries_ GANTRY_GUARDED_BY(mutex_);
  bool closing_ GANTRY_GUARDED_BY(mutex_) = false;
  // thread: it blocks until the device is so far.
  std::thread thread_;  // set by Create
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_UNMAPPER_H_
