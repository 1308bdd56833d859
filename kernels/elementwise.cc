#include "kernels/elementwise.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/dtype.h"
#include "kernels/convert.h"
#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

void AddSegment(const AddArgs& args) {
  WithElementType(args.a.dtype, [&]<typename A>(A*) {
    WithElementType(args.b.dtype, [&]<typename B>(B*) {
      WithElementType(args.sum.dtype, [&]<typename S>(S*) {
        for (int64_t i = 0; i < args.sum.size; i += 16) {
          const int64_t count = args.sum.size - i;
          const V16 sum =
              LoadFirst(args.a.As<A>() + i, count) + LoadFirst(args.b.As<B>() + i, count);
          StoreFirst(sum, args.sum.As<S>() + i, count);
        }
      });
    });
  });
}

void ScaleSegment(const VectorView& values, float factor) {
  WithElementType(values.dtype, [&]<typename T>(T*) {
    T* data = values.As<T>();
    for (int64_t i = 0; i < values.size; i += 16) {
      const int64_t count = values.size - i;
      StoreFirst(LoadFirst(data + i, count) * Set(factor), data + i, count);
    }
  });
}

void AxpySegment(const AxpyArgs& args) {
  WithElementType(args.x.dtype, [&]<typename X>(X*) {
    WithElementType(args.y.dtype, [&]<typename Y>(Y*) {
      Y* y = args.y.As<Y>();
      for (int64_t i = 0; i < args.y.size; i += 16) {
        const int64_t count = args.y.size - i;
        const V16 scaled = Set(args.alpha) * LoadFirst(args.x.As<X>() + i, count);
        StoreFirst(LoadFirst(y + i, count) + scaled, y + i, count);
      }
    });
  });
}

typedef double DoubleRegister __attribute__((vector_size(kRegisterBytes)));
typedef float HalfFloatRegister __attribute__((vector_size(kRegisterBytes / 2)));

// Sixteen running sums, one per lane of the float vectors.
struct DoubleSums {
  DoubleRegister r[2 * kRegisters];
};

HWY_INLINE void AddSquares(const V16& values, DoubleSums& sums) {
  float lanes[16];
  Store(values, lanes);
  GANTRY_UNROLL
  for (int i = 0; i < 2 * kRegisters; ++i) {
    HalfFloatRegister half;
    std::memcpy(&half, lanes + i * (kLanes / 2), sizeof(half));
    const DoubleRegister wide = __builtin_convertvector(half, DoubleRegister);
    sums.r[i] = sums.r[i] + wide * wide;
  }
}

double SumSquaresOfSegment(const ConstVectorView& values) {
  DoubleSums sums = {};
  WithElementType(values.dtype, [&]<typename T>(T*) {
    DoubleSums local = {};
    for (int64_t i = 0; i < values.size; i += 16) {
      AddSquares(LoadFirst(values.As<T>() + i, values.size - i), local);
    }
    sums = local;
  });
  double lanes[16];
  std::memcpy(lanes, &sums, sizeof(lanes));
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// x - x is 0 for finite x and NaN otherwise; NaN spreads through the sum.
bool SegmentIsFinite(const ConstVectorView& values) {
  float sum = 0;
  WithElementType(values.dtype, [&]<typename T>(T*) {
    sum = SumChunks(values.size, [&](int64_t i, int64_t count) {
      const V16 x = LoadFirst(values.As<T>() + i, count);
      return x - x;
    });
  });
  return sum == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(AddSegment);
HWY_EXPORT(ScaleSegment);
HWY_EXPORT(AxpySegment);
HWY_EXPORT(SumSquaresOfSegment);
HWY_EXPORT(SegmentIsFinite);

namespace {

// body(begin, count) for each segment of `size` elements.
template <typename Body>
void ForSegments(const KernelContext& context, int64_t size, const Body& body) {
  context.team->For({.count = size, .grain = kSegmentElements},
                    [&](int64_t begin, int64_t end) { body(begin, end - begin); });
}

}  // namespace

void Add(const KernelContext& context, const AddArgs& args) {
  GANTRY_CHECK(args.a.size == args.sum.size && args.b.size == args.sum.size)
      << args.a.size << ", " << args.b.size << ", " << args.sum.size;
  ForSegments(context, args.sum.size, [&](int64_t begin, int64_t count) {
    const AddArgs segment = {.a = args.a.Part(begin, count),
                             .b = args.b.Part(begin, count),
                             .sum = args.sum.Part(begin, count)};
    HWY_DYNAMIC_DISPATCH(AddSegment)(segment);
  });
}

void Cast(const KernelContext& context, const CastArgs& args) {
  GANTRY_CHECK_EQ(args.from.size, args.to.size);
  ForSegments(context, args.to.size, [&](int64_t begin, int64_t count) {
    const ConstVectorView from = args.from.Part(begin, count);
    const VectorView to = args.to.Part(begin, count);
    if (from.dtype == DType::kF32) {
      ConvertFromFloat(from.As<float>(), to, Accumulate::kOverwrite);
    } else if (to.dtype == DType::kF32) {
      ConvertToFloat(from, to.As<float>());
    } else {
      GANTRY_CHECK(from.dtype == to.dtype) << from.dtype << " to " << to.dtype;
      std::memmove(to.data, from.data, static_cast<size_t>(count * SizeOf(to.dtype)));
    }
  });
}

void Scale(const KernelContext& context, VectorView values, float factor) {
  ForSegments(context, values.size, [&](int64_t begin, int64_t count) {
    HWY_DYNAMIC_DISPATCH(ScaleSegment)(values.Part(begin, count), factor);
  });
}

void SetZero(const KernelContext& context, VectorView values) {
  ForSegments(context, values.size,
              [&](int64_t begin, int64_t count) { FillZero(values.Part(begin, count)); });
}

void Axpy(const KernelContext& context, const AxpyArgs& args) {
  GANTRY_CHECK_EQ(args.x.size, args.y.size);
  ForSegments(context, args.y.size, [&](int64_t begin, int64_t count) {
    const AxpyArgs segment = {
        .alpha = args.alpha, .x = args.x.Part(begin, count), .y = args.y.Part(begin, count)};
    HWY_DYNAMIC_DISPATCH(AxpySegment)(segment);
  });
}

void SumSquares(const KernelContext& context, ConstVectorView values, std::span<double> partials) {
  GANTRY_CHECK_EQ(static_cast<int64_t>(partials.size()), SegmentCount(values.size));
  ForSegments(context, values.size, [&](int64_t begin, int64_t count) {
    partials[static_cast<size_t>(begin / kSegmentElements)] =
        HWY_DYNAMIC_DISPATCH(SumSquaresOfSegment)(values.Part(begin, count));
  });
}

bool AllFinite(const KernelContext& context, ConstVectorView values) {
  std::atomic<bool> finite = true;
  ForSegments(context, values.size, [&](int64_t begin, int64_t count) {
    if (!HWY_DYNAMIC_DISPATCH(SegmentIsFinite)(values.Part(begin, count))) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  return finite.load(std::memory_order_relaxed);
}

}  // namespace gantry
#endif  // HWY_ONCE
