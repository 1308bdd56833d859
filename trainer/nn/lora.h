// Low-rank adapters of linear maps as an operator: LoRA (Hu et al., arXiv 2106.09685) and DoRA (Liu
// et al., arXiv 2402.09353), numerically as PEFT has them. The base's weight W is frozen and its
// output y comes from Linear; what is added is
//
//   LoRA   y + s x' A^T B^T
//   DoRA   y + (g - 1) u + g s x' A^T B^T,   u = x' W^T,   g = m / norms,
//          norms[o] = the L2 norm of row o of W + s B A, which no gradient flows through
//
// where x' = dropout(x) in training and x elsewhere. A is [rank, in], B [out, rank], m [out].
// Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_LORA_H_
#define GANTRY_TRAINER_NN_LORA_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/dropout.h"
#include "trainer/autograd/parameter_lease.h"
#include "trainer/autograd/tape.h"
#include "trainer/nn/linear.h"

namespace gantry {

struct LoraAdapter {
  Parameter a;
  Parameter b;
  std::optional<Parameter> magnitude;  // m, for DoRA
  LinearWeight base;                   // W, frozen, and its bias
  int64_t first_column;                // of the base's output among the columns of y
};

struct LoraOptions {
  int64_t rank;
  float scale;         // s
  double dropout;      // rate in [0, 1); evaluations have none
  uint64_t seed;       // of dropout
  uint32_t step;       // likewise
  uint64_t first_row;  // of x among the rows of the step
};

// x is [rows, in], y [rows, columns], consumed: the adapter's part is added in place. Saves x, the
// rank-wide product, and for DoRA [rows, out] and two floats a column. Dropout draws by the index
// of an element in the step and by A's tensor, so recomputation and the backward pass find the
// same. REQUIRES: nobody else holds the value of y. Errors: those of the store, the arena and the
// multiplication.
absl::StatusOr<Var> AddLora(Tape& tape, const Var& x, Var y, const LoraAdapter& adapter,
                            const LoraOptions& options);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_LORA_H_
