// Attention over packed documents on a CUDA device, forward and backward, without ever holding a
// matrix of scores (flash attention), on tensor cores (compute capability 8.0 and later):
//
//   out[i] = sum over visible j of softmax(scale * q[i] . k[j]) v[j],   per head and document;
//   query head h reads key/value head h / (query_heads / kv_heads)
//
// Document d is rows starts[d] .. starts[d + 1] - 1. Key j is visible to query i of its document:
// always (kFull), where j <= i (kCausal), and with a window w > 0 only where also j > i - w.
//
// q is [rows, query_heads * key_dim], k [rows, kv_heads * key_dim], v [rows, kv_heads * value_dim],
// out [rows, query_heads * value_dim], gradients likewise; all bf16 or all f16; rows and strides
// aligned to 16 bytes (pointers to 16 bytes, strides multiples of 8), so each may be a slice of a
// fused activation. Dimensions are multiples of 8; padded inside to (64, 64), (128, 128), (192,
// 128) or (256, 256), the smallest that holds (key_dim, value_dim).
//
// Scores, softmax and sums are in float, probabilities and their gradients are rounded to the
// elements' type before the products that use them, results once when stored. Error: about one
// rounding of the largest value, the gradients' three. No atomic operations: each output element is
// summed by one warp in a fixed order, the same bits on every run and whatever else is packed.
//
// Shared memory: at most 84 KiB (forward 66) of a block. All pointers are of device memory. Each
// call puts its work on the stream, does not wait, allocates nothing, and returns a cudaError (0:
// none).
#ifndef GANTRY_KERNELS_CUDA_ATTENTION_H_
#define GANTRY_KERNELS_CUDA_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "device/cuda/stream.h"
#include "kernels/views.h"

namespace gantry::cuda {

enum class AttentionMask : uint8_t { kFull, kCausal };

struct AttentionLayout {
  int64_t query_heads;  // a multiple of kv_heads, at most 65535
  int64_t kv_heads;
  int64_t key_dim;
  int64_t value_dim;
  float scale;  // positive; usually 1 / sqrt(key_dim)
  AttentionMask mask;
  int64_t window;                   // 0: none; else kCausal
  std::span<const int32_t> starts;  // [documents + 1], ascending from 0 to rows; 65535 documents
  int64_t longest;                  // at least the rows of the longest document
};

struct AttentionForwardArgs {
  AttentionLayout layout;
  ConstMatrixView q;
  ConstMatrixView k;
  ConstMatrixView v;
  MatrixView out;                // may not overlap the inputs
  std::span<float> log_sum_exp;  // [query_heads, rows], for the backward pass
};
int AttentionForward(CudaStream stream, const AttentionForwardArgs& args);

// Overwrites the gradients, which may not overlap the inputs.
struct AttentionBackwardArgs {
  AttentionLayout layout;
  ConstMatrixView q;
  ConstMatrixView k;
  ConstMatrixView v;
  ConstMatrixView out;
  std::span<const float> log_sum_exp;
  ConstMatrixView grad_out;
  MatrixView grad_q;
  MatrixView grad_k;
  MatrixView grad_v;
  std::span<std::byte> workspace;  // aligned to 16 bytes
};
int AttentionBackward(CudaStream stream, const AttentionBackwardArgs& args);
// 4 bytes a row and query head.
Bytes AttentionBackwardWorkspace(int64_t rows, int64_t query_heads);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ATTENTION_H_
