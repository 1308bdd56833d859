// Attention of new tokens against a cache of the keys and values before them: generation.
// Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_CACHED_ATTENTION_H_
#define GANTRY_TRAINER_NN_CACHED_ATTENTION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/rope.h"
#include "kernels/views.h"
#include "trainer/autograd/tape.h"

namespace gantry {

struct CachedAttentionOptions {
  AttentionShape shape;  // batch 1; tokens: how many are new
  const RopeTable* rope;
  // [capacity, kv_heads * head_dim] in the compute type; rows from `length` on are written.
  MatrixView keys;
  MatrixView values;
  int64_t length;  // tokens in the cache so far
};

// As RopeAttention over the cached tokens and the new ones, for the new ones' rows; adds their keys
// and values to the cache. For evaluation only.
// REQUIRES: length + shape.tokens <= capacity and the positions of the table; nobody else holds the
// value of qkv. Errors: those of the arena.
absl::StatusOr<Var> CachedAttention(Tape& tape, Var qkv, const CachedAttentionOptions& options);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_CACHED_ATTENTION_H_
