#include "kernels/swiglu.h"

#include <algorithm>
#include <cstdint>

#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

HWY_INLINE V16 Sigmoid(const V16& x) { return Set(1.0f) / (Set(1.0f) + Exp(Zero() - x)); }

void SwiGluForwardRow(const SwiGluForwardArgs& args, int64_t row) {
  WithElementType(args.gate.dtype, [&]<typename T>(T*) {
    const T* gate = args.gate.Row<T>(row);
    const T* up = args.up.Row<T>(row);
    T* activated = args.activated.Row<T>(row);
    for (int64_t i = 0; i < args.gate.cols; i += 16) {
      const int64_t count = args.gate.cols - i;
      const V16 g = LoadFirst(gate + i, count);
      const V16 silu = g / (Set(1.0f) + Exp(Zero() - g));
      StoreFirst(silu * LoadFirst(up + i, count), activated + i, count);
    }
  });
}

void SwiGluBackwardRow(const SwiGluBackwardArgs& args, int64_t row) {
  WithElementType(args.gate.dtype, [&]<typename T>(T*) {
    const T* gate = args.gate.Row<T>(row);
    const T* up = args.up.Row<T>(row);
    const T* grad = args.grad_activated.Row<T>(row);
    T* grad_gate = args.grad_gate.Row<T>(row);
    T* grad_up = args.grad_up.Row<T>(row);
    for (int64_t i = 0; i < args.gate.cols; i += 16) {
      const int64_t count = args.gate.cols - i;
      const V16 g = LoadFirst(gate + i, count);
      const V16 u = LoadFirst(up + i, count);
      const V16 d = LoadFirst(grad + i, count);
      const V16 s = Sigmoid(g);
      const V16 slope = s * (Set(1.0f) + g * (Set(1.0f) - s));
      StoreFirst((d * u) * slope, grad_gate + i, count);
      StoreFirst(d * (g * s), grad_up + i, count);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(SwiGluForwardRow);
HWY_EXPORT(SwiGluBackwardRow);

namespace {

// Rows per task: about as much work as 16 Ki elements.
int64_t RowGrain(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

}  // namespace

void SwiGluForward(const KernelContext& context, const SwiGluForwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.gate);
  CheckMatrix(args.up, shape, args.gate.dtype, "up");
  CheckMatrix(args.activated, shape, args.gate.dtype, "activated");
  context.team->For({.count = shape.rows, .grain = RowGrain(shape.cols)},
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        HWY_DYNAMIC_DISPATCH(SwiGluForwardRow)(args, row);
                      }
                    });
}

void SwiGluBackward(const KernelContext& context, const SwiGluBackwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.gate);
  CheckMatrix(args.up, shape, args.gate.dtype, "up");
  CheckMatrix(args.grad_activated, shape, args.gate.dtype, "grad_activated");
  CheckMatrix(args.grad_gate, shape, args.gate.dtype, "grad_gate");
  CheckMatrix(args.grad_up, shape, args.gate.dtype, "grad_up");
  context.team->For({.count = shape.rows, .grain = RowGrain(shape.cols)},
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        HWY_DYNAMIC_DISPATCH(SwiGluBackwardRow)(args, row);
                      }
                    });
}

}  // namespace gantry
#endif  // HWY_ONCE
