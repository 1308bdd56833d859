// The elementwise optimizer rules on vectors of float elements, for Highway kernels: included once
// per dispatch target, inside a foreach_target source that is built with -ffp-contract=off. The
// arithmetic is that of optimizer.h.
//
// A rule is constructed from the step's scalars and updates one vector of elements: master `p`,
// momentum `m` and, where it has one, variance `v`. `g` carries the gradient factor already.
#if defined(GANTRY_OFFLOAD_OPTIMIZER_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GANTRY_OFFLOAD_OPTIMIZER_RULES_INL_H_
#undef GANTRY_OFFLOAD_OPTIMIZER_RULES_INL_H_
#else
#define GANTRY_OFFLOAD_OPTIMIZER_RULES_INL_H_
#endif

#include <hwy/highway.h>

#include "offload/elements_simd-inl.h"
#include "offload/optimizer.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// What Adam and AdamW share: the moments and the bias-corrected step.
template <class D>
struct AdamStep {
  using V = VectorOf<D>;
  V beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, correction2, epsilon;

  HWY_INLINE AdamStep(D d, const OptimizerScalars& scalars)
      : beta1(hn::Set(d, scalars.beta1)),
        one_minus_beta1(hn::Set(d, scalars.one_minus_beta1)),
        beta2(hn::Set(d, scalars.beta2)),
        one_minus_beta2(hn::Set(d, scalars.one_minus_beta2)),
        step_size(hn::Set(d, scalars.step_size)),
        correction2(hn::Set(d, scalars.correction2)),
        epsilon(hn::Set(d, scalars.epsilon)) {}

  HWY_INLINE void Apply(V g, V& p, V& m, V& v) const {
    m = hn::Add(hn::Mul(beta1, m), hn::Mul(one_minus_beta1, g));
    v = hn::Add(hn::Mul(beta2, v), hn::Mul(hn::Mul(one_minus_beta2, g), g));
    const V denominator = hn::Add(hn::Div(hn::Sqrt(v), correction2), epsilon);
    p = hn::Sub(p, hn::Div(hn::Mul(step_size, m), denominator));
  }
};

template <class D>
struct AdamWRule {
  using V = VectorOf<D>;
  static constexpr bool kHasVariance = true;
  AdamStep<D> step;
  V decay;

  HWY_INLINE AdamWRule(D d, const OptimizerScalars& scalars)
      : step(d, scalars), decay(hn::Set(d, scalars.decay)) {}

  HWY_INLINE void Apply(V g, V& p, V& m, V& v) const {
    p = hn::Mul(p, decay);
    step.Apply(g, p, m, v);
  }
};

template <class D>
struct AdamRule {
  using V = VectorOf<D>;
  static constexpr bool kHasVariance = true;
  AdamStep<D> step;
  V weight_decay;

  HWY_INLINE AdamRule(D d, const OptimizerScalars& scalars)
      : step(d, scalars), weight_decay(hn::Set(d, scalars.weight_decay)) {}

  HWY_INLINE void Apply(V g, V& p, V& m, V& v) const {
    step.Apply(hn::Add(g, hn::Mul(weight_decay, p)), p, m, v);
  }
};

template <class D>
struct SgdRule {
  using V = VectorOf<D>;
  static constexpr bool kHasVariance = false;
  V momentum, learning_rate, weight_decay;

  HWY_INLINE SgdRule(D d, const OptimizerScalars& scalars)
      : momentum(hn::Set(d, scalars.beta1)),
        learning_rate(hn::Set(d, scalars.learning_rate)),
        weight_decay(hn::Set(d, scalars.weight_decay)) {}

  HWY_INLINE void Apply(V g, V& p, V& m, V& /*v*/) const {
    m = hn::Add(hn::Mul(momentum, m), hn::Add(g, hn::Mul(weight_decay, p)));
    p = hn::Sub(p, hn::Mul(learning_rate, m));
  }
};

template <class D>
struct LionRule {
  using V = VectorOf<D>;
  static constexpr bool kHasVariance = false;
  V decay, learning_rate, beta1, one_minus_beta1, beta2, one_minus_beta2, one, zero;

  HWY_INLINE LionRule(D d, const OptimizerScalars& scalars)
      : decay(hn::Set(d, scalars.decay)),
        learning_rate(hn::Set(d, scalars.learning_rate)),
        beta1(hn::Set(d, scalars.beta1)),
        one_minus_beta1(hn::Set(d, scalars.one_minus_beta1)),
        beta2(hn::Set(d, scalars.beta2)),
        one_minus_beta2(hn::Set(d, scalars.one_minus_beta2)),
        one(hn::Set(d, 1.0f)),
        zero(hn::Zero(d)) {}

  HWY_INLINE void Apply(V g, V& p, V& m, V& /*v*/) const {
    const V c = hn::Add(hn::Mul(beta1, m), hn::Mul(one_minus_beta1, g));
    // Zero and NaN stay what they are: a NaN must show in the parameter.
    const V negative = hn::IfThenElse(hn::Lt(c, zero), hn::Neg(one), c);
    const V sign = hn::IfThenElse(hn::Gt(c, zero), one, negative);
    p = hn::Sub(hn::Mul(p, decay), hn::Mul(learning_rate, sign));
    m = hn::Add(hn::Mul(beta2, m), hn::Mul(one_minus_beta2, g));
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#endif  // GANTRY_OFFLOAD_OPTIMIZER_RULES_INL_H_
