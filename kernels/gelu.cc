#include "kernels/gelu.h"

#include <algorithm>
#include <cstdint>

#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gelu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// Lanes of `negative` where `sign` is below zero, of `other` elsewhere.
HWY_INLINE V16 Select(const V16& sign, const V16& negative, const V16& other) {
  V16 out;
  GANTRY_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    const FloatRegister zero = {};
    out.r[i] = sign.r[i] < zero ? negative.r[i] : other.r[i];
  }
  return out;
}

// erfc(z) / 2 for z >= 0, to 1.2e-7 relative: the Chebyshev fit of Numerical Recipes, section 6.2.
HWY_INLINE V16 HalfErfc(const V16& z) {
  const V16 t = Set(1.0f) / (Set(1.0f) + Set(0.5f) * z);
  V16 p = Set(0.17087277f);
  p = p * t + Set(-0.82215223f);
  p = p * t + Set(1.48851587f);
  p = p * t + Set(-1.13520398f);
  p = p * t + Set(0.27886807f);
  p = p * t + Set(-0.18628806f);
  p = p * t + Set(0.09678418f);
  p = p * t + Set(0.37409196f);
  p = p * t + Set(1.00002368f);
  p = p * t + Set(-1.26551223f);
  return Set(0.5f) * (t * Exp(p - z * z));
}

// The probability that a normal variable is below x.
HWY_INLINE V16 NormalBelow(const V16& x) {
  const V16 z = Max(x, Zero() - x) * Set(0.70710678118654752f);
  const V16 tail = HalfErfc(z);
  return Select(x, tail, Set(1.0f) - tail);
}

struct Gelu {
  V16 value;
  V16 slope;
};

template <GeluForm kForm>
HWY_INLINE Gelu GeluOf(const V16& x) {
  if constexpr (kForm == GeluForm::kExact) {
    const V16 below = NormalBelow(x);
    const V16 density = Set(0.39894228040143268f) * Exp(Set(-0.5f) * (x * x));
    return {.value = x * below, .slope = below + x * density};
  } else {
    // (1 + tanh u) / 2 is the logistic function s of 2 u; s (1 - s) without cancellation.
    const V16 square = x * x;
    const V16 twice_u = x * (Set(1.5957691216057308f) + Set(0.071354816272600248f) * square);
    const V16 e = Exp(Zero() - Max(twice_u, Zero() - twice_u));
    const V16 larger = Set(1.0f) / (Set(1.0f) + e);
    const V16 smaller = e * larger;
    const V16 s = Select(x, smaller, larger);
    const V16 u_slope = Set(1.5957691216057308f) + Set(0.21406444881780073f) * square;
    return {.value = x * s, .slope = s + (x * (smaller * larger)) * u_slope};
  }
}

template <GeluForm kForm>
void ForwardRow(const GeluForwardArgs& args, int64_t row) {
  WithElementType(args.x.dtype, [&]<typename T>(T*) {
    const T* x = args.x.Row<T>(row);
    T* activated = args.activated.Row<T>(row);
    for (int64_t i = 0; i < args.x.cols; i += 16) {
      const int64_t count = args.x.cols - i;
      StoreFirst(GeluOf<kForm>(LoadFirst(x + i, count)).value, activated + i, count);
    }
  });
}

template <GeluForm kForm>
void BackwardRow(const GeluBackwardArgs& args, int64_t row) {
  WithElementType(args.x.dtype, [&]<typename T>(T*) {
    const T* x = args.x.Row<T>(row);
    const T* grad = args.grad_activated.Row<T>(row);
    T* grad_x = args.grad_x.Row<T>(row);
    for (int64_t i = 0; i < args.x.cols; i += 16) {
      const int64_t count = args.x.cols - i;
      const V16 slope = GeluOf<kForm>(LoadFirst(x + i, count)).slope;
      StoreFirst(LoadFirst(grad + i, count) * slope, grad_x + i, count);
    }
  });
}

void GeluForwardRow(const GeluForwardArgs& args, int64_t row) {
  args.form == GeluForm::kExact ? ForwardRow<GeluForm::kExact>(args, row)
                                : ForwardRow<GeluForm::kTanh>(args, row);
}
void GeluBackwardRow(const GeluBackwardArgs& args, int64_t row) {
  args.form == GeluForm::kExact ? BackwardRow<GeluForm::kExact>(args, row)
                                : BackwardRow<GeluForm::kTanh>(args, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(GeluForwardRow);
HWY_EXPORT(GeluBackwardRow);

namespace {

// Rows per task: about as much work as 16 Ki elements.
int64_t RowGrain(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

}  // namespace

void GeluForward(const KernelContext& context, const GeluForwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.x);
  CheckMatrix(args.activated, shape, args.x.dtype, "activated");
  context.team->For({.count = shape.rows, .grain = RowGrain(shape.cols)},
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        HWY_DYNAMIC_DISPATCH(GeluForwardRow)(args, row);
                      }
                    });
}

void GeluBackward(const KernelContext& context, const GeluBackwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.x);
  CheckMatrix(args.grad_activated, shape, args.x.dtype, "grad_activated");
  CheckMatrix(args.grad_x, shape, args.x.dtype, "grad_x");
  context.team->For({.count = shape.rows, .grain = RowGrain(shape.cols)},
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        HWY_DYNAMIC_DISPATCH(GeluBackwardRow)(args, row);
                      }
                    });
}

}  // namespace gantry
#endif  // HWY_ONCE
