// Attention of new tokens against caches of the keys and values before them: generation, of one or
// several sequences at once. Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_CACHED_ATTENTION_H_
#define GANTRY_TRAINER_NN_CACHED_ATTENTION_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/rope.h"
#include "kernels/views.h"
#include "trainer/autograd/tape.h"

namespace gantry {

// What is cached of one sequence, and how many of its tokens are new.
struct CachedSequence {
  int64_t tokens;  // at least 1
  int64_t length;  // tokens in the cache so far
  // [capacity, kv_heads * head_dim] in the compute type; rows from `length` on are written.
  MatrixView keys;
  MatrixView values;
};

struct CachedAttentionOptions {
  AttentionShape shape;                       // batch 1; tokens: new ones of all sequences
  const RopeTable* rope;                      // null: no rotation
  std::span<const CachedSequence> sequences;  // at least one; the rows of qkv in this order
};

// As SelfAttention over each sequence's cached tokens and its new ones, for the new ones' rows;
// adds their keys and values to the caches. Several new tokens of a sequence have the same bits
// however many came before; single ones are computed another way (AttentionDecode). For evaluation
// only. REQUIRES: length + tokens <= capacity and the positions of the table; nobody else holds the
// value of qkv. Errors: those of the arena.
absl::StatusOr<Var> CachedAttention(Tape& tape, Var qkv, const CachedAttentionOptions& options);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_CACHED_ATTENTION_H_
