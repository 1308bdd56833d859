// Loads and stores of vectors of float elements, for Highway kernels: included once per dispatch
// target, after <hwy/highway.h> and inside a foreach_target source.
//
// Conversions are integer arithmetic and exact or correctly rounded float additions, so that every
// target gives the bits of base/dtype.h. Highway 1.0's own do not: its conversion to bf16
// truncates, and so does the one to f16 without F16C. NaNs stay NaNs, of any payload.
#if defined(GANTRY_OFFLOAD_ELEMENTS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GANTRY_OFFLOAD_ELEMENTS_SIMD_INL_H_
#undef GANTRY_OFFLOAD_ELEMENTS_SIMD_INL_H_
#else
#define GANTRY_OFFLOAD_ELEMENTS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using VectorOf = hn::Vec<D>;

// D is a tag of float lanes throughout.
template <class D>
HWY_INLINE VectorOf<D> LoadElements(D d, const float* from) {
  return hn::LoadU(d, from);
}

// Loads 16-bit patterns into the low halves of 32-bit lanes.
template <class D>
HWY_INLINE auto LoadBits16(D /*d*/, const void* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  return hn::PromoteTo(d32, hn::LoadU(d16, static_cast<const uint16_t*>(from)));
}

// REQUIRES: every lane of `bits`, a vector of uint32_t, is below 2^16.
template <class D, class V>
HWY_INLINE void StoreBits16(D /*d*/, V bits, void* to) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<int32_t, D> signed32;  // Highway narrows signed lanes only, saturating
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(signed32, bits)), d16, static_cast<uint16_t*>(to));
}

template <class D>
HWY_INLINE VectorOf<D> LoadElements(D d, const BFloat16* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(LoadBits16(d, from)));
}

template <class D>
HWY_INLINE VectorOf<D> LoadElements(D d, const Float16* from) {
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<int32_t, D> signed32;
  const auto half = LoadBits16(d, from);
  const auto magnitude = hn::And(half, hn::Set(d32, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(d32, uint32_t{127 - 15} << 23));
  const auto infinite = hn::Or(shifted, hn::Set(d32, 0x7f800000u));
  // As the mantissa of a float in [2^-14, 2^-13), less 2^-14: exact, and no subnormal is touched.
  const auto base = hn::Set(d32, uint32_t{127 - 14} << 23);
  const auto subnormal =
      hn::BitCast(d32, hn::Sub(hn::BitCast(d, hn::Add(shifted, base)), hn::BitCast(d, base)));
  const auto compared = hn::BitCast(signed32, magnitude);  // non-negative
  const auto is_subnormal = hn::RebindMask(d32, hn::Lt(compared, hn::Set(signed32, 0x0400)));
  const auto is_finite = hn::RebindMask(d32, hn::Lt(compared, hn::Set(signed32, 0x7c00)));
  const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_finite, finite, infinite)));
}

template <class D>
HWY_INLINE void StoreElements(D d, VectorOf<D> value, float* to) {
  hn::StoreU(value, d, to);
}

// REQUIRES: NaN lanes are quiet and have a payload that rounding does not carry out of (the
// canonical NaN, 0x7fc00000, is one).
template <class D>
HWY_INLINE void StoreElements(D d, VectorOf<D> value, BFloat16* to) {
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu)));
  StoreBits16(d, hn::ShiftRight<16>(rounded), to);
}

template <class D>
HWY_INLINE void StoreElements(D d, VectorOf<D> value, Float16* to) {
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<int32_t, D> signed32;
  const auto bits = hn::BitCast(d32, value);
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fffffffu));
  const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  // Ties to even: half a unit less one, plus one if the kept part is odd. A carry out of the
  // mantissa moves into the exponent, which is what rounding up means, also up to infinity.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 1u));
  const auto rebased = hn::Sub(magnitude, hn::Set(d32, uint32_t{127 - 15} << 23));
  const auto normal = hn::ShiftRight<13>(hn::Add(rebased, hn::Add(odd, hn::Set(d32, 0x0fffu))));
  // One unit in the last place of 0.5 is 2^-24, binary16's least subnormal: adding 0.5 rounds.
  const auto half = hn::Set(d32, uint32_t{127 - 1} << 23);
  const auto subnormal =
      hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half))), half);
  const auto compared = hn::BitCast(signed32, magnitude);  // non-negative
  const auto is_subnormal =
      hn::RebindMask(d32, hn::Lt(compared, hn::Set(signed32, (127 - 14) << 23)));
  const auto is_finite = hn::RebindMask(d32, hn::Lt(compared, hn::Set(signed32, (127 + 16) << 23)));
  const auto is_nan = hn::RebindMask(d32, hn::Gt(compared, hn::Set(signed32, 0x7f800000)));
  const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
  const auto other = hn::IfThenElse(is_nan, hn::Set(d32, 0x7e00u), hn::Set(d32, 0x7c00u));
  StoreBits16(d, hn::Or(sign, hn::IfThenElse(is_finite, finite, other)), to);
}

// NaN lanes become one NaN: which operand's payload survives an addition of two NaNs depends on the
// order the compiler puts them in, and the sign of 0 / 0 on the processor.
template <class D>
HWY_INLINE VectorOf<D> CanonicalizeNan(D d, VectorOf<D> value) {
  const auto canonical = hn::BitCast(d, hn::Set(hn::Rebind<uint32_t, D>(), 0x7fc00000u));
  return hn::IfThenElse(hn::IsNaN(value), canonical, value);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#endif  // GANTRY_OFFLOAD_ELEMENTS_SIMD_INL_H_
