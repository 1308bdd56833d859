// A CUDA device: slabs of physical memory that are mapped at homes with CUDA's virtual memory
// management, pinned host slabs, copy lanes as streams, and a compute queue. Nothing here needs
// CUDA to be built or a GPU to be tested: all calls go through CudaCalls.
//
//   GANTRY_ASSIGN_OR_RETURN(auto calls, CreateToolkitCudaCalls());
//   GANTRY_ASSIGN_OR_RETURN(auto device, CreateCudaDevice({.calls = calls.get(), ...}));
//
// Errors of the device that do not pass (a kernel's illegal access, lost memory) are kept: every
// later call returns the first one, which names the operator the device was at.
#ifndef GANTRY_DEVICE_CUDA_CUDA_DEVICE_H_
#define GANTRY_DEVICE_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/stream.h"
#include "device/device.h"

namespace gantry {

struct CudaDeviceOptions {
  CudaCalls* calls;                // outlives the device
  int index = 0;                   // of several
  Bytes memory_budget = Bytes(0);  // that will be asked of it; refused when there is less free
  Clock* clock;                    // outlives the device
  Logger* logger;                  // outlives the device
};

// Thread-safe.
class CudaDevice : public Device {
 public:
  // Submits an operator's work: `launch` puts kernels on the stream and returns a cudaError (0:
  // none), as the launch functions of kernels do. Errors: that one, naming the operator, or the
  // device's failure.
  virtual absl::Status Run(std::string_view operator_name,
                           absl::FunctionRef<int(CudaStream)> launch) = 0;
};

// Errors, each one line that says what was found and what is needed: kFailedPrecondition without a
// driver, with one that is too old, or on a GPU that is; kNotFound for an index there is not;
// kUnavailable for a device that another process has for itself; kResourceExhausted for a budget
// above what is free.
absl::StatusOr<std::unique_ptr<CudaDevice>> CreateCudaDevice(const CudaDeviceOptions& options);

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_DEVICE_H_
