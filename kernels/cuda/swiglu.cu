// Built with -fmad=false: products and sums are rounded apart, as on the host.
#include <cstdint>

#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/exp.cuh"
#include "kernels/cuda/rowwise.cuh"
#include "kernels/cuda/swiglu.h"
#include "kernels/swiglu.h"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

template <typename T>
struct Forward {
  int64_t rows;
  int64_t cols;
  Rows<const T> gate;
  Rows<const T> up;
  Rows<T> activated;
};

template <typename T, int kPack>
__global__ void __launch_bounds__(kRowwiseThreads) SwiGluForwardKernel(Forward<T> args) {
  ForRowsAndPacks<kPack>(args.rows, args.cols, [&]<int kCount>(int64_t row, int64_t col) {
    float gate[kCount];
    float up[kCount];
    LoadPack<T, kCount>(args.gate[row] + col, gate);
    LoadPack<T, kCount>(args.up[row] + col, up);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float silu = gate[i] / (1.0F + HostExp(0.0F - gate[i]));
      up[i] = silu * up[i];
    }
    StorePack<T, kCount>(args.activated[row] + col, up);
  });
}

template <typename T>
struct Backward {
  int64_t rows;
  int64_t cols;
  Rows<const T> gate;
  Rows<const T> up;
  Rows<const T> grad;
  Rows<T> grad_gate;
  Rows<T> grad_up;
};

template <typename T, int kPack>
__global__ void __launch_bounds__(kRowwiseThreads) SwiGluBackwardKernel(Backward<T> args) {
  ForRowsAndPacks<kPack>(args.rows, args.cols, [&]<int kCount>(int64_t row, int64_t col) {
    float gate[kCount];
    float up[kCount];
    float grad[kCount];
    LoadPack<T, kCount>(args.gate[row] + col, gate);
    LoadPack<T, kCount>(args.up[row] + col, up);
    LoadPack<T, kCount>(args.grad[row] + col, grad);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float s = 1.0F / (1.0F + HostExp(0.0F - gate[i]));
      const float slope = s * (1.0F + gate[i] * (1.0F - s));
      const float grad_gate = (grad[i] * up[i]) * slope;
      up[i] = grad[i] * (gate[i] * s);
      gate[i] = grad_gate;
    }
    StorePack<T, kCount>(args.grad_gate[row] + col, gate);
    StorePack<T, kCount>(args.grad_up[row] + col, up);
  });
}

}  // namespace

int SwiGluForward(CudaStream stream, const SwiGluForwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.gate);
  CheckMatrix(args.up, shape, args.gate.dtype, "up");
  CheckMatrix(args.activated, shape, args.gate.dtype, "activated");
  if (shape.rows == 0 || shape.cols == 0) return 0;
  const bool aligned =
      PacksOfEight(args.gate) && PacksOfEight(args.up) && PacksOfEight(args.activated);
  const LaunchShape launch = RowwiseShape(shape.rows, shape.cols, aligned ? 8 : 1);
  int error = 0;
  WithDeviceElementType(args.gate.dtype, [&]<typename T>(T*) {
    const Forward<T> forward{.rows = shape.rows,
                             .cols = shape.cols,
                             .gate = RowsOf<T>(args.gate),
                             .up = RowsOf<T>(args.up),
                             .activated = RowsOf<T>(args.activated)};
    error = aligned ? GANTRY_LAUNCH((SwiGluForwardKernel<T, 8>), launch, stream, forward)
                    : GANTRY_LAUNCH((SwiGluForwardKernel<T, 1>), launch, stream, forward);
  });
  return error;
}

int SwiGluBackward(CudaStream stream, const SwiGluBackwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.gate);
  CheckMatrix(args.up, shape, args.gate.dtype, "up");
  CheckMatrix(args.grad_activated, shape, args.gate.dtype, "grad_activated");
  CheckMatrix(args.grad_gate, shape, args.gate.dtype, "grad_gate");
  CheckMatrix(args.grad_up, shape, args.gate.dtype, "grad_up");
  if (shape.rows == 0 || shape.cols == 0) return 0;
  const bool aligned = PacksOfEight(args.gate) && PacksOfEight(args.up) &&
                       PacksOfEight(args.grad_activated) && PacksOfEight(args.grad_gate) &&
                       PacksOfEight(args.grad_up);
  const LaunchShape launch = RowwiseShape(shape.rows, shape.cols, aligned ? 8 : 1);
  int error = 0;
  WithDeviceElementType(args.gate.dtype, [&]<typename T>(T*) {
    const Backward<T> backward{.rows = shape.rows,
                               .cols = shape.cols,
                               .gate = RowsOf<T>(args.gate),
                               .up = RowsOf<T>(args.up),
                               .grad = RowsOf<T>(args.grad_activated),
                               .grad_gate = RowsOf<T>(args.grad_gate),
                               .grad_up = RowsOf<T>(args.grad_up)};
    error = aligned ? GANTRY_LAUNCH((SwiGluBackwardKernel<T, 8>), launch, stream, backward)
                    : GANTRY_LAUNCH((SwiGluBackwardKernel<T, 1>), launch, stream, backward);
  });
  return error;
}

}  // namespace gantry::cuda
