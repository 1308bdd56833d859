// Optimizer moments in 8 bits: two bytes of state an element beside the f32 master, instead of
// eight.
//
// A chunk is cut, from its start, into quantization blocks of 2048 elements. A moment of a block is
// one f32 scale and a code per element. The codes name the values of the dynamic 8-bit maps
// (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", arXiv 2110.02861; bitsandbytes'
// create_dynamic_map): seven decades from 1e-7 to 1, each cut evenly, the k-th into 2^k values of
// either sign for the momentum and into 2^(k+1) values for the variance, k = 0 to 6, beside zero
// and one. An element becomes the nearest value times the scale.
//
// Two details are ours. The scale is the element of greatest magnitude with its sign, so that this
// element is exact although the signed map has no -1. And a variance above zero never becomes zero:
// a momentum over a vanished variance would make a step of any length.
//
// One encoding moves a momentum by at most 0.0071 and a variance by at most 0.0036 of its block's
// greatest magnitude, or (the variance's rounding away from zero) by 3.3e-7 of it. Encoding what
// was decoded changes nothing: decode(encode(decode(x))) == decode(x), bit for bit, so that a
// checkpoint may store decoded moments. Moments whose block is nowhere above 2^-100 become zero,
// and a value that is not finite makes all values of its block that are not zero NaN.
//
// What is averaged slowly needs care: a moment stands still when a step changes it by less than
// half the distance to the next value, some per cent of it near the scale and up to a half of it
// where the map ends. With gradients that are mostly noise this does not show: after 200 steps on
// an ill-conditioned problem of 10^5 parameters the loss is within 4 % of that with f32 moments,
// for every kind (eight_bit_states_test.cc).
//
// All arithmetic is float, each operation rounded on its own, so results have the same bits on
// every instruction set, for any team, and for any chunk size that is a multiple of the block.
// Thread-safe: calls over disjoint ranges may run at once.
#ifndef GANTRY_OFFLOAD_EIGHT_BIT_STATES_H_
#define GANTRY_OFFLOAD_EIGHT_BIT_STATES_H_

#include <cstdint>
#include <optional>
#include <span>

#include "base/parallel_for.h"
#include "offload/elements.h"
#include "offload/optimizer.h"

namespace gantry {

inline constexpr int64_t kQuantizationBlockElements = 2048;
inline constexpr int64_t kCodeBytesPerElement = 2;

// Of one block. Zero bytes are the state before the first step, here and in the codes.
struct EightBitScales {
  float momentum;
  float variance;
};

// Consecutive elements of a chunk from the start of a block on. The arrays do not overlap.
struct EightBitRange {
  int64_t count;           // a multiple of kQuantizationBlockElements
  uint8_t* codes;          // (momentum code, variance code) for each element
  EightBitScales* scales;  // of each block
  float* master;
  ConstElements gradient;
  std::optional<Elements> parameter;  // receives the new master, rounded to nearest even
};

// The part of one tensor that lies in the range.
struct EightBitSlice {
  int64_t begin;  // offset inside the range
  int64_t count;
  OptimizerHyper hyper;
};

// Updates the slices in place, as UpdateSlice does between decoding and encoding their blocks, and
// returns when all of it is done. Elements outside of every slice keep their bytes in all arrays,
// and their moments must be zero. Kinds without a variance leave its codes and scales zero.
// REQUIRES: slices in order, disjoint and inside the range, all of one kind that
// CheckSupported(kind, kEightBit) accepts; ValidateOptimizer(hyper).ok() for each.
void UpdateEightBit(const EightBitRange& range, std::span<const EightBitSlice> slices,
                    float gradient_factor, ThreadTeam* team);

// The moments of one block, for access between steps. A block is encoded as a whole, since all of
// its elements share a scale. `variance` is null for kinds without one; then its codes are neither
// read nor different from zero. Each array holds kQuantizationBlockElements elements.
void DecodeBlock(const uint8_t* codes, EightBitScales scales, float* momentum, float* variance);
// REQUIRES: no lane of `variance` is negative. Returns the scales.
EightBitScales EncodeBlock(const float* momentum, const float* variance, uint8_t* codes);

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_EIGHT_BIT_STATES_H_
