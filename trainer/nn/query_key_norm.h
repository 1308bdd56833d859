// Root-mean-square norms of each query head and each key head as an operator, over the fused output
// of the query, key and value projections and before their rotation: Qwen3's.
// Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_QUERY_KEY_NORM_H_
#define GANTRY_TRAINER_NN_QUERY_KEY_NORM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "trainer/autograd/tape.h"
#include "trainer/nn/rms_norm.h"

namespace gantry {

struct QueryKeyNormOptions {
  int64_t query_heads;
  int64_t kv_heads;
  int64_t head_dim;
  RmsNormWeight query;  // [head_dim], of all query heads
  RmsNormWeight key;    // [head_dim], of all key heads
};

// qkv is [rows, (query_heads + 2 kv_heads) * head_dim], consumed: queries and keys are normed in
// place. Saves both as they were, and a float a row and head. REQUIRES: nobody else holds the value
// of qkv. Errors: those of the store and the arena.
absl::StatusOr<Var> QueryKeyNorm(Tape& tape, Var qkv, const QueryKeyNormOptions& options);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_QUERY_KEY_NORM_H_
