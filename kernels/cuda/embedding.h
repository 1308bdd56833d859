// Token embedding on a CUDA device: what kernels/embedding.h computes, with its arguments, whose
// views and spans are of device memory, and the same bits as there: gradients of one row are summed
// in float in the order of their tokens, without atomic operations.
//
// Table, activations and gradients may each be f32, bf16 or f16, any row strides; fastest where
// rows are aligned to 16 bytes. Positions are sorted by token by counting, for each, the ones
// before it: tokens^2 comparisons in shared memory, some 50 microseconds for 32768 tokens.
//
// Each call puts its work on the stream, does not wait, allocates nothing, and returns a cudaError
// (0: none). REQUIRES: token ids are in [0, vocabulary), which nobody checks.
#ifndef GANTRY_KERNELS_CUDA_EMBEDDING_H_
#define GANTRY_KERNELS_CUDA_EMBEDDING_H_

#include "device/cuda/stream.h"
#include "kernels/embedding.h"

namespace gantry::cuda {

int EmbeddingForward(CudaStream stream, const EmbeddingForwardArgs& args);

// The workspace has gantry::EmbeddingBackwardWorkspace(tokens) bytes.
// REQUIRES: fewer than 2^31 tokens.
int EmbeddingBackward(CudaStream stream, const EmbeddingBackwardArgs& args);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_EMBEDDING_H_
