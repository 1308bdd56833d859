// The tensors of a model and the operators of its forward pass, from its shape. Names, extents and
// biases are those of the checkpoints that the families are published as. Pure functions.
#ifndef GANTRY_PLACEMENT_POLICY_MODEL_STRUCTURE_H_
#define GANTRY_PLACEMENT_POLICY_MODEL_STRUCTURE_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "placement_policy/model_shape.h"

namespace gantry {

// One tensor, as stored in the family's checkpoints.
struct TensorShape {
  std::string name;
  int64_t rows;  // 1 for vectors
  int64_t cols;
  int32_t layer = -1;   // from 0; -1: none
  int32_t expert = -1;  // from 0; -1: none

  int64_t elements() const { return rows * cols; }
};

enum class OperatorKind : uint8_t {
  kEmbedding,        // rows of the tables
  kQueryKeyValue,    // the norm before, the projections, and the norms of queries and keys
  kAttention,        // scores and sums; no tensors
  kAttentionOutput,  // its projection
  kMlpUp,            // the norm before, and gate and up
  kMlpDown,
  kRouter,         // the norm before, and the scores of the experts
  kExperts,        // all experts of a layer
  kSharedExperts,  // what every token visits beside them
  kFinalNorm,
  kHead,  // logits and log-probabilities
};
std::string_view Name(OperatorKind kind);
inline std::ostream& operator<<(std::ostream& out, OperatorKind kind) { return out << Name(kind); }

// A step of the forward pass, with the tensors that it uses.
struct ModelOperator {
  OperatorKind kind;
  int32_t layer;  // -1 for what lies before and behind the layers
  int64_t first_tensor;
  int64_t tensor_count;  // consecutive; 0 for attention
};

// Tensors and operators, both in the order of the forward pass. A tied head uses the first tensor.
// The layers beyond `layers` that some checkpoints carry for predicting several tokens are left
// out.
struct ModelStructure {
  std::vector<TensorShape> tensors;
  std::vector<ModelOperator> operators;
};
// REQUIRES: shape.Validate() is OK.
ModelStructure StructureOf(const ModelShape& shape);
std::vector<TensorShape> TensorsOf(const ModelShape& shape);
// The sum over the tensors, without building them; kModelParametersMax + 1 when there are more.
// REQUIRES: each extent is within its limit.
int64_t ParameterCount(const ModelShape& shape);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_MODEL_STRUCTURE_H_
