// The kernel below is compiled once per instruction set (Highway's foreach_target) and chosen at
// run time. The BUILD file sets -ffp-contract=off: gcc would otherwise fuse Mul and Add into FMA
// where the instruction set has it, and so give each machine its own bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/hybrid_adam.cc"
#include "offload/hybrid_adam.h"

#include <hwy/foreach_target.h>  // includes this file again, once per target
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "offload/elements.h"
#include "offload/elements_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// NaN lanes become one NaN: which operand's payload survives an addition of two NaNs depends on the
// order the compiler puts them in, and the sign of 0 / 0 on the processor.
template <class D>
HWY_INLINE VectorOf<D> CanonicalizeNan(D d, VectorOf<D> value) {
  const auto canonical = hn::BitCast(d, hn::Set(hn::Rebind<uint32_t, D>(), 0x7fc00000u));
  return hn::IfThenElse(hn::IsNaN(value), canonical, value);
}

// Updates whole vectors of elements from `begin` on while they fit before `end`; returns the first
// element not updated. Parameter is void for none.
template <class D, typename Gradient, typename Parameter>
HWY_INLINE int64_t UpdateVectors(D d, const AdamWSlice& slice, const AdamWScalars& scalars,
                                 float gradient_factor, int64_t begin, int64_t end) {
  const auto factor = hn::Set(d, gradient_factor);
  const auto decay = hn::Set(d, scalars.decay);
  const auto beta1 = hn::Set(d, scalars.beta1);
  const auto one_minus_beta1 = hn::Set(d, scalars.one_minus_beta1);
  const auto beta2 = hn::Set(d, scalars.beta2);
  const auto one_minus_beta2 = hn::Set(d, scalars.one_minus_beta2);
  const auto step_size = hn::Set(d, scalars.step_size);
  const auto correction2 = hn::Set(d, scalars.correction2);
  const auto epsilon = hn::Set(d, scalars.epsilon);
  const auto* gradient = static_cast<const Gradient*>(slice.gradient.data);
  [[maybe_unused]] void* const parameter =
      slice.parameter.has_value() ? slice.parameter->data : nullptr;
  float* const master = slice.master.data();
  float* const momentum = slice.momentum.data();
  float* const variance = slice.variance.data();
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    const auto g = hn::Mul(factor, LoadElements(d, gradient + i));
    const auto decayed = hn::Mul(hn::LoadU(d, master + i), decay);
    const auto m = hn::Add(hn::Mul(beta1, hn::LoadU(d, momentum + i)), hn::Mul(one_minus_beta1, g));
    const auto v = hn::Add(hn::Mul(beta2, hn::LoadU(d, variance + i)),
                           hn::Mul(hn::Mul(one_minus_beta2, g), g));
    const auto denominator = hn::Add(hn::Div(hn::Sqrt(v), correction2), epsilon);
    const auto p =
        CanonicalizeNan(d, hn::Sub(decayed, hn::Div(hn::Mul(step_size, m), denominator)));
    hn::StoreU(CanonicalizeNan(d, m), d, momentum + i);
    hn::StoreU(CanonicalizeNan(d, v), d, variance + i);
    hn::StoreU(p, d, master + i);
    if constexpr (!std::is_void_v<Parameter>) {
      StoreElements(d, p, static_cast<Parameter*>(parameter) + i);
    }
  }
  return i;
}

template <typename Gradient, typename Parameter>
HWY_INLINE void UpdateTyped(const AdamWSlice& slice, const AdamWScalars& scalars,
                            float gradient_factor, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> whole;
  const hn::CappedTag<float, 1> single;
  const int64_t rest = UpdateVectors<decltype(whole), Gradient, Parameter>(
      whole, slice, scalars, gradient_factor, begin, end);
  UpdateVectors<decltype(single), Gradient, Parameter>(single, slice, scalars, gradient_factor,
                                                       rest, end);
}

