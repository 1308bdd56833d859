// Linear maps as an operator: y = x W^T + b, with one or several weights over the same input whose
// outputs lie side by side. Several weights (query, key and value; gate and up) share one lease,
// one saved input and one output. Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_LINEAR_H_
#define GANTRY_TRAINER_NN_LINEAR_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "gemini/parameter_store.h"
#include "trainer/autograd/parameter_lease.h"
#include "trainer/autograd/tape.h"

namespace gantry {

// [out_features, in_features] in memory, as in Hugging Face files; in_features is the input's
// width.
struct LinearWeight {
  Parameter parameter;
  int64_t out_features;
  std::optional<Parameter> bias = std::nullopt;  // [out_features]
};

struct LinearWeights {
  std::string_view name;                  // in traces and errors; a literal
  std::span<const LinearWeight> weights;  // with biases 1 .. Lease::kTensorsMax different tensors
};

// [rows, sum of out_features] in the compute type; the product and the bias are summed in float and
// rounded once. The input is saved when any weight is trainable. A bias's gradient is the sum of
// the output's over the rows, in the order that kernels/column_sums.h says. Errors: those of the
// store, the arena and the matrix multiplication.
absl::StatusOr<Var> Linear(Tape& tape, const Var& x, const LinearWeights& weights);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_LINEAR_H_
