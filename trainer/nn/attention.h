// Causal self-attention as an operator, with rotary positions where there are any, over the fused
// output of the query, key and value projections; of several documents a sequence, and with
// windows, as kernels/attention.h says. Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_ATTENTION_H_
#define GANTRY_TRAINER_NN_ATTENTION_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/rope.h"
#include "kernels/views.h"
#include "trainer/autograd/tape.h"

namespace gantry {

struct SelfAttentionOptions {
  AttentionShape shape;
  // Of shape.head_dim, at least shape.tokens positions; outlives the tape. Null: no rotation.
  const RopeTable* rope;
  // Both or neither: where documents start, and each row's position in its own. They stay until the
  // tape's Backward is done.
  DocumentStarts documents = {};
  std::span<const int32_t> positions = {};
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
absl::StatusOr<Var> SelfAttention(Tape& tape, Var qkv, const SelfAttentionOptions& options);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_ATTENTION_H_
