#include "device/cuda/cuda_host_slab.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_context.h"
#include "device/device.h"
#include "device/host/host_slab.h"
#include "device/host/virtual_memory.h"

namespace gantry {

absl::StatusOr<std::unique_ptr<CudaHostSlab>> CudaHostSlab::Create(const Options& options) {
  GANTRY_CHECK(options.slab.kind == MemoryKind::kHostPinned);
  GANTRY_CHECK_GT(options.slice_bytes.count(), 0);
  std::unique_ptr<CudaHostSlab> slab(new CudaHostSlab(options));
  GANTRY_ASSIGN_OR_RETURN(slab->memory_, HostSlab::Create({.slab = options.slab,
                                                           .move_method = MoveMethod::kRefillSource,
                                                           .mapping_budget = &slab->no_mappings_}));
  CudaContext& context = *options.context;
  GANTRY_RETURN_IF_ERROR(context.Enter());
  const int64_t slots = options.slice_bytes.count() / slab->slot_bytes().count();
  slab->slice_ = slab->slot_bytes() * std::max<int64_t>(slots, 1);
  while (slab->registered_ < slab->size()) {
    const Bytes slice = std::min(slab->slice_, slab->size() - slab->registered_);
    const absl::Status status =
        context.Check(context.calls().RegisterHost(slab->base() + slab->registered_.count(), slice),
                      "cudaHostRegister(", slice, ") of ", slab->size(), ", of which ",
                      slab->registered_, " are pinned");
    GANTRY_RETURN_IF_ERROR(status);
    slab->registered_ += slice;
  }
  return slab;
}

CudaHostSlab::~CudaHostSlab() {
  for (Bytes done(0); done < registered_; done += slice_) {
    context_.Release(context_.calls().UnregisterHost(base() + done.count()),
                     "cudaHostUnregister(), ", size());
  }
}

}  // namespace gantry
