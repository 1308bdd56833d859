#include "nvme/fault_injection.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gantry {

FaultyIoBackend::FaultyIoBackend(const Factory& factory, IoSink* sink) : sink_(sink) {
  absl::StatusOr<std::unique_ptr<IoBackend>> inner = factory(this);
  status_ = inner.status();
  if (inner.ok()) inner_ = *std::move(inner);
}

void FaultyIoBackend::FailRequest(int64_t index, absl::Status status) {
  GANTRY_CHECK(!status.ok());
  MutexLock lock(mutex_);
  GANTRY_CHECK_GE(index, submitted_);
  faults_.insert_or_assign(index, std::move(status));
}

int64_t FaultyIoBackend::submitted() const {
  MutexLock lock(mutex_);
  return submitted_;
}

void FaultyIoBackend::Submit(const IoRequest& request) {
  CheckRequest(request);
  IoRequest forwarded = request;
  {
    MutexLock lock(mutex_);
    const int64_t index = submitted_++;
    forwarded.tag = static_cast<uint64_t>(index);
    InFlight in_flight = {.request = request, .status = absl::OkStatus()};
    if (auto fault = faults_.find(index); fault != faults_.end()) {
      in_flight.status = fault->second;
      // An empty read transfers nothing and completes on the I/O thread like the real one.
      forwarded.kind = IoRequest::Kind::kRead;
      forwarded.buffer = {};
      forwarded.piece_hashes = {};
    }
    in_flight_.emplace(forwarded.tag, std::move(in_flight));
    const bool unique = numbers_.emplace(request.tag, forwarded.tag).second;
    GANTRY_CHECK(unique) << "tag " << request.tag << " is pending";
  }
  inner_->Submit(forwarded);
}

std::optional<uint64_t> FaultyIoBackend::Forwarded(uint64_t tag) const {
  MutexLock lock(mutex_);
  const auto found = numbers_.find(tag);
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

void FaultyIoBackend::Cancel(uint64_t tag) {
  if (const auto forwarded = Forwarded(tag)) inner_->Cancel(*forwarded);
}

void FaultyIoBackend::Promote(uint64_t tag, IoPriority priority) {
  if (const auto forwarded = Forwarded(tag)) inner_->Promote(*forwarded, priority);
}

void FaultyIoBackend::OnIoComplete(uint64_t tag, absl::Status status) {
  InFlight done = [&] {
    MutexLock lock(mutex_);
    const auto found = in_flight_.find(tag);
    GANTRY_CHECK(found != in_flight_.end()) << "completion of unknown request " << tag;
    InFlight result = std::move(found->second);
    in_flight_.erase(found);
    numbers_.erase(result.request.tag);
    return result;
  }();
  if (!done.status.ok()) {
    status = done.status;
    if (done.request.kind == IoRequest::Kind::kRead) {
      std::fill(done.request.buffer.begin(), done.request.buffer.end(), kPoison);
    }
  }
  sink_->OnIoComplete(done.request.tag, std::move(status));
}

}  // namespace gantry
