#include "device/cuda/cuda_unmapper.h"

#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_queue.h"
#include "device/device.h"

namespace gantry {

absl::StatusOr<std::unique_ptr<CudaUnmapper>> CudaUnmapper::Create(CudaContext* context,
                                                                   CudaQueue* queue) {
  std::unique_ptr<CudaUnmapper> unmapper(new CudaUnmapper(context, queue));
  try {
    // thread: it blocks until the device is so far.
    unmapper->thread_ = std::thread([unmapper = unmapper.get()] { unmapper->Run(); });
  } catch (const std::system_error& error) {
    return Unavailable("the thread that unmaps GPU memory could not be started: ", error.what());
  }
  return unmapper;
}

CudaUnmapper::~CudaUnmapper() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void CudaUnmapper::After(QueuePoint point, std::function<void()> unmap) {
  MutexLock lock(mutex_);
  entries_.push_back({.point = point, .unmap = std::move(unmap)});
  changed_.NotifyAll();
}

void CudaUnmapper::Run() {
  // A failure is told to those who use the device.
  static_cast<void>(context_.Enter());
  while (true) {
    Entry entry;
    {
      MutexLock lock(mutex_);
      while (entries_.empty() && !closing_) changed_.Wait(mutex_);
      if (entries_.empty()) return;
      entry = std::move(entries_.front());
      entries_.pop_front();
    }
    static_cast<void>(queue_.Wait(entry.point));
    entry.unmap();
  }
}

}  // namespace gantry
