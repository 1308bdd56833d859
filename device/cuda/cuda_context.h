// What all parts of one CUDA device share: the calls, which device it is, the first error after
// which nothing works any more, and which of the device's addresses are still in use.
//
// Thread-safe.
#ifndef GANTRY_DEVICE_CUDA_CUDA_CONTEXT_H_
#define GANTRY_DEVICE_CUDA_CUDA_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/stream.h"
#include "device/device.h"

namespace gantry {

// A range of device addresses that knows until when work uses it.
class CudaAddresses {
 public:
  virtual ~CudaAddresses() = default;
  virtual QueuePoint InUseUntil(int64_t offset, int64_t bytes) const = 0;
};

class CudaContext {
 public:
  struct Options {
    CudaCalls* calls;
    int device;
    std::string name;  // "GPU 0 (NVIDIA H100)"
    Bytes granularity;
    bool virtual_memory;
    Clock* clock;
    Logger* logger;
  };
  explicit CudaContext(Options options) : options_(std::move(options)) {}
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  CudaCalls& calls() const { return *options_.calls; }
  const std::string& name() const { return options_.name; }
  int device() const { return options_.device; }
  Bytes granularity() const { return options_.granularity; }
  bool virtual_memory() const { return options_.virtual_memory; }
  const Clock& clock() const { return *options_.clock; }
  Logger& logger() const { return *options_.logger; }

  // Makes the device the calling thread's; before calls that mean the current device. Errors: the
  // failure, once there is one.
  absl::Status Enter() GANTRY_EXCLUDES(mutex_);
  // OK, or the status of a failed call, which `call` (streamed) says with its arguments. An error
  // that stays is kept: it is the failure.
  template <typename... Parts>
  absl::Status Check(CudaError error, const Parts&... call) {
    if (error == CudaError::kNone) [[likely]] {
      return absl::OkStatus();
    }
    return StatusOf(error, StrCat(call...));
  }
  // For what gives something back and has no caller to tell: a warning. Whether it worked.
  template <typename... Parts>
  bool Release(CudaError error, const Parts&... call) {
    if (error != CudaError::kNone) WarnOf(error, StrCat(call...));
    return error == CudaError::kNone;
  }
  // Blocks until all work of the stream is done. An error that does not stay is tried once more:
  // memory must not be given back while the device may use it.
  absl::Status Drain(CudaStream stream);
  // After which every call fails; OK: there is none.
  absl::Status failure() const GANTRY_EXCLUDES(mutex_);

  // Who says which operator the device was at: "operator x", or nothing. Set once, before work.
  void SetSuspect(std::function<std::string()> suspect) { suspect_ = std::move(suspect); }

  // `addresses` stays until Forget.
  void Announce(const std::byte* base, Bytes bytes, const CudaAddresses* addresses)
      GANTRY_EXCLUDES(mutex_);
  void Forget(const std::byte* base) GANTRY_EXCLUDES(mutex_);
  // Until when work that was submitted uses any of these device addresses.
  QueuePoint InUseUntil(const std::byte* address, Bytes bytes) const GANTRY_EXCLUDES(mutex_);

 private:
  struct Range {
    int64_t bytes;
    const CudaAddresses* addresses;
  };
  absl::Status StatusOf(CudaError error, const std::string& call) GANTRY_EXCLUDES(mutex_);
  void WarnOf(CudaError error, const std::string& call) GANTRY_EXCLUDES(mutex_);

  const Options options_;
  std::function<std::string()> suspect_;
  mutable Mutex mutex_;
  absl::Status failure_ GANTRY_GUARDED_BY(mutex_);
  std::map<const std::byte*, Range> ranges_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_CONTEXT_H_
