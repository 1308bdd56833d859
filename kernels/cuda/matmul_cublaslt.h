// Matrix products on a CUDA device by cuBLASLt, with what is done to the result fused:
//
//   C (+)= op(A) op(B),   or C = f(op(A) op(B) + bias)
//
// with the operands of kernels/matmul.h. The library is loaded when the object is made, so that
// programs run without it. A and B are of one type, f32, bf16 or f16, C is of that type or f32;
// sums are in float (no TF32) and rounded once, also when adding to C.
//
// Determinism: algorithms whose parts meet in atomic additions are left out, and the algorithm is
// chosen once for each shape (types, strides and alignments included) and kept: the same bits on
// every run with one library version and kind of GPU.
//
// Thread-safe. Run puts its work on the stream and does not wait; the first product of a shape
// takes longer. The workspace is the caller's device memory, for one stream at a time.
#ifndef GANTRY_KERNELS_CUDA_MATMUL_CUBLASLT_H_
#define GANTRY_KERNELS_CUDA_MATMUL_CUBLASLT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/cuda/stream.h"
#include "kernels/matmul.h"
#include "kernels/views.h"

namespace gantry::cuda {

// What follows the product.
enum class Activation : uint8_t { kNone, kGeluTanh };

struct FusedMatMulArgs {
  MatMulArgs product;                   // views of device memory
  std::optional<ConstVectorView> bias;  // [c.cols], of C's type
  Activation activation;
  std::span<std::byte> workspace;  // device memory aligned to 256 bytes; 32 MiB serve every shape
};

class CublasLtMatMul {
 public:
  // Errors: kFailedPrecondition when built without CUDA or without the library on this machine;
  // kUnavailable when the library finds no device.
  static absl::StatusOr<std::unique_ptr<CublasLtMatMul>> Create();
  ~CublasLtMatMul();
  CublasLtMatMul(const CublasLtMatMul&) = delete;
  CublasLtMatMul& operator=(const CublasLtMatMul&) = delete;

  // REQUIRES: shapes agree, the depth is positive; no bias or activation when adding to C. Errors:
  // kInvalidArgument for
  // types or alignments that the library has no algorithm for, kInternal for any other failure.
  absl::Status Run(CudaStream stream, const FusedMatMulArgs& args);

 private:
  class Impl;
  explicit CublasLtMatMul(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_MATMUL_CUBLASLT_H_
