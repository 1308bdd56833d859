// The kernel below is compiled once per instruction set (Highway's foreach_target) and chosen at
// run time. The BUILD file sets -ffp-contract=off: gcc would otherwise fuse Mul and Add into FMA
// where the instruction set has it, and so give each machine its own bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/optimizer.cc"
// The rules hold vectors as members, which scalable vectors do not allow.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include "offload/optimizer.h"

#include <hwy/foreach_target.h>  // includes this file again, once per target
#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/optimizer_states.h"
#include "offload/elements.h"
#include "offload/elements_simd-inl.h"
#include "offload/optimizer_rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// Where the new master is written beside the f32 master: nowhere (void), to an element type, or to
// a bf16 parameter and a low half that replace the f32 master.
struct SplitBFloat16 {};

// split_master.h's JoinMaster. Takes the tie bit out of `variance`.
template <class D>
HWY_INLINE VectorOf<D> LoadSplitMaster(D d, const BFloat16* parameter, const uint16_t* low_half,
                                       VectorOf<D>& variance) {
  const hn::Rebind<uint32_t, D> d32;
  const auto stored = hn::BitCast(d32, variance);
  const auto tie_up = hn::ShiftRight<31>(stored);
  variance = hn::BitCast(d, hn::And(stored, hn::Set(d32, 0x7fffffffu)));
  const auto low = LoadBits16(d, low_half);
  const auto rounded_up = hn::ShiftRight<16>(hn::Add(hn::Add(low, tie_up), hn::Set(d32, 0x7fffu)));
  const auto high = hn::Sub(LoadBits16(d, parameter), rounded_up);
  return hn::BitCast(d, hn::Or(hn::ShiftLeft<16>(high), low));
}

// split_master.h's SplitMaster. Puts the tie bit into `variance`. REQUIRES: canonical NaNs.
template <class D>
HWY_INLINE void StoreSplitMaster(D d, VectorOf<D> master, BFloat16* parameter, uint16_t* low_half,
                                 VectorOf<D>& variance) {
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, master);
  const auto tie = hn::Eq(hn::And(bits, hn::Set(d32, 0x1ffffu)), hn::Set(d32, 0x18000u));
  const auto tie_up = hn::IfThenElseZero(tie, hn::Set(d32, 0x80000000u));
  variance = hn::BitCast(d, hn::Or(hn::BitCast(d32, variance), tie_up));
  StoreBits16(d, hn::And(bits, hn::Set(d32, 0xffffu)), low_half);
  StoreElements(d, master, parameter);
}

// Updates whole vectors of elements from `begin` on while they fit before `end`; returns the first
// element not updated.
template <class D, template <class> class Rule, typename Gradient, typename Parameter>
HWY_INLINE int64_t UpdateVectors(D d, const OptimizerSlice& slice, const OptimizerScalars& scalars,
                                 float gradient_factor, int64_t begin, int64_t end) {
  constexpr bool kSplit = std::is_same_v<Parameter, SplitBFloat16>;
  constexpr bool kHasVariance = Rule<D>::kHasVariance;
  const Rule<D> rule(d, scalars);
  const auto factor = hn::Set(d, gradient_factor);
  const auto* gradient = static_cast<const Gradient*>(slice.gradient.data);
  float* const master = slice.master;
  float* const momentum = slice.momentum;
  float* const variance = slice.variance;
  [[maybe_unused]] uint16_t* const low_half = slice.low_half;
  [[maybe_unused]] void* const parameter =
      slice.parameter.has_value() ? slice.parameter->data : nullptr;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    const auto g = hn::Mul(factor, LoadElements(d, gradient + i));
    auto m = hn::LoadU(d, momentum + i);
    auto v = hn::Zero(d);
    if constexpr (kHasVariance) v = hn::LoadU(d, variance + i);
    auto p = hn::Zero(d);
    if constexpr (kSplit) {
      p = LoadSplitMaster(d, static_cast<const BFloat16*>(parameter) + i, low_half + i, v);
    } else {
      p = hn::LoadU(d, master + i);
    }
    rule.Apply(g, p, m, v);
    p = CanonicalizeNan(d, p);
    v = CanonicalizeNan(d, v);
    hn::StoreU(CanonicalizeNan(d, m), d, momentum + i);
    if constexpr (kSplit) {
      StoreSplitMaster(d, p, static_cast<BFloat16*>(parameter) + i, low_half + i, v);
    } else {
      hn::StoreU(p, d, master + i);
      if constexpr (!std::is_void_v<Parameter>) {
        StoreElements(d, p, static_cast<Parameter*>(parameter) + i);
      }
    }
    if constexpr (kHasVariance) hn::StoreU(v, d, variance + i);
  }
  return i;
}

