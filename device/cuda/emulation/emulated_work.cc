// The working side of EmulatedCudaCalls: streams, order and kernels.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/emulation/access_log.h"
#include "device/cuda/emulation/emulated_cuda_calls.h"
#include "device/cuda/emulation/emulated_memory.h"
#include "device/cuda/emulation/emulated_stream.h"
#include "device/cuda/emulation/emulator.h"
#include "device/cuda/emulation/kernel_tracer.h"
#include "device/cuda/launch_shape.h"

namespace gantry {
namespace {

constexpr int64_t kWorkNanoseconds = 2000;
constexpr int64_t kBytesPerNanosecond = 16;
constexpr int64_t kLateOneIn = 4;

}  // namespace

void EmulatedCudaCalls::Submit(EmulatedStream& stream, EmulatedWork work, std::string_view what) {
  stream.clock.Join(host_);
  if (work.wait != nullptr) stream.clock.Join(work.wait->clock);
  auto order = std::make_shared<WorkOrder>();
  order->actor = stream.number();
  order->tick = stream.clock.Tick(stream.number());
  order->clock = stream.clock;
  order->number = next_work_++;
  order->what = StrCat("work ", order->number, " (", what, ") on stream ", stream.number());
  if (work.record != nullptr) work.record->clock = stream.clock;
  if (work.thread) open_kernels_.insert(order->number);
  work.order = std::move(order);
  stream.queue.push_back(std::move(work));
  changed_.NotifyAll();
}

void EmulatedCudaCalls::NoteAccess(const EmulatedMemory::Piece& piece, bool write,
                                   const std::shared_ptr<const WorkOrder>& order) {
  const auto other = accesses_.Add({.object = piece.object,
                                    .begin = piece.begin,
                                    .end = piece.begin + piece.bytes,
                                    .write = write,
                                    .place = piece.place,
                                    .work = order});
  if (other == nullptr) return;
  misuse_.Add(
      "no order between ", order->what, " and ", other->what, ": both touch bytes ", piece.begin,
      " to ", piece.begin + piece.bytes,
      piece.object == EmulatedMemory::kHostObject ? " of host memory" : " of one physical memory",
      ", one of them writes");
}

bool EmulatedCudaCalls::IsCurrent(const EmulatedStream& stream, std::string_view what) {
  if (CurrentDevice() == stream.device()) return true;
  misuse_.Add(what, " on a stream of device ", stream.device(), " by a thread whose device is ",
              CurrentDevice());
  return false;
}

CudaError EmulatedCudaCalls::LaunchOn(EmulatedStream& stream, std::string_view kernel,
                                      const LaunchShape& shape, std::function<void()> thread) {
  MutexLock lock(mutex_);
  if (const CudaError error = Enter(stream.device()); error != CudaError::kNone) return error;
  if (stream.destroyed) {
    misuse_.Add("kernel ", kernel, " is launched on a stream that was destroyed");
    return CudaError::kInvalidHandle;
  }
  if (!IsCurrent(stream, StrCat("kernel ", kernel))) return CudaError::kInvalidHandle;
  if (const absl::Status status = Emulator::CheckShape(kernel, shape); !status.ok()) {
    misuse_.Add(FromAbsl(status.message()));
    return CudaError::kInvalidConfiguration;
  }
  Submit(stream, {.thread = std::move(thread), .kernel = std::string(kernel), .shape = shape},
         StrCat("kernel ", kernel));
  return CudaError::kNone;
}

void EmulatedCudaCalls::Learn(const VectorClock& clock) {
  host_.Join(clock);
  accesses_.Sweep(host_, next_work_, open_kernels_.empty() ? next_work_ : *open_kernels_.begin());
}

CudaError EmulatedCudaCalls::Wait(int device, std::string_view what,
                                  const std::function<bool()>& done) {
  while (!done() && gpus_[static_cast<size_t>(device)].sticky == CudaError::kNone) {
    if (held_) {
      misuse_.Add(what, " waits for work that is held");
      return CudaError::kUnknown;
    }
    changed_.Wait(mutex_);
  }
  return gpus_[static_cast<size_t>(device)].sticky;
}

bool EmulatedCudaCalls::CanBegin(const EmulatedWork& work) const {
  if (work.wait != nullptr) return work.wait->done;
  return !work.thread || !kernel_runs_;
}

EmulatedStream* EmulatedCudaCalls::PickStream() {
  if (held_) return nullptr;
  std::vector<EmulatedStream*> ready;
  for (const auto& stream : streams_) {
    if (stream->busy || stream->queue.empty()) continue;
    const bool failed = gpus_[static_cast<size_t>(stream->device())].sticky != CudaError::kNone;
    if (failed || CanBegin(stream->queue.front())) ready.push_back(stream.get());
  }
  if (ready.empty()) return nullptr;
  return ready[static_cast<size_t>(random_.Below(static_cast<int64_t>(ready.size()), draws_++))];
}

bool EmulatedCudaCalls::Idle() const {
  for (const auto& stream : streams_) {
    if (stream->busy || !stream->queue.empty()) return false;
  }
  return true;
}

void EmulatedCudaCalls::Work() {
  MutexLock lock(mutex_);
  while (true) {
    EmulatedStream* stream = PickStream();
    if (stream == nullptr) {
      if (closing_ && Idle()) return;
      changed_.Wait(mutex_);
      continue;
    }
    stream->busy = true;
    EmulatedWork work = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (work.thread) kernel_runs_ = true;
    // Most work begins at once: on a busy machine a yield can take long.
    const bool late = random_.Below(kLateOneIn, draws_++) == 0;
    const int64_t yields = late ? random_.Below(options_.yields_max + 1, draws_++) : 0;
    mutex_.Unlock();
    for (int64_t i = 0; i < yields; ++i) std::this_thread::yield();
    mutex_.Lock();
    Perform(*stream, work);
    if (work.thread) {
      kernel_runs_ = false;
      open_kernels_.erase(work.order->number);
    }
    stream->busy = false;
    changed_.NotifyAll();
  }
}

void EmulatedCudaCalls::Perform(EmulatedStream& stream, EmulatedWork& work) {
  Gpu& gpu = gpus_[static_cast<size_t>(stream.device())];
  if (gpu.sticky != CudaError::kNone) return;  // nothing is done any more
  if (works_++ == options_.failing_work) {
    gpu.sticky = options_.work_error;
    return;
  }
  gpu.nanoseconds += kWorkNanoseconds;
  if (work.record != nullptr) {
    work.record->done = true;
    work.record->nanoseconds = gpu.nanoseconds;
  } else if (work.thread) {
    RunKernel(stream, work);
  } else if (work.word != nullptr) {
    // Read by the host whenever it likes.
    std::atomic_ref<uint32_t>(*work.word).store(work.value, std::memory_order_release);
  } else {
    mutex_.Unlock();
    int64_t bytes = 0;
    for (const EmulatedWork::Span& span : work.spans) {
      bytes += span.bytes;
      if (span.source != nullptr) {
        std::memcpy(span.destination, span.source, static_cast<size_t>(span.bytes));
      } else {
        std::memset(span.destination, 0, static_cast<size_t>(span.bytes));
      }
    }
    mutex_.Lock();
    gpu.nanoseconds += bytes / kBytesPerNanosecond;
  }
}

void EmulatedCudaCalls::RunKernel(EmulatedStream& stream, EmulatedWork& work) {
  KernelTracer tracer({.memory = &memory_, .mutex = &mutex_, .device = stream.device()});
  mutex_.Unlock();
  tracer.Begin();
  const absl::Status status = emulator_.Run(work.kernel, work.shape, work.thread);
  const KernelTracer::Result result = tracer.End();
  mutex_.Lock();
  for (const KernelTracer::Touched& touched : result.touched) {
    NoteAccess(touched.piece, touched.written, work.order);
  }
  CudaError& sticky = gpus_[static_cast<size_t>(stream.device())].sticky;
  if (result.illegal) {
    misuse_.Add(work.order->what, " ", result.what);
    sticky = CudaError::kIllegalAddress;
  } else if (!status.ok()) {
    misuse_.Add(FromAbsl(status.message()));
    sticky = CudaError::kLaunchFailure;
  }
}

}  // namespace gantry
