// A GPU of this machine, for tests and measurements.
#ifndef GANTRY_TESTS_GPU_GPUS_H_
#define GANTRY_TESTS_GPU_GPUS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_device.h"

namespace gantry {

// A device with what must outlive it.
struct Gpu {
  MonotonicClock clock;
  StderrLogger logger{LogLevel::kWarning};
  std::unique_ptr<CudaCalls> calls;
  std::unique_ptr<CudaDevice> device;
};

// Errors: why this machine or this program cannot use the GPU, in one line.
absl::StatusOr<std::unique_ptr<Gpu>> OpenGpu(int index);

}  // namespace gantry

#endif  // GANTRY_TESTS_GPU_GPUS_H_
