#include "kernels/dropout.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/check.h"
#include "base/dtype.h"
#include "base/random.h"
#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {
namespace {

// Four elements share one draw of four words; a word below this drops its element.
uint64_t Threshold(double rate) { return static_cast<uint64_t>(rate * 0x1p32); }

std::array<uint32_t, 4> Words(const DropoutKey& key, uint64_t element) {
  return Philox(key.seed, element / 4, (uint64_t{key.step} << 32) | key.stream);
}

template <typename T>
void DropRow(const DropoutArgs& args, int64_t row) {
  const T* x = args.x.Row<T>(row);
  T* y = args.y.Row<T>(row);
  const uint64_t threshold = Threshold(args.rate);
  const auto scale = static_cast<float>(1.0 / (1.0 - args.rate));
  uint64_t element = args.key.first_element + static_cast<uint64_t>(row * args.x.cols);
  std::array<uint32_t, 4> words = Words(args.key, element);
  for (int64_t i = 0; i < args.x.cols; ++i, ++element) {
    if (element % 4 == 0) words = Words(args.key, element);
    const bool keeps = words[element % 4] >= threshold;
    const float value = keeps ? static_cast<float>(x[i]) * scale : 0.0f;
    const float before = args.accumulate == Accumulate::kAdd ? static_cast<float>(y[i]) : 0.0f;
    y[i] = T(before + value);
  }
}

}  // namespace

bool DropoutKeeps(const DropoutKey& key, double rate, uint64_t element) {
  return Words(key, element)[element % 4] >= Threshold(rate);
}

void Dropout(const KernelContext& context, const DropoutArgs& args) {
  const MatrixShape shape = ShapeOf(args.x);
  CheckMatrix(args.y, shape, args.x.dtype, "y");
  GANTRY_CHECK(args.rate >= 0.0 && args.rate < 1.0) << args.rate;
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, shape.cols));
  context.team->For({.count = shape.rows, .grain = grain}, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (args.x.dtype == DType::kF32) {
        DropRow<float>(args, row);
      } else {
        DropRow<BFloat16>(args, row);
      }
    }
  });
}

}  // namespace gantry
