// Sixteen floats as one value, for kernels compiled once per instruction set (Highway's
// foreach_target): one AVX-512 register, two AVX2 registers or four SSE registers. Every operation
// rounds lane by lane as IEEE single precision without fused multiply-add, and reductions combine
// the sixteen lanes in a fixed tree, so a kernel gives the same bits on every target.
//
// The sources that include this are compiled with -ffp-contract=off; otherwise the compiler fuses
// a * b + c where the target can, and targets differ.
//
// Include inside the foreach_target pattern, after <hwy/highway.h>. Memory needs no alignment.
#if defined(GANTRY_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GANTRY_KERNELS_SIMD_INL_H_
#undef GANTRY_KERNELS_SIMD_INL_H_
#else
#define GANTRY_KERNELS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "base/dtype.h"

// Unrolls the next loop fully, so that arrays of registers stay in registers.
#undef GANTRY_UNROLL
#if defined(__clang__)
#define GANTRY_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GANTRY_UNROLL _Pragma("GCC unroll 32")
#endif

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

constexpr int kRegisterBytes = HWY_TARGET == HWY_AVX3 ? 64 : HWY_TARGET == HWY_AVX2 ? 32 : 16;
constexpr int kLanes = kRegisterBytes / 4;
constexpr int kRegisters = 16 / kLanes;

typedef float FloatRegister __attribute__((vector_size(kRegisterBytes)));
typedef int32_t IntRegister __attribute__((vector_size(kRegisterBytes)));
typedef uint32_t UintRegister __attribute__((vector_size(kRegisterBytes)));
typedef uint16_t HalfRegister __attribute__((vector_size(kRegisterBytes / 2)));

struct V16 {
  FloatRegister r[kRegisters];
};

// operation(register of a, register of b) for each register.
template <typename Operation>
HWY_INLINE V16 Combine(const V16& a, const V16& b, Operation operation) {
  V16 out;
  out.r[0] = operation(a.r[0], b.r[0]);
  if constexpr (kRegisters > 1) out.r[1] = operation(a.r[1], b.r[1]);
  if constexpr (kRegisters > 2) {
    out.r[2] = operation(a.r[2], b.r[2]);
    out.r[3] = operation(a.r[3], b.r[3]);
  }
  return out;
}

HWY_INLINE V16 operator+(const V16& a, const V16& b) {
  return Combine(a, b, [](FloatRegister x, FloatRegister y) { return x + y; });
}
HWY_INLINE V16 operator-(const V16& a, const V16& b) {
  return Combine(a, b, [](FloatRegister x, FloatRegister y) { return x - y; });
}
HWY_INLINE V16 operator*(const V16& a, const V16& b) {
  return Combine(a, b, [](FloatRegister x, FloatRegister y) { return x * y; });
}
HWY_INLINE V16 operator/(const V16& a, const V16& b) {
  return Combine(a, b, [](FloatRegister x, FloatRegister y) { return x / y; });
}
// The greater lane; b where either is NaN.
HWY_INLINE V16 Max(const V16& a, const V16& b) {
  return Combine(a, b, [](FloatRegister x, FloatRegister y) { return x > y ? x : y; });
}

HWY_INLINE V16 Set(float value) {
  V16 out;
  GANTRY_UNROLL
  for (int i = 0; i < kRegisters; ++i) out.r[i] = value - FloatRegister{};
  return out;
}
HWY_INLINE V16 Zero() { return V16{}; }

HWY_INLINE V16 Load(const float* from) {
  V16 out;  // register by register: GCC copies the whole struct through the stack
  GANTRY_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    std::memcpy(&out.r[i], from + i * kLanes, sizeof(FloatRegister));
  }
  return out;
}
HWY_INLINE void Store(const V16& value, float* to) {
  GANTRY_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    std::memcpy(to + i * kLanes, &value.r[i], sizeof(FloatRegister));
  }
}

HWY_INLINE V16 Load(const BFloat16* from) {
  V16 out;
  GANTRY_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    HalfRegister half;
    std::memcpy(&half, from + i * kLanes, sizeof(half));
    out.r[i] = (FloatRegister)(__builtin_convertvector(half, UintRegister) << 16);
  }
  return out;
}
// Rounds to nearest, ties to even; NaN stays NaN, quieted.
HWY_INLINE UintRegister RoundToBF16Bits(FloatRegister value) {
  const UintRegister bits = (UintRegister)value;
  const UintRegister rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const UintRegister quieted = (bits >> 16) | 0x40u;
  return value == value ? rounded : quieted;
}
HWY_INLINE void Store(const V16& value, BFloat16* to) {
  GANTRY_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    const HalfRegister half = __builtin_convertvector(RoundToBF16Bits(value.r[i]), HalfRegister);
    std::memcpy(static_cast<void*>(to + i * kLanes), &half, sizeof(half));
  }
}

