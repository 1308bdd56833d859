#include "parallel/comm/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace gantry {
namespace {

constexpr int64_t kBlock = 2048;

float Combine(float sum, float value, Reduction reduction) {
  if (reduction == Reduction::kSum) return sum + value;
  if (std::isnan(sum) || std::isnan(value)) return std::numeric_limits<float>::quiet_NaN();
  return reduction == Reduction::kMax ? std::max(sum, value) : std::min(sum, value);
}

template <typename T>
void ReduceTyped(const ReduceArgs& args, Reduction reduction) {
  std::array<float, kBlock> sums;
  for (int64_t first = args.first; first < args.first + args.count; first += kBlock) {
    const int64_t count = std::min(kBlock, args.first + args.count - first);
    const auto* start = reinterpret_cast<const T*>(args.inputs[0]) + first;
    for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] = static_cast<float>(start[i]);
    for (const std::byte* input : args.inputs.subspan(1)) {
      const auto* values = reinterpret_cast<const T*>(input) + first;
      for (int64_t i = 0; i < count; ++i) {
        float& sum = sums[static_cast<size_t>(i)];
        sum = Combine(sum, static_cast<float>(values[i]), reduction);
      }
    }
    for (std::byte* output : args.outputs) {
      auto* results = reinterpret_cast<T*>(output) + first;
      for (int64_t i = 0; i < count; ++i) results[i] = T(sums[static_cast<size_t>(i)]);
    }
  }
}

}  // namespace

void Reduce(const ReduceArgs& args, Reduction reduction) {
  GANTRY_CHECK(!args.inputs.empty());
  switch (args.dtype) {
    case DType::kF32:
      return ReduceTyped<float>(args, reduction);
    case DType::kBF16:
      return ReduceTyped<BFloat16>(args, reduction);
    case DType::kF16:
      return ReduceTyped<Float16>(args, reduction);
  }
}

}  // namespace gantry
