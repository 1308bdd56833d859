// Matrix products on the host: C (+)= A B over f32 and bf16 views, wrapping oneDNN.
//
//   auto matmul = MatMul::Create({});
//   KernelContext context = {.team = team, .matmul = matmul->get()};
//   LinearForward(context, {.x = x, .weight = w, .y = y});      // y = x w^T
//
// Weights are stored [out, in], as in Hugging Face files.
//
// Threads: oneDNN is only ever called single-threaded (its OpenMP team is set to one thread on the
// calling thread for the duration of a call and then restored); the parallelism is ours, one task
// per tile of C on the ThreadTeam. The tiles depend on the shape alone and each element of C is
// summed inside one call, so results are the same bits for any number of threads. They may differ
// in the last bits between CPU generations, whose oneDNN kernels differ.
//
// Precision: products are accumulated in float over all of k, and C is rounded once, also when it
// is bf16 and when adding to it. Error against exact arithmetic: about 1e-7 * sqrt(k) of the
// product of the row's and column's norms, plus one bf16 rounding where C is bf16.
//
// bf16 products use oneDNN's bf16 kernels where the CPU has AVX512-BF16; elsewhere operands are
// converted panel by panel to float and multiplied in float.
//
// Memory: this object keeps compiled primitives (a bounded cache) and one scratch buffer per
// concurrent task, both warm after the first calls of each shape. oneDNN itself allocates small
// packing buffers inside its calls.
//
// Thread-safe: products may run concurrently on one MatMul.
#ifndef GANTRY_KERNELS_MATMUL_H_
#define GANTRY_KERNELS_MATMUL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

enum class Transpose : uint8_t { kNo, kYes };

// C[m, n] (+)= op(A)[m, k] op(B)[k, n]. A and B are f32 or bf16 (they may differ: then the product
// is computed in float), C is f32 or bf16. REQUIRES: shapes agree; C overlaps neither A nor B.
struct MatMulArgs {
  struct Operand {
    ConstMatrixView view;
    Transpose transpose;
  };
  Operand a;
  Operand b;
  MatrixView c;
  Accumulate accumulate;
};

class MatMul {
 public:
  // How bf16 products are computed: kAuto is kNative on CPUs with AVX512-BF16, else kConvert.
  enum class BF16Path : uint8_t { kAuto, kNative, kConvert };
  struct Options {
    BF16Path bf16_path = BF16Path::kAuto;
    int64_t primitives_max = 512;  // compiled bf16 primitives kept; the least recently used go
  };

  // Errors: kFailedPrecondition when kNative is asked for on a CPU without AVX512-BF16,
  // kInvalidArgument for primitives_max < 8, kInternal when oneDNN does not start.
  static absl::StatusOr<std::unique_ptr<MatMul>> Create(Options options);
  ~MatMul();
  MatMul(const MatMul&) = delete;
  MatMul& operator=(const MatMul&) = delete;

  // Never kAuto.
  BF16Path bf16_path() const;
  // True when this CPU can take kNative.
  static bool HasNativeBF16();

  // Errors: kResourceExhausted without memory for scratch or a primitive, kInternal for any other
  // oneDNN failure. C's contents are then unspecified.
  absl::Status Run(ThreadTeam& team, const MatMulArgs& args);

 private:
  class Impl;
  explicit MatMul(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

// context.matmul->Run. REQUIRES: context.matmul is set. Errors: those of MatMul::Run.
absl::Status Multiply(const KernelContext& context, const MatMulArgs& args);

// y[tokens, out] = x[tokens, in] weight[out, in]^T.
struct LinearForwardArgs {
  ConstMatrixView x;
  ConstMatrixView weight;
  MatrixView y;
};
absl::Status LinearForward(const KernelContext& context, const LinearForwardArgs& args);

// grad_x[tokens, in] (+)= grad_y[tokens, out] weight[out, in].
struct LinearBackwardInputArgs {
  ConstMatrixView grad_y;
  ConstMatrixView weight;
  MatrixView grad_x;
  Accumulate accumulate;
};
absl::Status LinearBackwardInput(const KernelContext& context, const LinearBackwardInputArgs& args);

// grad_weight[out, in] (+)= grad_y[tokens, out]^T x[tokens, in].
struct LinearBackwardWeightArgs {
  ConstMatrixView grad_y;
  ConstMatrixView x;
  MatrixView grad_weight;
  Accumulate accumulate;
};
absl::Status LinearBackwardWeight(const KernelContext& context,
                                  const LinearBackwardWeightArgs& args);

}  // namespace gantry

#endif  // GANTRY_KERNELS_MATMUL_H_
