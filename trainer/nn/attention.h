// Causal self-attention with rotary position embedding as an operator, over the fused output of the
// query, key and value projections.
// Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_ATTENTION_H_
#define GANTRY_TRAINER_NN_ATTENTION_H_

#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/rope.h"
#include "kernels/views.h"
#include "trainer/autograd/tape.h"

namespace gantry {

struct RopeAttentionOptions {
  AttentionShape shape;
  const RopeTable* rope;  // of shape.head_dim, at least shape.tokens positions; outlives the tape
};

// The columns of a fused activation [rows, (query_heads + 2 kv_heads) * head_dim].
template <typename View>
struct QueryKeyValue {
  View query;
  View key;
  View value;
};
template <typename View>
QueryKeyValue<View> SplitQkv(const View& qkv, const AttentionShape& shape) {
  const int64_t query = shape.query_heads * shape.head_dim;
  const int64_t key = shape.kv_heads * shape.head_dim;
  return {.query = qkv.Columns(0, query),
          .key = qkv.Columns(query, key),
          .value = qkv.Columns(query + key, key)};
}

// 1 / sqrt(head_dim).
float AttentionScale(const AttentionShape& shape);

// qkv is [batch * tokens, (query_heads + 2 kv_heads) * head_dim], consumed: queries and keys are
// rotated in place. The result is [batch * tokens, query_heads * head_dim]. Saves the rotated qkv,
// the result and one float per row and query head. REQUIRES: nobody else holds the value of qkv.
// Errors: those of the arena.
absl::StatusOr<Var> RopeAttention(Tape& tape, Var qkv, const RopeAttentionOptions& options);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_ATTENTION_H_