template <typename Gradient>
HWY_INLINE void UpdateFrom(const AdamWSlice& slice, const AdamWScalars& scalars,
                           float gradient_factor, int64_t begin, int64_t end) {
  if (!slice.parameter.has_value()) {
    return UpdateTyped<Gradient, void>(slice, scalars, gradient_factor, begin, end);
  }
  switch (slice.parameter->dtype) {
    case DType::kF32:
      return UpdateTyped<Gradient, float>(slice, scalars, gradient_factor, begin, end);
    case DType::kBF16:
      return UpdateTyped<Gradient, BFloat16>(slice, scalars, gradient_factor, begin, end);
    case DType::kF16:
      return UpdateTyped<Gradient, Float16>(slice, scalars, gradient_factor, begin, end);
  }
}

void UpdateRange(const AdamWSlice& slice, const AdamWScalars& scalars, float gradient_factor,
                 int64_t begin, int64_t end) {
  switch (slice.gradient.dtype) {
    case DType::kF32:
      return UpdateFrom<float>(slice, scalars, gradient_factor, begin, end);
    case DType::kBF16:
      return UpdateFrom<BFloat16>(slice, scalars, gradient_factor, begin, end);
    case DType::kF16:
      return UpdateFrom<Float16>(slice, scalars, gradient_factor, begin, end);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {
namespace {

HWY_EXPORT(UpdateRange);

// 28 bytes an element make 0.9 MB a task: tens of microseconds, against about one to hand it out.
constexpr int64_t kTaskElements = int64_t{32} * 1024;

absl::Status CheckNonNegative(const char* name, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return InvalidArgument("AdamW ", name, " must be finite and not negative, not ", value);
}

absl::Status CheckBeta(const char* name, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return InvalidArgument("AdamW ", name, " must be in [0, 1), not ", value);
}

}  // namespace

absl::Status ValidateAdamW(const AdamWHyper& hyper) {
  GANTRY_RETURN_IF_ERROR(CheckNonNegative("learning_rate", hyper.learning_rate));
  GANTRY_RETURN_IF_ERROR(CheckBeta("beta1", hyper.beta1));
  GANTRY_RETURN_IF_ERROR(CheckBeta("beta2", hyper.beta2));
  GANTRY_RETURN_IF_ERROR(CheckNonNegative("epsilon", hyper.epsilon));
  GANTRY_RETURN_IF_ERROR(CheckNonNegative("weight_decay", hyper.weight_decay));
  if (hyper.step < 1) return InvalidArgument("AdamW step must be at least 1, not ", hyper.step);
  return absl::OkStatus();
}

AdamWScalars ComputeAdamWScalars(const AdamWHyper& hyper) {
  GANTRY_CHECK_OK(ValidateAdamW(hyper));
  const auto step = static_cast<double>(hyper.step);
  const double correction1 = 1.0 - std::pow(hyper.beta1, step);
  const double correction2 = 1.0 - std::pow(hyper.beta2, step);
  return {
      .decay = static_cast<float>(1.0 - hyper.learning_rate * hyper.weight_decay),
      .beta1 = static_cast<float>(hyper.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - hyper.beta1),
      .beta2 = static_cast<float>(hyper.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - hyper.beta2),
      .step_size = static_cast<float>(hyper.learning_rate / correction1),
      .correction2 = static_cast<float>(std::sqrt(correction2)),
      .epsilon = static_cast<float>(hyper.epsilon),
  };
}

void AdamW(const AdamWSlice& slice, const AdamWHyper& hyper, float gradient_factor,
           ThreadTeam* team) {
  GANTRY_CHECK_EQ(slice.momentum.size(), slice.master.size());
  GANTRY_CHECK_EQ(slice.variance.size(), slice.master.size());
  GANTRY_CHECK(team != nullptr);
  if (slice.count() == 0) return;
  GANTRY_CHECK(slice.gradient.data != nullptr);
  GANTRY_CHECK(!slice.parameter.has_value() || slice.parameter->data != nullptr);
  const AdamWScalars scalars = ComputeAdamWScalars(hyper);
  team->For({.count = slice.count(), .grain = kTaskElements}, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(UpdateRange)(slice, scalars, gradient_factor, begin, end);
  });
}

}  // namespace gantry
#endif  // HWY_ONCE
