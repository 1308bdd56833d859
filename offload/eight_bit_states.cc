// The kernels below are compiled once per instruction set (Highway's foreach_target) and chosen at
// run time; -ffp-contract=off keeps multiplication and addition two roundings on each.
//
// Codes are not sorted by value, as bitsandbytes' are, but made so that they can be computed. A
// positive code m with leading bit 2^e is the (m - 2^e)-th of the 2^e values in its decade, so the
// mantissa of m + 0.5, M in [1, 2), is the value's place: 10^(k-6) * (0.1 + 0.9 * (M - 1)), with
// k = e for the signed map and e - 1 for the unsigned one.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/eight_bit_states.cc"
#include "offload/eight_bit_states.h"

#include <hwy/foreach_target.h>  // includes this file again, once per target
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/parallel_for.h"
#include "chunk/optimizer_states.h"
#include "offload/elements_simd-inl.h"
#include "offload/optimizer.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

constexpr int kDecades = 7;
constexpr double kPowers[kDecades] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0};

// A dynamic map's positive values. The least decade has 2^kFirstExponent of them.
template <int kFirst>
struct DynamicMap {
  static constexpr int kFirstExponent = kFirst;
  static constexpr double HalfStep(int k) { return 0.45 / (1 << (k + kFirst)); }
  static constexpr double Least(int k) { return kPowers[k] * (0.1 + HalfStep(k)); }
  static constexpr double Greatest(int k) { return kPowers[k] * (1.0 - HalfStep(k)); }
  // Values from here on belong to decade k rather than to the one below.
  static constexpr float Threshold(int k) {
    return static_cast<float>((Greatest(k - 1) + Least(k)) / 2);
  }
  static constexpr float kZeroBelow = static_cast<float>(Least(0) / 2);
  static constexpr float kOneAbove = static_cast<float>((Greatest(kDecades - 1) + 1.0) / 2);
};
using SignedMap = DynamicMap<0>;    // codes 1 to 127, sign 0x80; 0x00 is zero, 0x80 one
using UnsignedMap = DynamicMap<1>;  // codes 2 to 255; 0x00 is zero, 0x01 one

// The values of positive codes. Lanes with a code below 2^kFirstExponent are unspecified.
template <class Map, class D, class Codes>
HWY_INLINE VectorOf<D> ValuesOf(D d, Codes codes) {
  const hn::Rebind<int32_t, D> signed32;
  const auto place = hn::Add(hn::ConvertTo(d, hn::BitCast(signed32, codes)), hn::Set(d, 0.5f));
  auto power = hn::Set(d, static_cast<float>(kPowers[0]));
#pragma GCC unroll 8
  for (int k = 1; k < kDecades; ++k) {
    const auto reached =
        hn::Ge(place, hn::Set(d, static_cast<float>(1 << (k + Map::kFirstExponent))));
    power = hn::IfThenElse(reached, hn::Set(d, static_cast<float>(kPowers[k])), power);
  }
  const auto mantissa = hn::And(hn::BitCast(signed32, place), hn::Set(signed32, 0x007fffff));
  const auto unit = hn::BitCast(d, hn::Or(mantissa, hn::Set(signed32, 0x3f800000)));
  const auto fraction = hn::Sub(unit, hn::Set(d, 1.0f));
  return hn::Mul(power, hn::Add(hn::Mul(fraction, hn::Set(d, 0.9f)), hn::Set(d, 0.1f)));
}

// The positive codes, as int32_t, nearest to values in [0, 1]: at least the least code, and the
// greatest for whatever is above.
template <class Map, class D>
HWY_INLINE auto CodesOf(D d, VectorOf<D> value) {
  const hn::Rebind<int32_t, D> signed32;
  auto first = hn::Set(d, static_cast<float>(1 << Map::kFirstExponent));
  auto inverse = hn::Set(d, static_cast<float>(1.0 / (0.9 * kPowers[0])));
#pragma GCC unroll 8
  for (int k = 1; k < kDecades; ++k) {
    const auto reached = hn::Ge(value, hn::Set(d, Map::Threshold(k)));
    first = hn::IfThenElse(reached, hn::Set(d, static_cast<float>(1 << (k + Map::kFirstExponent))),
                           first);
    inverse =
        hn::IfThenElse(reached, hn::Set(d, static_cast<float>(1.0 / (0.9 * kPowers[k]))), inverse);
  }
  const auto unit = hn::Add(hn::Mul(value, inverse), hn::Set(d, static_cast<float>(0.8 / 0.9)));
  const auto last = hn::Sub(hn::Add(first, first), hn::Set(d, 1.0f));
  const auto place = hn::Min(hn::Max(hn::Mul(unit, first), first), last);
  return hn::ConvertTo(signed32, place);
}

