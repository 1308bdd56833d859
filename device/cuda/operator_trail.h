// Which operators a stream is at: after each, the device writes its number into a word of host
// memory, so that when the device fails it is known which one it did not get past.
//
// Thread-safe.
#ifndef GANTRY_DEVICE_CUDA_OPERATOR_TRAIL_H_
#define GANTRY_DEVICE_CUDA_OPERATOR_TRAIL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/stream.h"
#include "device/host/virtual_memory.h"

namespace gantry {

class OperatorTrail {
 public:
  // `context` outlives the trail.
  static absl::StatusOr<std::unique_ptr<OperatorTrail>> Create(CudaContext* context);
  ~OperatorTrail();  // REQUIRES: the stream is idle, or failed

  // Notes that the operator's work comes next on the stream, or that it is all submitted. Of one
  // stream; the caller orders calls.
  void Begin(std::string_view name) GANTRY_EXCLUDES(mutex_);
  absl::Status End(CudaStream stream) GANTRY_EXCLUDES(mutex_);

  // "operator h.3.attn (the first of 5 that are not done)"; empty when all are done.
  std::string Suspect() const GANTRY_EXCLUDES(mutex_);

 private:
  struct Entry {
    uint32_t number;
    std::string name;
  };
  OperatorTrail(CudaContext* context, AddressRange memory);
  uint32_t* word() const { return reinterpret_cast<uint32_t*>(memory_.base()); }
  void DropDone() GANTRY_REQUIRES(mutex_);

  CudaContext& context_;
  const AddressRange memory_;  // one page, registered
  mutable Mutex mutex_;
  uint32_t last_ GANTRY_GUARDED_BY(mutex_) = 0;
  bool written_ GANTRY_GUARDED_BY(mutex_) = true;  // false: the driver cannot
  std::deque<Entry> entries_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_OPERATOR_TRAIL_H_
