#include "base/strings.h"
#include "parallel/comm/nccl_library.h"

namespace gantry {

absl::StatusOr<std::unique_ptr<NcclCalls>> LoadNccl(const std::string& name) {
  return MakeStatus(absl::StatusCode::kUnimplemented, "this build has no NCCL (", name,
                    "): build it with the CUDA toolkit, whose headers it needs");
}

}  // namespace gantry
