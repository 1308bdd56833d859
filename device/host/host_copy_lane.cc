#include "device/host/host_copy_lane.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

// Of a paced copy: small enough to spread the memory traffic, large enough that pacing costs
// little.
constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

// bytes / bandwidth, rounded up.
Nanoseconds TransferTime(int64_t bytes, int64_t bandwidth_bytes_per_second) {
  if (bandwidth_bytes_per_second == 0) return 0;
  const __int128 numerator =
      static_cast<__int128>(bytes) * kNanosecondsPerSecond + bandwidth_bytes_per_second - 1;
  return static_cast<Nanoseconds>(numerator / bandwidth_bytes_per_second);
}

}  // namespace

HostCopyLane::HostCopyLane(const Options& options)
    : options_(options), due_(options.clock->Now()), finished_(due_) {}

absl::StatusOr<std::unique_ptr<HostCopyLane>> HostCopyLane::Create(const Options& options) {
  GANTRY_CHECK_GE(options.bandwidth_bytes_per_second, 0);
  GANTRY_CHECK_GE(options.latency_nanoseconds, 0);
  GANTRY_CHECK(options.sink != nullptr);
  std::unique_ptr<HostCopyLane> lane(new HostCopyLane(options));
  try {
    // thread: a lane blocks in sleeps and runs beside the compute team for the life of the device.
    lane->thread_ = std::thread([lane = lane.get()] { lane->Run(); });
  } catch (const std::system_error& error) {
    return Unavailable("the thread of a copy lane could not be started: ", error.what());
  }
  return lane;
}

HostCopyLane::~HostCopyLane() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void HostCopyLane::Submit(const CopyRequest& request) {
  GANTRY_CHECK_GE(request.bytes.count(), 0);
  const Nanoseconds now = options_.clock->Now();
  MutexLock lock(mutex_);
  GANTRY_CHECK(!closing_) << "a copy was submitted to a lane under destruction";
  queue_.push_back({.request = request, .submitted = now});
  ++submitted_;
  changed_.NotifyAll();
}

void HostCopyLane::WaitForAll() {
  MutexLock lock(mutex_);
  const int64_t submitted = submitted_;
  while (counters_.requests < submitted) changed_.Wait(mutex_);
}

LaneCounters HostCopyLane::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

void HostCopyLane::Run() {
  while (true) {
    mutex_.Lock();
    while (queue_.empty() && !closing_) changed_.Wait(mutex_);
    if (queue_.empty()) {
      mutex_.Unlock();
      return;
    }
    const Entry entry = queue_.front();
    queue_.pop_front();
    mutex_.Unlock();
    Copy(entry);
  }
}

void HostCopyLane::Copy(const Entry& entry) {
  const CopyRequest& request = entry.request;
  const int64_t bytes = request.bytes.count();
  const Nanoseconds first_byte = std::max(entry.submitted, due_) + options_.latency_nanoseconds;
  options_.clock->SleepUntil(first_byte);
  const int64_t piece_max = options_.bandwidth_bytes_per_second == 0 ? bytes : kPieceBytes;
  for (int64_t done = 0; done < bytes;) {
    const int64_t piece = std::min(piece_max, bytes - done);
    std::memcpy(request.destination + done, request.source + done, static_cast<size_t>(piece));
    done += piece;
    options_.clock->SleepUntil(first_byte +
                               TransferTime(done, options_.bandwidth_bytes_per_second));
  }
  due_ = first_byte + TransferTime(bytes, options_.bandwidth_bytes_per_second);
  const Nanoseconds began = std::max(entry.submitted, finished_);
  finished_ = std::max(due_, options_.clock->Now());
  {
    MutexLock lock(mutex_);
    ++counters_.requests;
    counters_.bytes += bytes;
    counters_.busy_nanoseconds += finished_ - began;
    changed_.NotifyAll();
  }
  options_.sink->OnCopyComplete(request.tag, absl::OkStatus());
}

}  // namespace gantry
