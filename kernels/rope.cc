#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

void RotateRow(const RopeArgs& args, int64_t row) {
  const int64_t half = args.table->head_dim() / 2;
  const int64_t position = args.positions.empty()
                               ? args.position_offset + row % args.tokens_per_sequence
                               : args.positions[static_cast<size_t>(row)];
  const float* cos = args.table->cos(position);
  const float* sin = args.table->sin(position);
  const V16 sign = Set(args.direction == RopeDirection::kForward ? 1.0f : -1.0f);
  WithElementType(args.heads.dtype, [&]<typename T>(T*) {
    T* data = args.heads.Row<T>(row);
    for (int64_t head = 0; head < args.heads.cols; head += 2 * half) {
      T* first = data + head;
      T* second = first + half;
      for (int64_t i = 0; i < half; i += 16) {
        const int64_t count = half - i;
        const V16 c = LoadFirst(cos + i, count);
        const V16 s = LoadFirst(sin + i, count) * sign;
        const V16 x = LoadFirst(first + i, count);
        const V16 y = LoadFirst(second + i, count);
        StoreFirst(x * c - y * s, first + i, count);
        StoreFirst(y * c + x * s, second + i, count);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(RotateRow);

std::vector<double> RopeFrequencies(double theta, int64_t head_dim) {
  GANTRY_CHECK(head_dim > 0 && head_dim % 2 == 0) << "head_dim " << head_dim;
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  }
  return frequencies;
}

namespace {

void CheckPositions(const RopeArgs& args) {
  if (!args.positions.empty()) {
    GANTRY_CHECK_EQ(static_cast<int64_t>(args.positions.size()), args.heads.rows);
    const auto [least, most] = std::ranges::minmax(args.positions);
    GANTRY_CHECK_GE(least, 0);
    GANTRY_CHECK_LT(most, args.table->positions());
    return;
  }
  GANTRY_CHECK_GE(args.tokens_per_sequence, 1);
  GANTRY_CHECK_GE(args.position_offset, 0);
  const int64_t tokens = std::min(args.heads.rows, args.tokens_per_sequence);
  GANTRY_CHECK_LE(args.position_offset + tokens, args.table->positions());
}

}  // namespace

RopeTable::RopeTable(const Options& options)
    : positions_(options.positions), half_(static_cast<int64_t>(options.frequencies.size())) {
  GANTRY_CHECK_GE(positions_, 0);
  cos_.reserve(static_cast<size_t>(positions_ * half_));
  sin_.reserve(static_cast<size_t>(positions_ * half_));
  for (int64_t position = 0; position < positions_; ++position) {
    for (const double frequency : options.frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      cos_.push_back(static_cast<float>(options.magnitude * std::cos(angle)));
      sin_.push_back(static_cast<float>(options.magnitude * std::sin(angle)));
    }
  }
}

void ApplyRope(const KernelContext& context, const RopeArgs& args) {
  GANTRY_CHECK_EQ(args.heads.cols % args.table->head_dim(), 0);
  CheckPositions(args);
  constexpr int64_t kRowsPerTask = 16;
  context.team->For({.count = args.heads.rows, .grain = kRowsPerTask},
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        HWY_DYNAMIC_DISPATCH(RotateRow)(args, row);
                      }
                    });
}

}  // namespace gantry
#endif  // HWY_ONCE
