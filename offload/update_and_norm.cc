#include "offload/update_and_norm.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "offload/elements.h"
#include "offload/gradient_norm.h"
#include "offload/optimizer.h"

namespace gantry {
namespace {

// The gradients of a task stay in the second-level cache between their sum and their update.
constexpr int64_t kTaskElements = 2 * kNormSegmentElements;

void CheckSlices(ConstElements gradient, int64_t count, std::span<const RangeSlice> slices) {
  int64_t end = 0;
  for (const RangeSlice& slice : slices) {
    GANTRY_CHECK_GE(slice.begin, end);
    end = slice.begin + slice.state.count;
    GANTRY_CHECK_LE(end, count);
    const auto* expected =
        static_cast<const std::byte*>(gradient.data) + slice.begin * SizeOf(gradient.dtype);
    GANTRY_CHECK(slice.state.gradient.data == expected);
    GANTRY_CHECK(slice.state.gradient.dtype == gradient.dtype);
  }
}

}  // namespace

bool UpdateAndSumSquares(ConstElements gradient, int64_t count, std::span<const RangeSlice> slices,
                         float gradient_factor, std::span<double> partials, ThreadTeam* team) {
  GANTRY_CHECK_EQ(static_cast<int64_t>(partials.size()), SegmentCount(count));
  GANTRY_CHECK(team != nullptr);
  CheckSlices(gradient, count, slices);
  std::vector<OptimizerScalars> scalars;
  scalars.reserve(slices.size());
  for (const RangeSlice& slice : slices) scalars.push_back(ComputeScalars(slice.hyper));
  std::atomic<bool> finite = true;
  team->For({.count = count, .grain = kTaskElements}, [&](int64_t begin, int64_t end) {
    const auto first_segment = static_cast<size_t>(begin / kNormSegmentElements);
    const auto segments = static_cast<size_t>(SegmentCount(end - begin));
    const auto* data = static_cast<const std::byte*>(gradient.data);
    const ConstElements part = {data + begin * SizeOf(gradient.dtype), gradient.dtype};
    if (!SegmentSumSquares(part, end - begin, partials.subspan(first_segment, segments), team)) {
      finite = false;
    }
    auto slice = std::partition_point(slices.begin(), slices.end(), [&](const RangeSlice& each) {
      return each.begin + each.state.count <= begin;
    });
    for (; slice != slices.end() && slice->begin < end; ++slice) {
      const int64_t from = std::max(slice->begin, begin);
      const int64_t to = std::min(slice->begin + slice->state.count, end);
      UpdateElements(PartOf(slice->state, from - slice->begin, to - from),
                     scalars[static_cast<size_t>(slice - slices.begin())], gradient_factor);
    }
  });
  return finite;
}

}  // namespace gantry
