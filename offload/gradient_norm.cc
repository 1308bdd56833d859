// The kernel below is compiled once per instruction set (Highway's foreach_target) and chosen at
// run time. A segment's sum has one definition, whatever the vector length: element i is added to
// lane i mod kSumLanes, in order, and the lanes are then added up as a tree. Products are exact, so
// fused and separate multiplication and addition agree.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/gradient_norm.cc"
// The accumulators below are an array of vectors, which scalable vectors do not allow.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include "offload/gradient_norm.h"

#include <hwy/foreach_target.h>  // includes this file again, once per target
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "offload/elements.h"
#include "offload/elements_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

constexpr int64_t kSumLanes = 16;  // two AVX-512 vectors, four of AVX2: hides an addition's latency
using SumTag = hn::CappedTag<double, kSumLanes>;

template <class D, typename Element>
HWY_INLINE hn::Vec<D> AddSquares(D d64, const Element* from, hn::Vec<D> sums) {
  const auto x = hn::PromoteTo(d64, LoadElements(hn::Rebind<float, D>(), from));
  return hn::Add(sums, hn::Mul(x, x));
}

// Adds the squares of elements [0, count) to lanes i mod kSumLanes, and these to one sum.
// kVector... are the indices of the vectors that hold the lanes: a pack, because gcc keeps an array
// that a loop indexes in memory.
template <typename Element, size_t... kVector>
HWY_INLINE double SumSquares(const Element* from, int64_t count,
                             std::index_sequence<kVector...> /*vectors*/) {
  const SumTag d64;
  constexpr int64_t kWidth = kSumLanes / sizeof...(kVector);
  hn::Vec<SumTag> sums[] = {(static_cast<void>(kVector), hn::Zero(d64))...};
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    ((sums[kVector] = AddSquares(d64, from + i + kVector * kWidth, sums[kVector])), ...);
  }
  double lanes[kSumLanes];
  (hn::StoreU(sums[kVector], d64, lanes + kVector * kWidth), ...);

  const hn::CappedTag<float, 1> single;
  for (; i < count; ++i) {
    const double x = hn::GetLane(LoadElements(single, from + i));
    lanes[i % kSumLanes] += x * x;
  }
  for (int64_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

double SegmentSum(ConstElements gradient, int64_t begin, int64_t count) {
  constexpr std::make_index_sequence<kSumLanes / MaxLanes(SumTag())> kVectors;
  switch (gradient.dtype) {
    case DType::kF32:
      return SumSquares(static_cast<const float*>(gradient.data) + begin, count, kVectors);
    case DType::kBF16:
      return SumSquares(static_cast<const BFloat16*>(gradient.data) + begin, count, kVectors);
    case DType::kF16:
      return SumSquares(static_cast<const Float16*>(gradient.data) + begin, count, kVectors);
  }
  return std::numeric_limits<double>::quiet_NaN();  // not reached: every dtype is listed
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {
namespace {

HWY_EXPORT(SegmentSum);

constexpr int64_t kTaskSegments = 4;

// REQUIRES: not empty.
double SumPairwise(std::span<const double> values) {
  if (values.size() == 1) return values[0];
  const size_t half = std::bit_ceil(values.size()) / 2;
  return SumPairwise(values.first(half)) + SumPairwise(values.subspan(half));
}

}  // namespace

bool SegmentSumSquares(ConstElements gradient, int64_t count, std::span<double> partials,
                       ThreadTeam* team) {
  GANTRY_CHECK_GE(count, 0);
  GANTRY_CHECK_EQ(static_cast<int64_t>(partials.size()), SegmentCount(count));
  GANTRY_CHECK(team != nullptr);
  GANTRY_CHECK(count == 0 || gradient.data != nullptr);
  team->For(
      {.count = SegmentCount(count), .grain = kTaskSegments}, [&](int64_t first, int64_t last) {
        for (int64_t segment = first; segment < last; ++segment) {
          const int64_t begin = segment * kNormSegmentElements;
          const double sum = HWY_DYNAMIC_DISPATCH(SegmentSum)(
              gradient, begin, std::min(kNormSegmentElements, count - begin));
          // One NaN for all targets: payloads and signs depend on the order of operands.
          partials[segment] = std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum;
        }
      });
  // Squares of floats are below 2^256, so a sum of finite ones is finite: no second look is needed.
  return std::all_of(partials.begin(), partials.end(),
                     [](double partial) { return std::isfinite(partial); });
}

double CombineSegments(std::span<const double> partials) {
  return partials.empty() ? 0.0 : SumPairwise(partials);
}

}  // namespace gantry
#endif  // HWY_ONCE