// Bytes of codes in the low 8 bits of each lane to moments. A zero stays zero beside any scale.
template <class D, class Bytes>
HWY_INLINE VectorOf<D> DecodeMomentum(D d, Bytes bytes, VectorOf<D> scale) {
  const hn::Rebind<uint32_t, D> d32;
  const auto magnitude = hn::And(bytes, hn::Set(d32, 0x7fu));
  const auto sign = hn::BitCast(d, hn::ShiftLeft<24>(hn::Xor(bytes, magnitude)));
  const auto value = hn::Or(ValuesOf<SignedMap>(d, magnitude), sign);
  const auto is_zero = hn::RebindMask(d, hn::Eq(bytes, hn::Zero(d32)));
  const auto is_one = hn::RebindMask(d, hn::Eq(bytes, hn::Set(d32, 0x80u)));
  return hn::IfThenZeroElse(is_zero, hn::IfThenElse(is_one, scale, hn::Mul(value, scale)));
}
template <class D, class Bytes>
HWY_INLINE VectorOf<D> DecodeVariance(D d, Bytes bytes, VectorOf<D> scale) {
  const hn::Rebind<uint32_t, D> d32;
  const auto is_zero = hn::RebindMask(d, hn::Eq(bytes, hn::Zero(d32)));
  const auto is_one = hn::RebindMask(d, hn::Eq(bytes, hn::Set(d32, 1u)));
  const auto product = hn::Mul(ValuesOf<UnsignedMap>(d, bytes), scale);
  return hn::IfThenZeroElse(is_zero, hn::IfThenElse(is_one, scale, product));
}

// Moments, and the reciprocal of their scale, to bytes of codes.
template <class D>
HWY_INLINE auto EncodeMomentum(D d, VectorOf<D> momentum, VectorOf<D> inverse) {
  const hn::Rebind<uint32_t, D> d32;
  const auto value = hn::Mul(momentum, inverse);
  const auto bits = hn::BitCast(d32, value);
  const auto magnitude_bits = hn::And(bits, hn::Set(d32, 0x7fffffffu));
  const auto magnitude = hn::BitCast(d, magnitude_bits);
  const auto sign = hn::ShiftRight<24>(hn::Xor(bits, magnitude_bits));
  const auto code = hn::Or(hn::BitCast(d32, CodesOf<SignedMap>(d, magnitude)), sign);
  const auto is_zero = hn::RebindMask(d32, hn::Lt(magnitude, hn::Set(d, SignedMap::kZeroBelow)));
  const auto is_one = hn::RebindMask(d32, hn::Gt(value, hn::Set(d, SignedMap::kOneAbove)));
  return hn::IfThenZeroElse(is_zero, hn::IfThenElse(is_one, hn::Set(d32, 0x80u), code));
}
// Tells zeros by the variance itself: its quotient may vanish.
template <class D>
HWY_INLINE auto EncodeVariance(D d, VectorOf<D> variance, VectorOf<D> inverse) {
  const hn::Rebind<uint32_t, D> d32;
  const auto value = hn::Mul(variance, inverse);
  const auto code = hn::BitCast(d32, CodesOf<UnsignedMap>(d, value));
  const auto is_zero = hn::RebindMask(d32, hn::Eq(variance, hn::Zero(d)));
  const auto is_one = hn::RebindMask(d32, hn::Gt(value, hn::Set(d, UnsignedMap::kOneAbove)));
  return hn::IfThenZeroElse(is_zero, hn::IfThenElse(is_one, hn::Set(d32, 1u), code));
}

