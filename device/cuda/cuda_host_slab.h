// Pinned host memory: the host's own slab (anonymous, in huge pages, exactly as large as asked
// for), registered with CUDA in slices, once.
//
// Thread-safe.
#ifndef GANTRY_DEVICE_CUDA_CUDA_HOST_SLAB_H_
#define GANTRY_DEVICE_CUDA_CUDA_HOST_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "device/cuda/cuda_context.h"
#include "device/device.h"
#include "device/host/host_slab.h"
#include "device/host/memory_limits.h"

namespace gantry {

class CudaHostSlab final : public Slab {
 public:
  struct Options {
    Device::SlabOptions slab;  // kHostPinned
    CudaContext* context;      // outlives the slab
    // About as much is registered at a time: the driver pins page by page under a lock, and between
    // slices others have their turn.
    Bytes slice_bytes = 1_GiB;
  };
  // Errors: those of HostSlab; kResourceExhausted when the system pins no more.
  static absl::StatusOr<std::unique_ptr<CudaHostSlab>> Create(const Options& options);
  ~CudaHostSlab() override;

  Bytes slot_bytes() const override { return memory_->slot_bytes(); }
  int64_t slot_count() const override { return memory_->slot_count(); }
  std::byte* parking(SlotId slot) const override { return memory_->parking(slot); }

 private:
  explicit CudaHostSlab(const Options& options) : options_(options), context_(*options.context) {}
  std::byte* base() const { return memory_->parking(SlotId(0)); }
  Bytes size() const { return slot_bytes() * slot_count(); }

  const Options options_;
  CudaContext& context_;
  // Its slots never move, so they need no mappings.
  MappingBudget no_mappings_{{.mappings_now = 0, .limit = {}}};
  std::unique_ptr<HostSlab> memory_;  // set by Create
  // Whole slots: no copy may span two registrations.
  Bytes slice_ = Bytes(0);
  Bytes registered_ = Bytes(0);  // from the base on, in whole slices but the last
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_HOST_SLAB_H_
