// Sums of squares of gradients, for the global norm that clipping needs and for the check that
// every gradient is finite, taken as blocks of gradients arrive.
//
//   std::vector<double> partials(SegmentCount(count));
//   finite = SegmentSumSquares(gradient, count, partials, team) && finite;
//   ...                                          // gather the partials of all blocks, in order
//   norm = std::sqrt(CombineSegments(all_partials)) / loss_scale;
//
// A range is cut, from its start, into segments of kNormSegmentElements, and every sum is taken in
// an order fixed by the segment alone, in double (a float's square is exact there and cannot
// overflow). So partials are the same to the bit on every instruction set and for any team, and a
// norm does not depend on which block arrived first or on how a range was split over calls, as long
// as the splits lie between segments.
//
// Thread-safe: pure functions.
#ifndef GANTRY_OFFLOAD_GRADIENT_NORM_H_
#define GANTRY_OFFLOAD_GRADIENT_NORM_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/parallel_for.h"
#include "offload/elements.h"

namespace gantry {

inline constexpr int64_t kNormSegmentElements = 16384;

// Started segments in a range of `count` elements.
constexpr int64_t SegmentCount(int64_t count) { return CeilDiv(count, kNormSegmentElements); }

// Writes each segment's sum of squares to `partials` and returns whether all `count` elements are
// finite; a segment that holds an infinity or a NaN has a partial that is not finite.
// REQUIRES: partials.size() == SegmentCount(count).
[[nodiscard]] bool SegmentSumSquares(ConstElements gradient, int64_t count,
                                     std::span<double> partials, ThreadTeam* team);

// The sum of the partials, taken pairwise in a fixed order: each sum of n > 1 splits at the largest
// power of two below n. 0 for none. Independent of threads; not of the order of the partials.
double CombineSegments(std::span<const double> partials);

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_GRADIENT_NORM_H_