void Decode(const uint8_t* codes, EightBitScales scales, float* momentum, float* variance) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint32_t, decltype(d)> d32;
  const auto momentum_scale = hn::Set(d, scales.momentum);
  const auto variance_scale = hn::Set(d, scales.variance);
  for (int64_t i = 0; i < kQuantizationBlockElements; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto pairs = LoadBits16(d, codes + 2 * i);
    const auto low = hn::And(pairs, hn::Set(d32, 0xffu));
    hn::StoreU(DecodeMomentum(d, low, momentum_scale), d, momentum + i);
    if (variance == nullptr) continue;
    hn::StoreU(DecodeVariance(d, hn::ShiftRight<8>(pairs), variance_scale), d, variance + i);
  }
}

// `inverse` holds the reciprocals of the scales.
void Encode(const float* momentum, const float* variance, EightBitScales inverse, uint8_t* codes) {
  const hn::ScalableTag<float> d;
  const auto momentum_inverse = hn::Set(d, inverse.momentum);
  const auto variance_inverse = hn::Set(d, inverse.variance);
  for (int64_t i = 0; i < kQuantizationBlockElements; i += static_cast<int64_t>(hn::Lanes(d))) {
    auto pairs = EncodeMomentum(d, hn::LoadU(d, momentum + i), momentum_inverse);
    if (variance != nullptr) {
      const auto high = EncodeVariance(d, hn::LoadU(d, variance + i), variance_inverse);
      pairs = hn::Or(pairs, hn::ShiftLeft<8>(high));
    }
    StoreBits16(d, pairs, codes + 2 * i);
  }
}

