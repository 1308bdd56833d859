#include "device/cuda/cuda_error.h"

#include "absl/status/status.h"

namespace gantry {

bool IsSticky(CudaError error) {
  switch (error) {
    case CudaError::kUncorrectableMemory:
    case CudaError::kLinkUncorrectable:
    case CudaError::kContained:
    case CudaError::kIllegalAddress:
    case CudaError::kLaunchTimeout:
    case CudaError::kAssert:
    case CudaError::kHardwareStack:
    case CudaError::kIllegalInstruction:
    case CudaError::kMisalignedAddress:
    case CudaError::kInvalidAddressSpace:
    case CudaError::kInvalidProgramCounter:
    case CudaError::kLaunchFailure:
    case CudaError::kTensorMemoryLeak:
    case CudaError::kExternalDevice:
    case CudaError::kUnknown:
      return true;
    default:
      return false;
  }
}

absl::StatusCode StatusCodeOf(CudaError error) {
  switch (error) {
    case CudaError::kOutOfMemory:
      return absl::StatusCode::kResourceExhausted;
    case CudaError::kDevicesUnavailable:
    case CudaError::kLinkUncorrectable:
    case CudaError::kExternalDevice:
      return absl::StatusCode::kUnavailable;
    case CudaError::kNotSupported:
    case CudaError::kSymbolNotFound:
      return absl::StatusCode::kUnimplemented;
    case CudaError::kUncorrectableMemory:
    case CudaError::kContained:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace gantry
