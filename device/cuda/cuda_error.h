// What a CUDA call returns, without CUDA's headers: the number of a cudaError, whose values the
// driver's CUresults share. Numbers without a name here are errors like any other.
#ifndef GANTRY_DEVICE_CUDA_CUDA_ERROR_H_
#define GANTRY_DEVICE_CUDA_CUDA_ERROR_H_

#include "absl/status/status.h"

namespace gantry {

enum class [[nodiscard]] CudaError : int {
  kNone = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,  // of a kernel's launch
  kInsufficientDriver = 35,
  kDevicesUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kUncorrectableMemory = 214,
  kLinkUncorrectable = 220,
  kContained = 226,  // a memory error that ended the context only
  kInvalidHandle = 400,
  kSymbolNotFound = 500,
  kNotReady = 600,  // no failure: the answer to a query
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kAssert = 710,
  kHardwareStack = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidProgramCounter = 718,
  kLaunchFailure = 719,
  kTensorMemoryLeak = 721,
  kNotPermitted = 800,
  kNotSupported = 801,
  kExternalDevice = 911,
  kUnknown = 999,
};

// Whether every later call on the device returns the same error, until the process ends.
bool IsSticky(CudaError error);

// kResourceExhausted for lack of memory, kUnavailable for a device that is lost or taken,
// kUnimplemented for what the device or the driver cannot do, kDataLoss for memory that lost bits,
// kInternal for everything else. REQUIRES: an error.
absl::StatusCode StatusCodeOf(CudaError error);

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_ERROR_H_