template <template <class> class Rule, typename Gradient, typename Parameter>
HWY_NOINLINE void UpdateTyped(const OptimizerSlice& slice, const OptimizerScalars& scalars,
                              float gradient_factor, int64_t begin, int64_t end) {
  using Whole = hn::ScalableTag<float>;
  using Single = hn::CappedTag<float, 1>;
  const int64_t rest = UpdateVectors<Whole, Rule, Gradient, Parameter>(Whole(), slice, scalars,
                                                                       gradient_factor, begin, end);
  UpdateVectors<Single, Rule, Gradient, Parameter>(Single(), slice, scalars, gradient_factor, rest,
                                                   end);
}

template <template <class> class Rule, typename Gradient>
HWY_INLINE void UpdateFrom(const OptimizerSlice& slice, const OptimizerScalars& scalars,
                           float gradient_factor, int64_t begin, int64_t end) {
  if constexpr (Rule<hn::CappedTag<float, 1>>::kHasVariance) {
    if (slice.low_half != nullptr) {
      return UpdateTyped<Rule, Gradient, SplitBFloat16>(slice, scalars, gradient_factor, begin,
                                                        end);
    }
  }
  if (!slice.parameter.has_value()) {
    return UpdateTyped<Rule, Gradient, void>(slice, scalars, gradient_factor, begin, end);
  }
  switch (slice.parameter->dtype) {
    case DType::kF32:
      return UpdateTyped<Rule, Gradient, float>(slice, scalars, gradient_factor, begin, end);
    case DType::kBF16:
      return UpdateTyped<Rule, Gradient, BFloat16>(slice, scalars, gradient_factor, begin, end);
    case DType::kF16:
      return UpdateTyped<Rule, Gradient, Float16>(slice, scalars, gradient_factor, begin, end);
  }
}

template <template <class> class Rule>
HWY_INLINE void UpdateBy(const OptimizerSlice& slice, const OptimizerScalars& scalars,
                         float gradient_factor, int64_t begin, int64_t end) {
  switch (slice.gradient.dtype) {
    case DType::kF32:
      return UpdateFrom<Rule, float>(slice, scalars, gradient_factor, begin, end);
    case DType::kBF16:
      return UpdateFrom<Rule, BFloat16>(slice, scalars, gradient_factor, begin, end);
    case DType::kF16:
      return UpdateFrom<Rule, Float16>(slice, scalars, gradient_factor, begin, end);
  }
}

