#include "base/dtype.h"

#include <bit>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr uint32_t kF32Infinity = 0x7f800000u;
constexpr uint32_t kF16Infinity = 0x7c00u;
constexpr uint32_t kF16QuietBit = 0x0200u;
constexpr int kMantissaShift = 23 - 10;        // float's mantissa bits less binary16's
constexpr uint32_t kExponentShift = 127 - 15;  // float's exponent bias less binary16's

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

}  // namespace

uint16_t FloatToF16Bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | MagnitudeToF16(bits & 0x7fffffffu));
}

float F16BitsToFloat(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude > kF16Infinity) {
    return std::bit_cast<float>(sign | kF32Infinity |
                                (((magnitude & 0x3ffu) | kF16QuietBit) << kMantissaShift));
  }
  if (magnitude == kF16Infinity) return std::bit_cast<float>(sign | kF32Infinity);
  if (magnitude < 0x0400u) {
    const float unsigned_value = static_cast<float>(magnitude) * 0x1p-24f;  // exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(unsigned_value));
  }
  return std::bit_cast<float>(sign | ((magnitude << kMantissaShift) + (kExponentShift << 23)));
}

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
  }
  GANTRY_CHECK(false) << "no such dtype: " << static_cast<int>(dtype);
  return {};
}

absl::StatusOr<DType> ParseDType(std::string_view name) {
  if (name == "f32" || name == "fp32" || name == "float32") return DType::kF32;
  if (name == "bf16" || name == "bfloat16") return DType::kBF16;
  if (name == "f16" || name == "fp16" || name == "float16") return DType::kF16;
  return InvalidArgument("unknown dtype '", name, "': expected f32, bf16 or f16");
}

}  // namespace gantry
