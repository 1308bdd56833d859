// CublasLtMatMul in builds without the CUDA toolkit: there is none.
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/matmul_cublaslt.h"

namespace gantry::cuda {

class CublasLtMatMul::Impl {};

CublasLtMatMul::CublasLtMatMul(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CublasLtMatMul::~CublasLtMatMul() = default;

absl::StatusOr<std::unique_ptr<CublasLtMatMul>> CublasLtMatMul::Create() {
  return FailedPrecondition("matrix products on GPUs: this program is built without CUDA");
}

absl::Status CublasLtMatMul::Run(CudaStream /*stream*/, const FusedMatMulArgs& /*args*/) {
  return FailedPrecondition("matrix products on GPUs: this program is built without CUDA");
}

}  // namespace gantry::cuda