// The value as it would be read back after a Store to T.
template <typename T>
HWY_INLINE V16 RoundTo(const V16& value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else {
    V16 out;
    GANTRY_UNROLL
    for (int i = 0; i < kRegisters; ++i) {
      out.r[i] = (FloatRegister)(RoundToBF16Bits(value.r[i]) << 16);
    }
    return out;
  }
}

// The first min(count, 16) elements, the rest zero.
template <typename T>
HWY_INLINE V16 LoadFirst(const T* from, int64_t count) {
  if (HWY_LIKELY(count >= 16)) return Load(from);
  T padded[16] = {};
  std::memcpy(static_cast<void*>(padded), from, static_cast<size_t>(count) * sizeof(T));
  return Load(padded);
}
// Writes the first min(count, 16) elements.
template <typename T>
HWY_INLINE void StoreFirst(const V16& value, T* to, int64_t count) {
  if (HWY_LIKELY(count >= 16)) return Store(value, to);
  T padded[16];
  Store(value, padded);
  std::memcpy(static_cast<void*>(to), padded, static_cast<size_t>(count) * sizeof(T));
}

// Lanes at `count` and above become `fill`.
HWY_INLINE V16 KeepFirst(const V16& value, int64_t count, float fill) {
  if (HWY_LIKELY(count >= 16)) return value;
  V16 out;
  GANTRY_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    IntRegister lane;
    GANTRY_UNROLL
    for (int j = 0; j < kLanes; ++j) lane[j] = i * kLanes + j;
    const FloatRegister filled = fill - FloatRegister{};
    out.r[i] = lane < static_cast<int32_t>(count) ? value.r[i] : filled;
  }
  return out;
}

// ((l0+l8)+(l4+l12)) + ... : halves, quarters, eighths, pairs.
HWY_INLINE float SumLanes(const V16& value) {
  float lanes[16];
  Store(value, lanes);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}
HWY_INLINE float MaxLanes(const V16& value) {
  float lanes[16];
  Store(value, lanes);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
    }
  }
  return lanes[0];
}

// Sum over 16-element chunks of term(begin, count), count = 16 except in the last chunk, whose
// unused lanes must be zero. Four accumulators take turns: a fixed order for any target.
template <typename Term>
HWY_INLINE float SumChunks(int64_t size, const Term& term) {
  V16 sums[4] = {};
  int64_t i = 0;
  for (; i + 64 <= size; i += 64) {
    GANTRY_UNROLL
    for (int j = 0; j < 4; ++j) sums[j] = sums[j] + term(i + 16 * j, int64_t{16});
  }
  for (; i < size; i += 16) sums[0] = sums[0] + term(i, size - i < 16 ? size - i : int64_t{16});
  return SumLanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// e^x within 2 units in the last place. Below -87.3 zero, above 88.72 infinity, NaN stays NaN.
// The polynomial and the split of ln 2 are those of Cephes' expf.
HWY_INLINE FloatRegister ExpRegister(FloatRegister x) {
  const FloatRegister zero = {};
  const FloatRegister low = -87.3f - zero;
  const FloatRegister high = 88.722f - zero;
  FloatRegister clamped = x < low ? low : x;
  clamped = clamped > high ? high : clamped;
  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits of the mantissa.
  const float kMagic = 12582912.0f;
  const FloatRegister shifted = clamped * 1.44269504088896341f + kMagic;
  const FloatRegister n = shifted - kMagic;
  const FloatRegister r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  FloatRegister p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * (r * r) + r) + 1.0f;
  // Multiplies by 2^n through the exponent field; p is in [0.70, 1.42] and n in [-126, 128].
  const UintRegister scaled = (UintRegister)p + ((UintRegister)shifted << 23);
  FloatRegister y = (FloatRegister)scaled;
  y = x < low ? zero : y;
  y = x > high ? zero + std::numeric_limits<float>::infinity() : y;
  return x == x ? y : x;
}
HWY_INLINE V16 Exp(const V16& x) {
  return Combine(x, x, [](FloatRegister a, FloatRegister) { return ExpRegister(a); });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
