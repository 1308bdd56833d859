// Token embedding: rows of a [vocabulary, channels] table gathered by token id, and the scatter-add
// of their gradients.
//
// The table, the activations and the gradient may each be f32 or bf16. Gradients of one row are
// summed in float in the order of their tokens and rounded once, so bits do not depend on threads
// or instruction set. REQUIRES: token ids are in [0, vocabulary).
// Thread-safe on disjoint outputs; no allocation.
#ifndef GANTRY_KERNELS_EMBEDDING_H_
#define GANTRY_KERNELS_EMBEDDING_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

// embedded[n, :] = table[tokens[n], :].
struct EmbeddingForwardArgs {
  std::span<const int32_t> tokens;  // [N]
  ConstMatrixView table;            // [vocabulary, channels]
  MatrixView embedded;              // [N, channels]
};
void EmbeddingForward(const KernelContext& context, const EmbeddingForwardArgs& args);

// grad_table[v, :] (+)= sum over n with tokens[n] = v of grad_embedded[n, :]. kOverwrite also zeros
// the rows of tokens that do not occur.
struct EmbeddingBackwardArgs {
  std::span<const int32_t> tokens;
  ConstMatrixView grad_embedded;  // [N, channels]
  MatrixView grad_table;          // [vocabulary, channels]
  Accumulate accumulate;
  std::span<std::byte> workspace;  // aligned as kWorkspaceAlignment says
};
void EmbeddingBackward(const KernelContext& context, const EmbeddingBackwardArgs& args);

// Eight bytes a token.
Bytes EmbeddingBackwardWorkspace(int64_t tokens);

}  // namespace gantry

#endif  // GANTRY_KERNELS_EMBEDDING_H_
