// Causal grouped-query attention in double, written from its definition.
#ifndef GANTRY_TRAINER_NN_TESTING_REFERENCE_ATTENTION_H_
#define GANTRY_TRAINER_NN_TESTING_REFERENCE_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace gantry {

// qkv is [batch * tokens, (query_heads + 2 kv_heads) * head_dim]; the result is [batch * tokens,
// query_heads * head_dim]. Queries and keys are rotated by position * frequency, position by
// position of each document; no frequencies: not at all. `documents` as in kernels/attention.h.
struct ReferencePositions {
  std::vector<double> frequencies;  // [head_dim / 2]
  double magnitude = 1.0;           // of cosines and sines
  std::vector<int32_t> documents = {};
};
std::vector<double> ReferenceAttention(std::vector<double> qkv, const AttentionShape& shape,
                                       const ReferencePositions& positions);
// The frequencies without scaling.
std::vector<double> ReferenceFrequencies(double theta, int64_t head_dim);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_TESTING_REFERENCE_ATTENTION_H_
