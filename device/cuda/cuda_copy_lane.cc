#include "device/cuda/cuda_copy_lane.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_queue.h"
#include "device/cuda/stream.h"
#include "device/device.h"

namespace gantry {

CudaCopyLane::CudaCopyLane(const Options& options) : options_(options), context_(*options.context) {
  GANTRY_CHECK(options.sink != nullptr);
}

absl::StatusOr<std::unique_ptr<CudaCopyLane>> CudaCopyLane::Create(const Options& options) {
  CudaContext& context = *options.context;
  GANTRY_RETURN_IF_ERROR(context.Enter());
  std::unique_ptr<CudaCopyLane> lane(new CudaCopyLane(options));
  GANTRY_RETURN_IF_ERROR(context.Check(context.calls().CreateStream(&lane->stream_),
                                       "cudaStreamCreateWithFlags(), a copy lane"));
  try {
    // thread: it blocks until a copy is complete, for the life of the device.
    lane->thread_ = std::thread([lane = lane.get()] { lane->Run(); });
  } catch (const std::system_error& error) {
    return Unavailable("the thread of a copy lane could not be started: ", error.what());
  }
  return lane;
}

CudaCopyLane::~CudaCopyLane() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  CudaCalls& calls = context_.calls();
  MutexLock lock(mutex_);
  for (const CudaEvent event : free_events_) {
    context_.Release(calls.DestroyEvent(event), "cudaEventDestroy()");
  }
  if (stream_ == nullptr) return;
  context_.Release(calls.DestroyStream(stream_), "cudaStreamDestroy(), a copy lane");
}

absl::StatusOr<QueuePoint> CudaCopyLane::PointOf(const CopyRequest& request) {
  if (request.after.has_value()) return *request.after;
  if (options_.direction == CopyDirection::kDeviceToHost) return options_.queue->Mark();
  return context_.InUseUntil(request.destination, request.bytes);
}

void CudaCopyLane::Submit(const CopyRequest& request) {
  GANTRY_CHECK_GE(request.bytes.count(), 0);
  Entry entry{.request = request, .submitted = context_.clock().Now(), .status = {}, .event = {}};
  // Before the lane's lock: the queue's lock comes first. Copies that other threads submit
  // meanwhile come behind the point too, which does no harm.
  const absl::StatusOr<QueuePoint> point = PointOf(request);
  entry.status = point.ok() ? options_.queue->MakeWait(stream_, *point) : point.status();
  MutexLock lock(mutex_);
  GANTRY_CHECK(!closing_) << "a copy was submitted to a lane under destruction";
  if (entry.status.ok()) {
    const absl::StatusOr<CudaEvent> event = Issue(request);
    if (event.ok()) entry.event = *event;
    entry.status = event.status();
  }
  entries_.push_back(std::move(entry));
  changed_.NotifyAll();
}

absl::StatusOr<CudaEvent> CudaCopyLane::TakeEvent() {
  if (!free_events_.empty()) {
    const CudaEvent event = free_events_.back();
    free_events_.pop_back();
    return event;
  }
  GANTRY_RETURN_IF_ERROR(context_.Enter());
  CudaEvent event;
  GANTRY_RETURN_IF_ERROR(
      context_.Check(context_.calls().CreateEvent(CudaCalls::EventKind::kOrder, &event),
                     "cudaEventCreateWithFlags(), a copy lane"));
  return event;
}

absl::StatusOr<CudaEvent> CudaCopyLane::Issue(const CopyRequest& request) {
  GANTRY_ASSIGN_OR_RETURN(const CudaEvent event, TakeEvent());
  CudaCalls& calls = context_.calls();
  const CudaCalls::Copy copy = {
      .destination = request.destination, .source = request.source, .bytes = request.bytes};
  const bool up = options_.direction == CopyDirection::kHostToDevice;
  CudaError error = CudaError::kNone;
  if (request.bytes.count() > 0) {
    error = up ? calls.CopyToDevice(copy, stream_) : calls.CopyToHost(copy, stream_);
  }
  absl::Status status = context_.Check(error, "cudaMemcpyAsync(", request.bytes,
                                       up ? "), to the device" : "), to the host");
  if (status.ok()) {
    status = context_.Check(calls.RecordEvent(event, stream_), "cudaEventRecord(), a copy lane");
    // The copy goes on, and its memory is in use, with nothing to wait for but the whole stream.
    if (!status.ok()) static_cast<void>(context_.Drain(stream_));
  }
  if (status.ok()) return event;
  free_events_.push_back(event);
  return status;
}

LaneCounters CudaCopyLane::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

absl::Status CudaCopyLane::MakeWait(CudaStream stream) {
  MutexLock lock(mutex_);
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->event.has_value()) {
      return context_.Check(context_.calls().WaitEvent(stream, *entry->event),
                            "cudaStreamWaitEvent(), for a copy lane");
    }
  }
  return absl::OkStatus();
}

void CudaCopyLane::Run() {
  // A failure is told with each copy.
  static_cast<void>(context_.Enter());
  while (true) {
    std::optional<CudaEvent> event;
    {
      MutexLock lock(mutex_);
      while (entries_.empty() && !closing_) changed_.Wait(mutex_);
      if (entries_.empty()) return;
      event = entries_.front().event;
    }
    absl::Status status;
    if (event.has_value()) {
      status = context_.Check(context_.calls().SynchronizeEvent(*event),
                              "cudaEventSynchronize(), a copy lane");
      if (!status.ok()) static_cast<void>(context_.Drain(stream_));
    }
    mutex_.Lock();
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    if (event.has_value()) free_events_.push_back(*event);
    mutex_.Unlock();
    if (entry.status.ok()) entry.status = std::move(status);
    Finish(std::move(entry));
  }
}

void CudaCopyLane::Finish(Entry entry) {
  const Nanoseconds began = std::max(entry.submitted, finished_);
  finished_ = context_.clock().Now();
  {
    MutexLock lock(mutex_);
    ++counters_.requests;
    if (entry.status.ok()) counters_.bytes += entry.request.bytes.count();
    counters_.busy_nanoseconds += finished_ - began;
  }
  options_.sink->OnCopyComplete(entry.request.tag, std::move(entry.status));
}

}  // namespace gantry
