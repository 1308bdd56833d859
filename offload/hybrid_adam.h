// AdamW on the host: one fused pass over a slice of a chunk reads gradient, master, momentum and
// variance and writes master, momentum, variance and the parameter the device computes with. With
// 16-bit gradients and parameters that is 28 bytes of memory traffic per element.
//
// The arithmetic is torch.optim.AdamW's (decoupled weight decay; no amsgrad), in float, in this
// order, with each operation rounded on its own:
//
//   g  = gradient_factor * gradient
//   p  = p * (1 - lr * weight_decay)
//   m  = (beta1 * m) + ((1 - beta1) * g)
//   v  = (beta2 * v) + (((1 - beta2) * g) * g)
//   p -= ((lr / (1 - beta1^step)) * m) / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)
//
// (torch writes m's line as a lerp, which differs by rounding only.) The scalars are computed in
// double and rounded to float once, and a NaN result is stored as the canonical quiet NaN. So the
// result is the same to the bit on every instruction set, for any team and however a range is split
// over calls. REQUIRES the default floating-point environment (round to nearest, subnormals kept).
//
// Thread-safe: calls over disjoint slices may run at once, on one team too.
#ifndef GANTRY_OFFLOAD_HYBRID_ADAM_H_
#define GANTRY_OFFLOAD_HYBRID_ADAM_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "base/parallel_for.h"
#include "offload/elements.h"

namespace gantry {

struct AdamWHyper {
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
  int64_t step;  // of the update to be made, from 1
};

// Errors: kInvalidArgument naming the field, when learning_rate, epsilon or weight_decay is
// negative or not finite, a beta is outside [0, 1), or step is below 1.
absl::Status ValidateAdamW(const AdamWHyper& hyper);

// What the kernels multiply, add and divide by: computed once per step, here, for every device, so
// that no two devices differ in pow() or sqrt().
struct AdamWScalars {
  float decay;  // 1 - learning_rate * weight_decay
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;    // learning_rate / (1 - beta1^step)
  float correction2;  // sqrt(1 - beta2^step)
  float epsilon;
};

// REQUIRES: ValidateAdamW(hyper).ok().
AdamWScalars ComputeAdamWScalars(const AdamWHyper& hyper);

// The state of `master.size()` consecutive elements. The arrays do not overlap; each is aligned to
// its element.
struct AdamWSlice {
  std::span<float> master;
  std::span<float> momentum;
  std::span<float> variance;          // no lane is negative
  ConstElements gradient;             // as many elements as `master`
  std::optional<Elements> parameter;  // likewise; receives the new master, rounded to nearest even

  int64_t count() const { return static_cast<int64_t>(master.size()); }
};

// Updates the slice in place and returns when all of it is done. `gradient_factor` (clip
// coefficient over loss scale; 1 for neither) multiplies the gradient in the same pass. Gradients
// that are not finite are not skipped: they make the element NaN, so agree on skipping first
// (gradient_norm.h). REQUIRES: ValidateAdamW(hyper).ok(), spans of one size, non-null pointers.
void AdamW(const AdamWSlice& slice, const AdamWHyper& hyper, float gradient_factor,
           ThreadTeam* team);

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_HYBRID_ADAM_H_
