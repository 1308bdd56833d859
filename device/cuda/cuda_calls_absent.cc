#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_calls_toolkit.h"

namespace gantry {

absl::StatusOr<std::unique_ptr<CudaCalls>> CreateToolkitCudaCalls() {
  return MakeStatus(absl::StatusCode::kUnimplemented,
                    "this program was built without the CUDA toolkit: it can use no GPU");
}

}  // namespace gantry
