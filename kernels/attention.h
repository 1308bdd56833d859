// Causal grouped-query attention over a batch of equally long sequences:
//
//   out[t] = sum over s <= t of softmax(scale * q[t] . k[s]) v[s],   per head;
//   query head h reads key/value head h / (query_heads / kv_heads).
//
// With a window W only the W keys t - W < s <= t are seen. A sequence may hold several documents
// (packing): a token then sees keys of its own document only. A document's results have the same
// bits wherever it lies.
//
// Never holds a [tokens, tokens] matrix: keys are visited in tiles of 64 with a running maximum and
// sum (flash attention); the forward pass keeps the logarithm of each row's sum of exponentials,
// from which the backward pass recomputes the probabilities tile by tile.
//
// q and out are [batch * tokens, query_heads * head_dim], k and v [batch * tokens, kv_heads *
// head_dim], gradients likewise; all f32 or all bf16, any row strides, so each may be a slice of a
// fused activation. Any number of tokens and any head_dim. Inner products, softmax and sums are in
// float; results are rounded once when stored. Error: about 1e-6 times the largest value (f32) or
// 2^-8 (bf16).
//
// Thread-safe on disjoint outputs; no allocation. Tiles depend on the shape alone and no sum is
// split among tasks: bits do not depend on threads or instruction set.
#ifndef GANTRY_KERNELS_ATTENTION_H_
#define GANTRY_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

struct AttentionShape {
  int64_t batch;
  int64_t tokens;
  int64_t query_heads;  // a multiple of kv_heads
  int64_t kv_heads;
  int64_t head_dim;
  int64_t window = 0;  // keys that a query sees, itself included; 0: all before it

  int64_t group() const { return query_heads / kv_heads; }
};

// Where documents start, as rows of q, ascending; among them the first row of every sequence.
// Empty: each sequence is one document.
using DocumentStarts = std::span<const int32_t>;

struct AttentionForwardArgs {
  AttentionShape shape;
  float scale;  // usually 1 / sqrt(head_dim)
  ConstMatrixView q;
  ConstMatrixView k;
  ConstMatrixView v;
  MatrixView out;                  // may not overlap the inputs
  std::span<float> log_sum_exp;    // [batch, query_heads, tokens]
  std::span<std::byte> workspace;  // aligned as kWorkspaceAlignment says
  DocumentStarts documents = {};
  // Rows that k and v have in front of the first query's own: an earlier part of the sequence, from
  // a cache. Above 0 only with one sequence of one document.
  int64_t cached = 0;
};
// Parallel over batch, key/value heads and tiles of about 128 query rows.
void AttentionForward(const KernelContext& context, const AttentionForwardArgs& args);
// Per thread about 4 * (2 * 128 + 3 * 64) * head_dim bytes, whatever the number of tokens.
Bytes AttentionForwardWorkspace(const AttentionShape& shape, int threads);

// Overwrites the gradients. They may not overlap the inputs.
struct AttentionBackwardArgs {
  AttentionShape shape;
  float scale;
  ConstMatrixView q;
  ConstMatrixView k;
  ConstMatrixView v;
  ConstMatrixView out;
  std::span<const float> log_sum_exp;
  ConstMatrixView grad_out;
  MatrixView grad_q;
  MatrixView grad_k;
  MatrixView grad_v;
  std::span<std::byte> workspace;
  DocumentStarts documents = {};
};
// Parallel over batch and key/value heads.
void AttentionBackward(const KernelContext& context, const AttentionBackwardArgs& args);
// Per thread about 4 * (tokens * group + 2 * 128 + 5 * 64) * head_dim bytes.
Bytes AttentionBackwardWorkspace(const AttentionShape& shape, int threads);

// One new token of one sequence against a cache of keys and values that already holds its own:
// q and out are [1, query_heads * head_dim], k and v [length, kv_heads * head_dim].
// Parallel over key/value heads.
struct AttentionDecodeArgs {
  int64_t query_heads;
  int64_t kv_heads;
  float scale;
  ConstMatrixView q;
  ConstMatrixView k;
  ConstMatrixView v;
  MatrixView out;
  std::span<std::byte> workspace;
};
void AttentionDecode(const KernelContext& context, const AttentionDecodeArgs& args);
// For every length up to `shape.tokens`; shape.batch is ignored. About 4 * kv_heads * tokens
// bytes.
Bytes AttentionDecodeWorkspace(const AttentionShape& shape);

}  // namespace gantry

#endif  // GANTRY_KERNELS_ATTENTION_H_