// The element of greatest magnitude, as it is; of two with opposite signs the positive one.
// Compares bits, whose order is that of magnitudes with NaNs on top.
float Extreme(const float* values) {
  const hn::ScalableTag<int32_t> d;
  const auto* bits = reinterpret_cast<const int32_t*>(values);
  auto greatest = hn::Zero(d);  // over the positive ones
  auto widest = hn::Zero(d);    // over all, without signs
  for (int64_t i = 0; i < kQuantizationBlockElements; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto value = hn::LoadU(d, bits + i);
    greatest = hn::Max(greatest, value);
    widest = hn::Max(widest, hn::And(value, hn::Set(d, 0x7fffffff)));
  }
  const int32_t positive = hn::GetLane(hn::MaxOfLanes(d, greatest));
  const int32_t magnitude = hn::GetLane(hn::MaxOfLanes(d, widest));
  const auto value = std::bit_cast<float>(magnitude);
  return positive == magnitude ? value : -value;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {
namespace {

static_assert(std::endian::native == std::endian::little);  // pairs are read as 16-bit words

HWY_EXPORT(Decode);
HWY_EXPORT(Encode);
HWY_EXPORT(Extreme);

constexpr int64_t kTaskBlocks = 16;
// Below, the product of a scale and the least value of a map would not be a normal float, and the
// nearest code not the one it came from.
constexpr float kLeastScale = 0x1p-100f;

using BlockFloats = std::array<float, kQuantizationBlockElements>;

// The scale of a block; 0 when its values are to become zero.
float ScaleOf(const float* values) {
  if (values == nullptr) return 0.0f;
  const float extreme = HWY_DYNAMIC_DISPATCH(Extreme)(values);
  if (!std::isfinite(extreme)) return std::numeric_limits<float>::quiet_NaN();
  return std::fabs(extreme) < kLeastScale ? 0.0f : extreme;
}

// A NaN scale makes every value but zero NaN, whatever its code: those not zero get that of one.
void MarkNotZero(const float* values, float* marked) {
  for (int64_t i = 0; i < kQuantizationBlockElements; ++i) marked[i] = values[i] == 0 ? 0.0f : 1.0f;
}

// The reciprocal of the scale. Replaces `values` by `replaced` where that alone would not do.
float InverseOf(float scale, const float*& values, BlockFloats& replaced) {
  if (values == nullptr) return 0.0f;
  if (std::isnan(scale)) {
    MarkNotZero(values, replaced.data());
    values = replaced.data();
    return 1.0f;
  }
  if (scale != 0.0f) return 1.0f / scale;
  replaced.fill(0.0f);
  values = replaced.data();
  return 0.0f;
}

struct Task {
  const EightBitRange& range;
  std::span<const EightBitSlice> slices;
  std::span<const OptimizerScalars> scalars;  // of each slice
  float gradient_factor;

  void UpdateBlock(int64_t block) const;
};

void Task::UpdateBlock(int64_t block) const {
  const int64_t begin = block * kQuantizationBlockElements;
  const int64_t end = begin + kQuantizationBlockElements;
  auto slice = std::partition_point(slices.begin(), slices.end(), [&](const EightBitSlice& each) {
    return each.begin + each.count <= begin;
  });
  if (slice == slices.end() || slice->begin >= end) return;
  alignas(64) BlockFloats momentum;
  alignas(64) BlockFloats variance;
  const bool has_variance = StatesOf(slice->hyper.kind).variance;
  uint8_t* const codes = range.codes + begin * kCodeBytesPerElement;
  float* const variances = has_variance ? variance.data() : nullptr;
  const OptimizerSlice whole = {.count = range.count,
                                .master = range.master,
                                .gradient = range.gradient,
                                .parameter = range.parameter};
  DecodeBlock(codes, range.scales[block], momentum.data(), variances);
  for (; slice != slices.end() && slice->begin < end; ++slice) {
    const int64_t first = std::max(slice->begin, begin);
    const int64_t last = std::min(slice->begin + slice->count, end);
    OptimizerSlice work = PartOf(whole, first, last - first);
    work.momentum = momentum.data() + (first - begin);
    work.variance = has_variance ? variance.data() + (first - begin) : nullptr;
    UpdateElements(work, scalars[slice - slices.begin()], gradient_factor);
  }
  range.scales[block] = EncodeBlock(momentum.data(), variances, codes);
}

void CheckSlices(const EightBitRange& range, std::span<const EightBitSlice> slices) {
  int64_t end = 0;
  for (const EightBitSlice& slice : slices) {
    GANTRY_CHECK_GE(slice.begin, end);
    GANTRY_CHECK_GE(slice.count, 0);
    end = slice.begin + slice.count;
    GANTRY_CHECK_LE(end, range.count);
    GANTRY_CHECK(slice.hyper.kind == slices[0].hyper.kind);
    GANTRY_CHECK_OK(CheckSupported(slice.hyper.kind, StateFormat::kEightBit));
  }
}

}  // namespace

void DecodeBlock(const uint8_t* codes, EightBitScales scales, float* momentum, float* variance) {
  HWY_DYNAMIC_DISPATCH(Decode)(codes, scales, momentum, variance);
}

EightBitScales EncodeBlock(const float* momentum, const float* variance, uint8_t* codes) {
  const EightBitScales scales = {.momentum = ScaleOf(momentum), .variance = ScaleOf(variance)};
  BlockFloats replaced_momentum;
  BlockFloats replaced_variance;
  const EightBitScales inverse = {
      .momentum = InverseOf(scales.momentum, momentum, replaced_momentum),
      .variance = InverseOf(scales.variance, variance, replaced_variance)};
  HWY_DYNAMIC_DISPATCH(Encode)(momentum, variance, inverse, codes);
  return scales;
}

void UpdateEightBit(const EightBitRange& range, std::span<const EightBitSlice> slices,
                    float gradient_factor, ThreadTeam* team) {
  GANTRY_CHECK_EQ(range.count % kQuantizationBlockElements, 0);
  GANTRY_CHECK(team != nullptr);
  CheckSlices(range, slices);
  std::vector<OptimizerScalars> scalars;
  scalars.reserve(slices.size());
  for (const EightBitSlice& slice : slices) scalars.push_back(ComputeScalars(slice.hyper));
  const Task task = {range, slices, scalars, gradient_factor};
  team->For({.count = range.count / kQuantizationBlockElements, .grain = kTaskBlocks},
            [&](int64_t begin, int64_t end) {
              for (int64_t block = begin; block < end; ++block) task.UpdateBlock(block);
            });
}

}  // namespace gantry
#endif  // HWY_ONCE
