#include "kernels/columns.h"

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/columns.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

void ScaleRow(const ScaleColumnsArgs& args, int64_t row) {
  WithElementType(args.x.dtype, [&]<typename T>(T*) {
    const T* x = args.x.Row<T>(row);
    T* y = args.y.Row<T>(row);
    for (int64_t i = 0; i < args.x.cols; i += 16) {
      const int64_t count = args.x.cols - i;
      const V16 factor = Set(args.scale) * LoadFirst(args.factors.data() + i, count);
      V16 value = LoadFirst(x + i, count) * (factor + Set(args.offset));
      if (args.accumulate == Accumulate::kAdd) value = LoadFirst(y + i, count) + value;
      StoreFirst(value, y + i, count);
    }
  });
}

void AddToRow(const AddToRowsArgs& args, int64_t row) {
  WithElementType(args.y.dtype, [&]<typename T>(T*) {
    WithElementType(args.values.dtype, [&]<typename V>(V*) {
      T* y = args.y.Row<T>(row);
      const V* values = args.values.As<V>();
      for (int64_t i = 0; i < args.y.cols; i += 16) {
        const int64_t count = args.y.cols - i;
        const V16 added = Set(args.factor) * LoadFirst(values + i, count);
        StoreFirst(LoadFirst(y + i, count) + added, y + i, count);
      }
    });
  });
}

void MultiplyRow(const MultiplyElementsArgs& args, int64_t row) {
  WithElementType(args.a.dtype, [&]<typename T>(T*) {
    const T* a = args.a.Row<T>(row);
    const T* b = args.b.Row<T>(row);
    T* y = args.y.Row<T>(row);
    for (int64_t i = 0; i < args.a.cols; i += 16) {
      const int64_t count = args.a.cols - i;
      StoreFirst(LoadFirst(a + i, count) * LoadFirst(b + i, count), y + i, count);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(ScaleRow);
HWY_EXPORT(AddToRow);
HWY_EXPORT(MultiplyRow);

namespace {

// body(row) for every row, in tasks of about 16 Ki elements.
template <typename Body>
void ForRows(const KernelContext& context, MatrixShape shape, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, shape.cols));
  context.team->For({.count = shape.rows, .grain = grain}, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

}  // namespace

void ScaleColumns(const KernelContext& context, const ScaleColumnsArgs& args) {
  const MatrixShape shape = ShapeOf(args.x);
  CheckMatrix(args.y, shape, args.x.dtype, "y");
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.factors.size()), shape.cols);
  ForRows(context, shape, [&](int64_t row) { HWY_DYNAMIC_DISPATCH(ScaleRow)(args, row); });
}

void AddToRows(const KernelContext& context, const AddToRowsArgs& args) {
  GANTRY_CHECK_EQ(args.values.size, args.y.cols);
  ForRows(context, {.rows = args.y.rows, .cols = args.y.cols},
          [&](int64_t row) { HWY_DYNAMIC_DISPATCH(AddToRow)(args, row); });
}

void MultiplyElements(const KernelContext& context, const MultiplyElementsArgs& args) {
  const MatrixShape shape = ShapeOf(args.a);
  CheckMatrix(args.b, shape, args.a.dtype, "b");
  CheckMatrix(args.y, shape, args.a.dtype, "y");
  ForRows(context, shape, [&](int64_t row) { HWY_DYNAMIC_DISPATCH(MultiplyRow)(args, row); });
}

}  // namespace gantry
#endif  // HWY_ONCE
