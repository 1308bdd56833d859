// Optimizers on the host: one fused pass over a slice of a chunk reads gradient, master and moments
// and writes master, moments and the parameter the device computes with. AdamW with 16-bit
// gradients and parameters moves 28 bytes of memory per element.
//
// The arithmetic is that of torch.optim (and, for Lion, of its paper, arXiv 2302.06675), in float,
// in this order, with each operation rounded on its own; g = gradient_factor * gradient first:
//
//   adamw  p  = p * (1 - lr * weight_decay)
//          m  = (beta1 * m) + ((1 - beta1) * g)
//          v  = (beta2 * v) + (((1 - beta2) * g) * g)
//          p -= ((lr / (1 - beta1^step)) * m) / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)
//   adam   g  = g + weight_decay * p; then as adamw with weight_decay 0
//   sgd    g  = g + weight_decay * p;  m = (beta1 * m) + g;  p -= lr * m
//   lion   c  = (beta1 * m) + ((1 - beta1) * g)
//          p  = p * (1 - lr * weight_decay) - lr * sign(c)
//          m  = (beta2 * m) + ((1 - beta2) * g)
//
// (torch writes Adam's m as a lerp, which differs by rounding only; sgd is without dampening and
// Nesterov's term.) The scalars are computed in double and rounded to float once, and a NaN result
// is stored as the canonical quiet NaN. So the result is the same to the bit on every instruction
// set, for any team and however a range is split over calls. REQUIRES the default floating-point
// environment (round to nearest, subnormals kept).
//
// Adafactor is not elementwise: adafactor.h. States in 8 bits: eight_bit_states.h.
//
// Thread-safe: calls over disjoint slices may run at once, on one team too.
#ifndef GANTRY_OFFLOAD_OPTIMIZER_H_
#define GANTRY_OFFLOAD_OPTIMIZER_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "base/parallel_for.h"
#include "chunk/optimizer_states.h"
#include "offload/elements.h"

namespace gantry {

struct OptimizerHyper {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double learning_rate;
  double beta1 = 0.9;  // sgd: momentum
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  // adam and sgd: added to the gradient; others: decoupled from it
  int64_t step = 1;           // of the update to be made, from 1
};

// Errors: kInvalidArgument naming the field, when learning_rate, epsilon or weight_decay is
// negative or not finite, a beta is outside [0, 1), or step is below 1.
absl::Status ValidateOptimizer(const OptimizerHyper& hyper);

// What the kernels multiply, add and divide by: computed once per step, here, for every device, so
// that no two devices differ in pow() or sqrt().
struct OptimizerScalars {
  OptimizerKind kind;
  float learning_rate;
  float weight_decay;
  float decay;  // 1 - learning_rate * weight_decay
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;    // learning_rate / (1 - beta1^step)
  float correction2;  // sqrt(1 - beta2^step)
  float epsilon;
};

// REQUIRES: ValidateOptimizer(hyper).ok().
OptimizerScalars ComputeScalars(const OptimizerHyper& hyper);

// The state of `count` consecutive elements. The arrays do not overlap; each is aligned to its
// element. Those that the kind or the format does not have are null.
struct OptimizerSlice {
  int64_t count = 0;
  float* master = nullptr;       // null if and only if `low_half` is not
  uint16_t* low_half = nullptr;  // kSplitMaster: `parameter` is bf16, and read as well as written
  float* momentum = nullptr;
  float* variance = nullptr;  // no lane is negative, but for the tie bit of kSplitMaster
  ConstElements gradient;
  std::optional<Elements> parameter;  // receives the new master, rounded to nearest even
};

// Elements [begin, begin + count) of a slice. REQUIRES: inside the slice.
OptimizerSlice PartOf(const OptimizerSlice& slice, int64_t begin, int64_t count);

// Updates the slice in place and returns when all of it is done. `gradient_factor` (clip
// coefficient over loss scale; 1 for neither) multiplies the gradient in the same pass. Gradients
// that are not finite are not skipped: they end in the state, so agree on skipping first
// (gradient_norm.h). REQUIRES: ValidateOptimizer(hyper).ok(), a kind other than adafactor, and the
// arrays that kind and format have.
void UpdateSlice(const OptimizerSlice& slice, const OptimizerHyper& hyper, float gradient_factor,
                 ThreadTeam* team);

// What UpdateSlice does, on the calling thread: for callers that hand out tasks of their own.
void UpdateElements(const OptimizerSlice& slice, const OptimizerScalars& scalars,
                    float gradient_factor);

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_OPTIMIZER_H_
