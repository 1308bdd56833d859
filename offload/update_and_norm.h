// An update that takes the gradient's norm along, for steps whose updates need not wait for it: the
// gradient is read from memory once instead of twice.
//
// The results are those of SegmentSumSquares on the range and of UpdateSlice on each slice, bit for
// bit. Slices of many small tensors share the tasks that the team is given.
//
// Thread-safe: calls over disjoint ranges may run at once, on one team too.
#ifndef GANTRY_OFFLOAD_UPDATE_AND_NORM_H_
#define GANTRY_OFFLOAD_UPDATE_AND_NORM_H_

#include <cstdint>
#include <span>

#include "base/parallel_for.h"
#include "offload/elements.h"
#include "offload/optimizer.h"

namespace gantry {

// The part of one tensor that lies in a range of gradients.
struct RangeSlice {
  int64_t begin;         // offset inside the range
  OptimizerSlice state;  // its gradient is the range's from `begin` on
  OptimizerHyper hyper;
};

// Updates the slices in place and writes the sum of squares of each segment of `gradient`, not
// multiplied by `gradient_factor`, to `partials`. Returns whether all `count` elements are finite.
// REQUIRES: slices in order, disjoint and inside the range; partials.size() == SegmentCount(count);
// what UpdateSlice requires of each slice.
[[nodiscard]] bool UpdateAndSumSquares(ConstElements gradient, int64_t count,
                                       std::span<const RangeSlice> slices, float gradient_factor,
                                       std::span<double> partials, ThreadTeam* team);

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_UPDATE_AND_NORM_H_
