#include "kernels/elementwise.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

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

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(AddSegment);
HWY_EXPORT(ScaleSegment);
HWY_EXPORT(AxpySegment);

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

void CopyRows(const KernelContext& context, const CopyRowsArgs& args) {
  const MatrixShape shape = ShapeOf(args.from);
  CheckMatrix(args.to, shape, args.from.dtype, "to");
  const auto bytes = static_cast<size_t>(shape.cols * SizeOf(args.from.dtype));
  const int64_t grain = std::max<int64_t>(1, kSegmentElements / std::max<int64_t>(1, shape.cols));
  context.team->For({.count = shape.rows, .grain = grain}, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(args.to.RowView(row).data, args.from.RowView(row).data, bytes);
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

}  // namespace gantry
#endif  // HWY_ONCE
