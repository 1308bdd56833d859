#include "kernels/cuda/cublaslt_library.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry::cuda {
namespace {

// The version that the headers are of.
std::string FileName() { return StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR); }

template <typename Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return FailedPrecondition(FileName(), " has no function ", name);
}

}  // namespace

absl::StatusOr<CublasLtLibrary> CublasLtLibrary::Load() {
  void* library = dlopen(FileName().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return FailedPrecondition("matrix products on GPUs need ", FileName(), ": ",
                              reason != nullptr ? reason : "not loaded");
  }
  CublasLtLibrary found;
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtCreate", found.create));
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtDestroy", found.destroy));
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtGetStatusName", found.status_name));
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescCreate", found.product_create));
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescDestroy", found.product_destroy));
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescSetAttribute", found.product_set));
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtMatrixLayoutCreate", found.layout_create));
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtMatrixLayoutDestroy", found.layout_destroy));
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceCreate", found.preference_create));
  GANTRY_RETURN_IF_ERROR(
      Find(library, "cublasLtMatmulPreferenceDestroy", found.preference_destroy));
  GANTRY_RETURN_IF_ERROR(
      Find(library, "cublasLtMatmulPreferenceSetAttribute", found.preference_set));
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtMatmulAlgoGetHeuristic", found.choose));
  GANTRY_RETURN_IF_ERROR(Find(library, "cublasLtMatmul", found.multiply));
  return found;
}

absl::Status CublasLtLibrary::Check(std::string_view step, cublasStatus_t status) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return Internal("cuBLASLt, ", step, ": ", std::string_view(status_name(status)));
}

}  // namespace gantry::cuda
