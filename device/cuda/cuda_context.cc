#include "device/cuda/cuda_context.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/stream.h"
#include "device/device.h"

namespace gantry {

absl::Status CudaContext::Enter() {
  GANTRY_RETURN_IF_ERROR(failure());
  return Check(calls().SetDevice(device()), "cudaSetDevice(", device(), ")");
}

absl::Status CudaContext::Drain(CudaStream stream) {
  absl::Status status = Check(calls().SynchronizeStream(stream), "cudaStreamSynchronize()");
  if (status.ok() || !failure().ok()) return status;
  return Check(calls().SynchronizeStream(stream), "cudaStreamSynchronize()");
}

absl::Status CudaContext::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

absl::Status CudaContext::StatusOf(CudaError error, const std::string& call) {
  const std::string text = StrCat(name(), ": ", calls().Describe(error), " from ", call);
  if (!IsSticky(error)) return absl::Status(StatusCodeOf(error), ToAbsl(text));
  // Asked without the lock: it looks at its own.
  const std::string suspect = suspect_ ? suspect_() : std::string();
  MutexLock lock(mutex_);
  if (failure_.ok()) {
    failure_ = absl::Status(StatusCodeOf(error),
                            ToAbsl(StrCat(text, suspect.empty() ? "" : ", while the device ran ",
                                          suspect, "; the process can use the device no more")));
  }
  return failure_;
}

void CudaContext::WarnOf(CudaError error, const std::string& call) {
  // Once the device has failed nothing can be given back, which was said.
  if (const bool failed = !failure().ok(); failed) return;
  const absl::Status status = StatusOf(error, call);
  logger().Warning(StrCat("not given back: ", FromAbsl(status.message())));
}

void CudaContext::Announce(const std::byte* base, Bytes bytes, const CudaAddresses* addresses) {
  MutexLock lock(mutex_);
  ranges_[base] = {.bytes = bytes.count(), .addresses = addresses};
}

void CudaContext::Forget(const std::byte* base) {
  MutexLock lock(mutex_);
  ranges_.erase(base);
}

QueuePoint CudaContext::InUseUntil(const std::byte* address, Bytes bytes) const {
  MutexLock lock(mutex_);
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return QueuePoint();
  const auto& [base, range] = *std::prev(after);
  const int64_t offset = address - base;
  if (offset >= range.bytes || bytes.count() == 0) return QueuePoint();
  return range.addresses->InUseUntil(offset, std::min(bytes.count(), range.bytes - offset));
}

}  // namespace gantry
