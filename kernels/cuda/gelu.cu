#include <cstdint>
#include <optional>

#include "base/check.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/rowwise.cuh"
#include "kernels/gelu.h"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr float kHalfSquareRoot = 0.70710678118654752F;  // sqrt(1/2)
constexpr float kGauss = 0.39894228040143268F;           // 1 / sqrt(2 pi)
constexpr float kTanhFactor = 0.79788456080286536F;      // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

struct Identity {
  __device__ static float Value(float x) { return x; }
};
struct ExactGelu {
  // x times the normal distribution's share below x.
  __device__ static float Share(float x) { return 0.5F * (1.0F + erff(x * kHalfSquareRoot)); }
  __device__ static float Value(float x) { return x * Share(x); }
  __device__ static float Slope(float x) { return Share(x) + x * (kGauss * expf(-0.5F * x * x)); }
};
struct TanhGelu {
  __device__ static float Tanh(float x) { return tanhf(kTanhFactor * (x + kCubic * x * x * x)); }
  __device__ static float Value(float x) { return 0.5F * x * (1.0F + Tanh(x)); }
  __device__ static float Slope(float x) {
    const float tanh = Tanh(x);
    const float inner = kTanhFactor * (1.0F + 3.0F * kCubic * x * x);
    return 0.5F * (1.0F + tanh) + 0.5F * x * (1.0F - tanh * tanh) * inner;
  }
};

template <typename T, typename W>
struct Operands {
  int64_t rows;
  int64_t cols;
  Rows<const T> x;
  const W* bias;       // or null
  Rows<const T> grad;  // null: forward
  Rows<T> out;
};

template <typename T, typename W, typename Function, bool kBackward, int kPack>
__global__ void __launch_bounds__(kRowwiseThreads) GeluKernel(Operands<T, W> args) {
  ForRowsAndPacks<kPack>(args.rows, args.cols, [&]<int kCount>(int64_t row, int64_t col) {
    float x[kCount];
    float bias[kCount] = {};
    LoadPack<T, kCount>(args.x[row] + col, x);
    if (args.bias != nullptr) LoadPack<W, kCount>(args.bias + col, bias);
    if constexpr (kBackward) {
      float grad[kCount];
      LoadPack<T, kCount>(args.grad[row] + col, grad);
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = grad[i] * Function::Slope(x[i] + bias[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = Function::Value(x[i] + bias[i]);
    }
    StorePack<T, kCount>(args.out[row] + col, x);
  });
}

template <typename Function, bool kBackward>
int Run(CudaStream stream, const ConstMatrixView& x, const std::optional<ConstVectorView>& bias,
        const std::optional<ConstMatrixView>& grad, const MatrixView& out) {
  const MatrixShape shape = ShapeOf(x);
  CheckMatrix(out, shape, x.dtype, "output");
  if (grad) CheckMatrix(*grad, shape, x.dtype, "gradient");
  if (bias) GANTRY_CHECK_EQ(bias->size, shape.cols);
  if (shape.rows == 0 || shape.cols == 0) return 0;
  const bool aligned = PacksOfEight(x) && PacksOfEight(out) && (!grad || PacksOfEight(*grad)) &&
                       (!bias || PacksOfEight(*bias));
  const LaunchShape launch = RowwiseShape(shape.rows, shape.cols, aligned ? 8 : 1);
  int error = 0;
  WithActivationAndWeight(
      x.dtype, bias ? bias->dtype : x.dtype, [&]<typename T, typename W>(T*, W*) {
        const Operands<T, W> operands{.rows = shape.rows,
                                      .cols = shape.cols,
                                      .x = RowsOf<T>(x),
                                      .bias = bias ? bias->As<W>() : nullptr,
                                      .grad = RowsOf<T>(grad),
                                      .out = RowsOf<T>(out)};
        error = aligned ? GANTRY_LAUNCH((GeluKernel<T, W, Function, kBackward, 8>), launch, stream,
                                        operands)
                        : GANTRY_LAUNCH((GeluKernel<T, W, Function, kBackward, 1>), launch, stream,
                                        operands);
      });
  return error;
}

}  // namespace

int AddBias(CudaStream stream, const AddBiasArgs& args) {
  return Run<Identity, false>(stream, args.x, args.bias, std::nullopt, args.y);
}

int GeluForward(CudaStream stream, const GeluForwardArgs& args) {
  return args.form == GeluForm::kExact
             ? Run<ExactGelu, false>(stream, args.x, args.bias, std::nullopt, args.y)
             : Run<TanhGelu, false>(stream, args.x, args.bias, std::nullopt, args.y);
}

int GeluBackward(CudaStream stream, const GeluBackwardArgs& args) {
  return args.form == GeluForm::kExact
             ? Run<ExactGelu, true>(stream, args.x, args.bias, args.grad_y, args.grad_x)
             : Run<TanhGelu, true>(stream, args.x, args.bias, args.grad_y, args.grad_x);
}

}  // namespace gantry::cuda
