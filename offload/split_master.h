// An f32 master kept as a bf16 parameter and the 16 bits below it: 2 bytes an element less than a
// master beside a parameter, and nothing lost.
//
// The parameter is the master rounded to nearest even, so the pair (parameter, low half) names the
// master except for what rounding did: up when the low half was above 0x8000, down when it was
// below, and for a tie (exactly 0x8000) towards the even neighbour, which the even parameter cannot
// tell any more. That one bit is kept in the sign of the variance, which is never negative: set
// when a tie was rounded up. All of it is integer arithmetic on the sign-magnitude word, so it
// holds for either sign, for subnormals and for the greatest finite values, which round to
// infinity.
//
// Pure functions. optimizer.h updates states in this form; these read and write single elements.
#ifndef GANTRY_OFFLOAD_SPLIT_MASTER_H_
#define GANTRY_OFFLOAD_SPLIT_MASTER_H_

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace gantry {

struct SplitState {
  BFloat16 parameter;
  uint16_t low_half;
  float variance;  // with the tie bit
};

// The variance without the tie bit.
constexpr float VarianceOf(float stored) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(stored) & 0x7fffffffu);
}

// The master of an element whose variance is stored as `stored_variance`.
constexpr float JoinMaster(BFloat16 parameter, uint16_t low_half, float stored_variance) {
  const uint32_t tie_up = std::bit_cast<uint32_t>(stored_variance) >> 31;
  const uint32_t rounded_up = (low_half + tie_up + 0x7fffu) >> 16;
  return std::bit_cast<float>((uint32_t{parameter.bits} << 16 | low_half) - (rounded_up << 16));
}

// A NaN becomes the canonical one (0x7fc00000). `variance` may carry a tie bit; it is replaced.
constexpr SplitState SplitMaster(float master, float variance) {
  uint32_t bits = std::bit_cast<uint32_t>(master);
  if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0x7fc00000u;
  const uint32_t tie_up = (bits & 0x1ffffu) == 0x18000u ? 0x80000000u : 0u;
  const uint32_t kept = std::bit_cast<uint32_t>(variance) & 0x7fffffffu;
  return {.parameter = BFloat16(std::bit_cast<float>(bits)),
          .low_half = static_cast<uint16_t>(bits & 0xffffu),
          .variance = std::bit_cast<float>(kept | tie_up)};
}

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_SPLIT_MASTER_H_
