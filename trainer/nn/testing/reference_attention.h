// Rotary causal grouped-query attention in double, written from its definition.
#ifndef GANTRY_TRAINER_NN_TESTING_REFERENCE_ATTENTION_H_
#define GANTRY_TRAINER_NN_TESTING_REFERENCE_ATTENTION_H_

#include <vector>

#include "kernels/attention.h"

namespace gantry {

// qkv is [batch * tokens, (query_heads + 2 kv_heads) * head_dim], not yet rotated; the result is
// [batch * tokens, query_heads * head_dim].
std::vector<double> ReferenceRopeAttention(std::vector<double> qkv, const AttentionShape& shape,
                                           double theta);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_TESTING_REFERENCE_ATTENTION_H_
