// CudaCalls of the CUDA toolkit. Its runtime is part of the program; the driver is asked for when
// the program runs, so that it starts on machines without one: calls then return what CUDA's
// runtime returns there, and DriverVersion gives 0.
#ifndef GANTRY_DEVICE_CUDA_CUDA_CALLS_TOOLKIT_H_
#define GANTRY_DEVICE_CUDA_CUDA_CALLS_TOOLKIT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "device/cuda/cuda_calls.h"

namespace gantry {

// Errors: kUnimplemented in a build without the CUDA toolkit.
absl::StatusOr<std::unique_ptr<CudaCalls>> CreateToolkitCudaCalls();

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_CALLS_TOOLKIT_H_
