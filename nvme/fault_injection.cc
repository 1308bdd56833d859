#include "nvme/fault_injection.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace gantry {

FaultyIoBackend::FaultyIoBackend(const Factory& factory, IoSink* sink) : sink_(sink) {
  absl::StatusOr<std::unique_ptr<IoBackend>> inner = factory(this);
  status_ = inner.status();
  if (inner.ok()) inner_ = *std::move(inner);
}

void FaultyIoBackend::FailRequest(int64_t index, When when, absl::Status status) {
  GANTRY_CHECK(!status.ok());
  MutexLock lock(mutex_);
  GANTRY_CHECK_GE(index, submitted_);
  faults_.insert_or_assign(index, Fault{when, std::move(status)});
}

int64_t FaultyIoBackend::submitted() const {
  MutexLock lock(mutex_);
  return submitted_;
}

absl::Status FaultyIoBackend::Submit(const IoRequest& request) {
  CheckRequest(request);
  IoRequest forwarded = request;
  {
    MutexLock lock(mutex_);
    const int64_t index = submitted_++;
    forwarded.tag = static_cast<uint64_t>(index);
    InFlight in_flight = {.request = request, .status = absl::OkStatus()};
    if (auto fault = faults_.find(index); fault != faults_.end()) {
      if (fault->second.when == When::kSubmit) return fault->second.status;
      in_flight.status = fault->second.status;
      // An empty read transfers nothing and completes on the I/O thread like the real one.
      forwarded.kind = IoRequest::Kind::kRead;
      forwarded.buffer = {};
    }
    in_flight_.emplace(forwarded.tag, std::move(in_flight));
  }
  absl::Status status = inner_->Submit(forwarded);
  if (!status.ok()) {
    MutexLock lock(mutex_);
    in_flight_.erase(forwarded.tag);
  }
  return status;
}

void FaultyIoBackend::OnIoComplete(uint64_t tag, absl::Status status) {
  InFlight done = [&] {
    MutexLock lock(mutex_);
    const auto found = in_flight_.find(tag);
    GANTRY_CHECK(found != in_flight_.end()) << "completion of unknown request " << tag;
    InFlight result = std::move(found->second);
    in_flight_.erase(found);
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

void FaultyTransferCalls::ShortenCall(int64_t index, int64_t bytes) {
  GANTRY_CHECK_GE(bytes, 0);
  MutexLock lock(mutex_);
  bytes_max_[index] = bytes;
}

void FaultyTransferCalls::FailCalls(const Failure& failure) {
  GANTRY_CHECK(failure.error_number > 0 && failure.count > 0);
  MutexLock lock(mutex_);
  failures_.insert_or_assign(failure.first, failure);
}

int64_t FaultyTransferCalls::calls() const {
  MutexLock lock(mutex_);
  return calls_;
}

int64_t FaultyTransferCalls::Transfer(const IoRequest& piece) {
  IoRequest shortened = piece;
  {
    MutexLock lock(mutex_);
    const int64_t index = calls_++;
    auto after = failures_.upper_bound(index);
    if (after != failures_.begin()) {
      const Failure& failure = std::prev(after)->second;
      if (index < failure.first + failure.count) return -int64_t{failure.error_number};
    }
    if (auto found = bytes_max_.find(index); found != bytes_max_.end()) {
      const auto size = std::min(piece.buffer.size(), static_cast<size_t>(found->second));
      shortened.buffer = piece.buffer.first(size);
    }
  }
  return shortened.buffer.empty() && piece.kind != IoRequest::Kind::kSync
             ? 0
             : inner_->Transfer(shortened);
}

}  // namespace gantry
