#include "device/cuda/cuda_queue.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/operator_trail.h"
#include "device/cuda/stream.h"
#include "device/device.h"

namespace gantry {

absl::StatusOr<std::unique_ptr<CudaQueue>> CudaQueue::Create(CudaContext* context) {
  GANTRY_RETURN_IF_ERROR(context->Enter());
  std::unique_ptr<CudaQueue> queue(new CudaQueue(context));
  GANTRY_RETURN_IF_ERROR(context->Check(context->calls().CreateStream(&queue->stream_),
                                        "cudaStreamCreateWithFlags(), the compute queue"));
  GANTRY_ASSIGN_OR_RETURN(queue->trail_, OperatorTrail::Create(context));
  context->SetSuspect([trail = queue->trail_.get()] { return trail->Suspect(); });
  return queue;
}

CudaQueue::~CudaQueue() {
  if (stream_ == nullptr) return;
  CudaCalls& calls = context_.calls();
  WaitForAll();
  MutexLock lock(mutex_);
  for (const Point& point : points_) {
    GANTRY_CHECK_EQ(point.event.use_count(), 1) << "a queue is destroyed while it is waited for";
    free_events_.push_back(*point.event);
  }
  for (const CudaEvent event : free_events_) {
    context_.Release(calls.DestroyEvent(event), "cudaEventDestroy()");
  }
  context_.Release(calls.DestroyStream(stream_), "cudaStreamDestroy()");
  context_.SetSuspect({});
}

void CudaQueue::WaitForAll() {
  // An error here was met, or will be, by those whose work it is.
  static_cast<void>(context_.Drain(stream_));
}

absl::Status CudaQueue::FillWithZeros(std::byte* address, Bytes bytes) {
  if (bytes == Bytes(0)) return absl::OkStatus();
  GANTRY_RETURN_IF_ERROR(context_.Enter());
  MutexLock lock(mutex_);
  GANTRY_RETURN_IF_ERROR(context_.Check(context_.calls().FillWithZeros(address, bytes, stream_),
                                        "cudaMemsetAsync(", bytes, ")"));
  work_since_mark_ = true;
  return absl::OkStatus();
}

absl::Status CudaQueue::Run(std::string_view operator_name,
                            absl::FunctionRef<int(CudaStream)> launch) {
  GANTRY_RETURN_IF_ERROR(context_.Enter());
  MutexLock lock(mutex_);
  work_since_mark_ = true;
  trail_->Begin(operator_name);
  const auto error = static_cast<CudaError>(launch(stream_));
  // Its number is written in any case: part of it may have been launched.
  absl::Status ended = trail_->End(stream_);
  GANTRY_RETURN_IF_ERROR(context_.Check(error, "a kernel of operator ", operator_name));
  return ended;
}

absl::StatusOr<CudaEvent> CudaQueue::TakeEvent() {
  if (!free_events_.empty()) {
    const CudaEvent event = free_events_.back();
    free_events_.pop_back();
    return event;
  }
  GANTRY_RETURN_IF_ERROR(context_.Enter());
  CudaEvent event;
  GANTRY_RETURN_IF_ERROR(
      context_.Check(context_.calls().CreateEvent(CudaCalls::EventKind::kOrder, &event),
                     "cudaEventCreateWithFlags()"));
  return event;
}

absl::StatusOr<QueuePoint> CudaQueue::Mark() {
  MutexLock lock(mutex_);
  if (!work_since_mark_) return QueuePoint{marked_};
  Advance();
  GANTRY_ASSIGN_OR_RETURN(const CudaEvent event, TakeEvent());
  absl::Status recorded =
      context_.Check(context_.calls().RecordEvent(event, stream_), "cudaEventRecord()");
  if (!recorded.ok()) {
    free_events_.push_back(event);
    return recorded;
  }
  work_since_mark_ = false;
  points_.push_back({.number = ++marked_, .event = std::make_shared<CudaEvent>(event)});
  return QueuePoint{marked_};
}

void CudaQueue::Advance() {
  for (const Point& point : points_) {
    if (point.number <= reached_) continue;
    const CudaError error = context_.calls().QueryEvent(*point.event);
    if (error == CudaError::kNotReady) break;
    // Whoever waits for it is told what went wrong.
    if (error != CudaError::kNone) break;
    reached_ = point.number;
  }
  while (!points_.empty() && points_.front().number <= reached_ &&
         points_.front().event.use_count() == 1) {
    free_events_.push_back(*points_.front().event);
    points_.pop_front();
  }
}

std::shared_ptr<CudaEvent> CudaQueue::EventOf(QueuePoint point) {
  GANTRY_CHECK_LE(point.number, marked_) << "a point of another queue";
  if (point.number <= reached_) return nullptr;
  for (const Point& known : points_) {
    if (known.number == point.number) return known.event;
  }
  return nullptr;
}

bool CudaQueue::Reached(QueuePoint point) {
  MutexLock lock(mutex_);
  if (point.number > reached_) Advance();
  return point.number <= reached_;
}

absl::Status CudaQueue::Wait(QueuePoint point) {
  std::shared_ptr<CudaEvent> event;
  {
    MutexLock lock(mutex_);
    event = EventOf(point);
    if (event == nullptr) return absl::OkStatus();
  }
  absl::Status waited = context_.Check(context_.calls().SynchronizeEvent(*event),
                                       "cudaEventSynchronize(), the compute queue");
  event.reset();
  if (!waited.ok()) {
    WaitForAll();
    return waited;
  }
  MutexLock lock(mutex_);
  reached_ = std::max(reached_, point.number);
  return absl::OkStatus();
}

absl::Status CudaQueue::MakeWait(CudaStream stream, QueuePoint point) {
  MutexLock lock(mutex_);
  Advance();
  const std::shared_ptr<CudaEvent> event = EventOf(point);
  if (event == nullptr) return absl::OkStatus();
  return context_.Check(context_.calls().WaitEvent(stream, *event), "cudaStreamWaitEvent()");
}

absl::Status CudaQueue::RunAfter(CopyLane& lane) {
  auto* copies = dynamic_cast<CudaStreamWork*>(&lane);
  GANTRY_CHECK(copies != nullptr) << "a lane of another device";
  MutexLock lock(mutex_);
  GANTRY_RETURN_IF_ERROR(copies->MakeWait(stream_));
  work_since_mark_ = true;
  return absl::OkStatus();
}

}  // namespace gantry