void UpdateRange(const OptimizerSlice& slice, const OptimizerScalars& scalars,
                 float gradient_factor, int64_t begin, int64_t end) {
  switch (scalars.kind) {
    case OptimizerKind::kAdamW:
      return UpdateBy<AdamWRule>(slice, scalars, gradient_factor, begin, end);
    case OptimizerKind::kAdam:
      return UpdateBy<AdamRule>(slice, scalars, gradient_factor, begin, end);
    case OptimizerKind::kSgd:
      return UpdateBy<SgdRule>(slice, scalars, gradient_factor, begin, end);
    case OptimizerKind::kLion:
      return UpdateBy<LionRule>(slice, scalars, gradient_factor, begin, end);
    case OptimizerKind::kAdafactor:
      return;  // CheckSlice refused it
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

absl::Status CheckNonNegative(OptimizerKind kind, std::string_view name, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return InvalidArgument(Name(kind), " ", name, " must be finite and not negative, not ", value);
}

absl::Status CheckBeta(OptimizerKind kind, std::string_view name, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return InvalidArgument(Name(kind), " ", name, " must be in [0, 1), not ", value);
}

void CheckSlice(const OptimizerSlice& slice, OptimizerKind kind) {
  GANTRY_CHECK(kind != OptimizerKind::kAdafactor) << "adafactor is not elementwise";
  GANTRY_CHECK_GE(slice.count, 0);
  if (slice.count == 0) return;
  const OptimizerStates states = StatesOf(kind);
  GANTRY_CHECK(slice.gradient.data != nullptr);
  GANTRY_CHECK(!slice.parameter.has_value() || slice.parameter->data != nullptr);
  GANTRY_CHECK_EQ(slice.momentum != nullptr, states.momentum);
  GANTRY_CHECK_EQ(slice.variance != nullptr, states.variance);
  GANTRY_CHECK((slice.master == nullptr) != (slice.low_half == nullptr));
  if (slice.low_half == nullptr) return;
  GANTRY_CHECK(states.variance) << Name(kind) << " has no variance to hold the tie bit";
  GANTRY_CHECK(slice.parameter.has_value() && slice.parameter->dtype == DType::kBF16);
}

}  // namespace

absl::Status ValidateOptimizer(const OptimizerHyper& hyper) {
  const OptimizerKind kind = hyper.kind;
  GANTRY_RETURN_IF_ERROR(CheckNonNegative(kind, "learning_rate", hyper.learning_rate));
  GANTRY_RETURN_IF_ERROR(CheckBeta(kind, "beta1", hyper.beta1));
  GANTRY_RETURN_IF_ERROR(CheckBeta(kind, "beta2", hyper.beta2));
  GANTRY_RETURN_IF_ERROR(CheckNonNegative(kind, "epsilon", hyper.epsilon));
  GANTRY_RETURN_IF_ERROR(CheckNonNegative(kind, "weight_decay", hyper.weight_decay));
  if (hyper.step >= 1) return absl::OkStatus();
  return InvalidArgument(Name(kind), " step must be at least 1, not ", hyper.step);
}

OptimizerScalars ComputeScalars(const OptimizerHyper& hyper) {
  GANTRY_CHECK_OK(ValidateOptimizer(hyper));
  const auto step = static_cast<double>(hyper.step);
  const double correction1 = 1.0 - std::pow(hyper.beta1, step);
  const double correction2 = 1.0 - std::pow(hyper.beta2, step);
  return {
      .kind = hyper.kind,
      .learning_rate = static_cast<float>(hyper.learning_rate),
      .weight_decay = static_cast<float>(hyper.weight_decay),
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

OptimizerSlice PartOf(const OptimizerSlice& slice, int64_t begin, int64_t count) {
  GANTRY_CHECK(begin >= 0 && count >= 0 && count <= slice.count - begin);
  OptimizerSlice part = slice;
  part.count = count;
  if (part.master != nullptr) part.master += begin;
  if (part.low_half != nullptr) part.low_half += begin;
  if (part.momentum != nullptr) part.momentum += begin;
  if (part.variance != nullptr) part.variance += begin;
  part.gradient.data =
      static_cast<const std::byte*>(part.gradient.data) + begin * SizeOf(part.gradient.dtype);
  if (part.parameter.has_value()) {
    part.parameter->data =
        static_cast<std::byte*>(part.parameter->data) + begin * SizeOf(part.parameter->dtype);
  }
  return part;
}

void UpdateSlice(const OptimizerSlice& slice, const OptimizerHyper& hyper, float gradient_factor,
                 ThreadTeam* team) {
  CheckSlice(slice, hyper.kind);
  GANTRY_CHECK(team != nullptr);
  const OptimizerScalars scalars = ComputeScalars(hyper);
  team->For({.count = slice.count, .grain = kTaskElements}, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(UpdateRange)(slice, scalars, gradient_factor, begin, end);
  });
}

void UpdateElements(const OptimizerSlice& slice, const OptimizerScalars& scalars,
                    float gradient_factor) {
  CheckSlice(slice, scalars.kind);
  HWY_DYNAMIC_DISPATCH(UpdateRange)(slice, scalars, gradient_factor, 0, slice.count);
}

}  // namespace gantry
#endif  // HWY_ONCE
