#include "tests/gpu/gpus.h"

#include <memory>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "device/cuda/cuda_calls_toolkit.h"
#include "device/cuda/cuda_device.h"

namespace gantry {

absl::StatusOr<std::unique_ptr<Gpu>> OpenGpu(int index) {
  auto gpu = std::make_unique<Gpu>();
  GANTRY_ASSIGN_OR_RETURN(gpu->calls, CreateToolkitCudaCalls());
  GANTRY_ASSIGN_OR_RETURN(gpu->device, CreateCudaDevice({.calls = gpu->calls.get(),
                                                         .index = index,
                                                         .clock = &gpu->clock,
                                                         .logger = &gpu->logger}));
  return gpu;
}

}  // namespace gantry
