// Element types. BFloat16 and Float16 are storage types: convert to float, compute, convert back.
// Conversions round to nearest, ties to even; NaN stays NaN (quieted), infinities stay, overflow
// goes to infinity, subnormals are kept.
#ifndef GANTRY_BASE_DTYPE_H_
#define GANTRY_BASE_DTYPE_H_

#include <bit>
#include <cstdint>
#include <ostream>
#include <string_view>

#include "absl/status/statusor.h"

namespace gantry {

enum class DType : uint8_t { kF32, kBF16, kF16 };

// Bytes per element.
constexpr int64_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
std::string_view Name(DType dtype);  // "f32", "bf16", "f16"
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << Name(dtype); }
// Accepts the names above and fp32/float32, bfloat16, fp16/float16. Errors: kInvalidArgument.
absl::StatusOr<DType> ParseDType(std::string_view name);

// float -> bf16 bits and back.
constexpr uint16_t FloatToBF16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
constexpr float BF16BitsToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

namespace dtype_internal {

inline constexpr uint32_t kF32Infinity = 0x7f800000u;
inline constexpr uint32_t kF16Infinity = 0x7c00u;
inline constexpr uint32_t kF16QuietBit = 0x0200u;
inline constexpr int kMantissaShift = 23 - 10;        // float's mantissa bits less binary16's
inline constexpr uint32_t kExponentShift = 127 - 15;  // float's exponent bias less binary16's

// magnitude / 2^shift, rounded to nearest, ties to even. REQUIRES: 1 <= shift <= 31.
constexpr uint32_t ShiftRightToNearestEven(uint32_t magnitude, int shift) {
  const uint32_t quotient = magnitude >> shift;
  const uint32_t remainder = magnitude & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  return quotient + (remainder > half || (remainder == half && (quotient & 1u) != 0) ? 1u : 0u);
}

constexpr uint32_t MagnitudeToF16(uint32_t magnitude) {
  constexpr uint32_t kOverflow = 0x477ff000u;        // 65520, half way from 65504 to 65536
  constexpr uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  if (magnitude > kF32Infinity) {
    return kF16Infinity | kF16QuietBit | ((magnitude >> kMantissaShift) & 0x3ffu);
  }
  if (magnitude >= kOverflow) return kF16Infinity;
  if (magnitude >= kSmallestNormal) {
    // A carry out of the mantissa moves into the exponent, which is what rounding up means.
    return ShiftRightToNearestEven(magnitude - (kExponentShift << 23), kMantissaShift);
  }
  // Subnormal: count units of 2^-24. With exponent field e the value is mantissa * 2^(e - 150).
  const auto exponent = static_cast<int>(magnitude >> 23);
  const int shift = 126 - exponent;
  if (shift > 24) return 0;  // below half a unit
  return ShiftRightToNearestEven((magnitude & 0x7fffffu) | 0x800000u, shift);
}

}  // namespace dtype_internal

// float -> IEEE binary16 bits and back.
constexpr uint16_t FloatToF16Bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) |
                               dtype_internal::MagnitudeToF16(bits & 0x7fffffffu));
}

constexpr float F16BitsToFloat(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude > dtype_internal::kF16Infinity) {
    return std::bit_cast<float>(
        sign | dtype_internal::kF32Infinity |
        (((magnitude & 0x3ffu) | dtype_internal::kF16QuietBit) << dtype_internal::kMantissaShift));
  }
  if (magnitude == dtype_internal::kF16Infinity)
    return std::bit_cast<float>(sign | dtype_internal::kF32Infinity);
  if (magnitude < 0x0400u) {
    const float unsigned_value = static_cast<float>(magnitude) * 0x1p-24f;  // exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(unsigned_value));
  }
  return std::bit_cast<float>(sign | ((magnitude << dtype_internal::kMantissaShift) +
                                      (dtype_internal::kExponentShift << 23)));
}

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(FloatToBF16Bits(value)) {}
  constexpr explicit operator float() const { return BF16BitsToFloat(bits); }
  constexpr bool operator==(const BFloat16&) const = default;  // compares bits
};
static_assert(sizeof(BFloat16) == 2);

struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  constexpr explicit Float16(float value) : bits(FloatToF16Bits(value)) {}
  constexpr explicit operator float() const { return F16BitsToFloat(bits); }
  constexpr bool operator==(const Float16&) const = default;  // compares bits
};
static_assert(sizeof(Float16) == 2);

// Element `index` of an array of `dtype`, as a float. For code that is not hot.
inline float LoadElement(DType dtype, const void* array, int64_t index) {
  switch (dtype) {
    case DType::kBF16:
      return static_cast<float>(static_cast<const BFloat16*>(array)[index]);
    case DType::kF16:
      return static_cast<float>(static_cast<const Float16*>(array)[index]);
    case DType::kF32:
      break;
  }
  return static_cast<const float*>(array)[index];
}
// Rounds `value` to `dtype` and stores it.
inline void StoreElement(DType dtype, void* array, int64_t index, float value) {
  switch (dtype) {
    case DType::kBF16:
      static_cast<BFloat16*>(array)[index] = BFloat16(value);
      return;
    case DType::kF16:
      static_cast<Float16*>(array)[index] = Float16(value);
      return;
    case DType::kF32:
      break;
  }
  static_cast<float*>(array)[index] = value;
}

// DTypeOf<float>::value and so on.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kF16;
};

}  // namespace gantry

#endif  // GANTRY_BASE_DTYPE_H_
