// cuBLASLt's functions, loaded at run time: a program that was built with the toolkit also starts
// where the library is not installed. Included by matmul_cublaslt.cc only.
#ifndef GANTRY_KERNELS_CUDA_CUBLASLT_LIBRARY_H_
#define GANTRY_KERNELS_CUDA_CUBLASLT_LIBRARY_H_

#include <cublasLt.h>

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gantry::cuda {

// Copyable; the library stays loaded until the program ends.
struct CublasLtLibrary {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetStatusName) status_name;
  decltype(&cublasLtMatmulDescCreate) product_create;
  decltype(&cublasLtMatmulDescDestroy) product_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) product_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmul) multiply;

  // Errors: kFailedPrecondition where the library or one of the functions is missing.
  static absl::StatusOr<CublasLtLibrary> Load();
  // OK for success; else kInternal with the step's and the error's name.
  absl::Status Check(std::string_view step, cublasStatus_t status) const;
};

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_CUBLASLT_LIBRARY_H_
