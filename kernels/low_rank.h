// A weight with a low-rank change, W + s B A, and what DoRA (Liu et al., arXiv 2402.09353) makes of
// it: rows keep a magnitude of their own, whatever the change does to their length,
//
//   W' = diag(m / norms) (W + s B A),   norms[o] = the L2 norm of row o of W + s B A
//
// W is [out, in], A [rank, in], B [out, rank]; f32 or bf16 each, any row strides. B A is a product
// of kernels/matmul.h in float; sums of squares run in float over sixteen lanes in a fixed order.
// Thread-safe on disjoint outputs; allocates nothing itself (see matmul.h). Bits do not depend on
// threads.
#ifndef GANTRY_KERNELS_LOW_RANK_H_
#define GANTRY_KERNELS_LOW_RANK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

struct LowRankChange {
  ConstMatrixView a;  // [rank, in]
  ConstMatrixView b;  // [out, rank]
  float scale;        // s
};

// Errors: those of MatMul::Run.
struct RowNormsArgs {
  ConstMatrixView weight;
  LowRankChange change;
  std::span<float> norms;          // [out]
  std::span<std::byte> workspace;  // aligned as kWorkspaceAlignment says
};
absl::Status RowNorms(const KernelContext& context, const RowNormsArgs& args);

// weight = W + s B A, or W' where there are magnitudes; in place, summed in float and rounded once.
struct MergeLowRankArgs {
  MatrixView weight;
  LowRankChange change;
  std::optional<ConstVectorView> magnitude;  // m, [out]
  std::span<std::byte> workspace;
};
absl::Status MergeLowRank(const KernelContext& context, const MergeLowRankArgs& args);

// Of both: at most 128 rows of floats. `weight` is [out, in].
Bytes LowRankWorkspace(MatrixShape weight);

}  // namespace gantry

#endif  // GANTRY_KERNELS_LOW_RANK_H_
