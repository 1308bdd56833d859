#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/norm_launch.cuh"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

void CheckForward(const LayerNormForwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.x);
  GANTRY_CHECK_EQ(args.residual.has_value(), args.sum.has_value());
  GANTRY_CHECK_EQ(args.weight.size, args.x.cols);
  if (args.bias)
    GANTRY_CHECK(args.bias->size == shape.cols && args.bias->dtype == args.weight.dtype);
  CheckMatrix(args.y, shape, args.x.dtype, "y");
  if (!args.residual.has_value()) return;
  CheckMatrix(*args.residual, shape, args.x.dtype, "residual");
  CheckMatrix(*args.sum, shape, args.x.dtype, "sum");
}

// Launches the pass over the rows; sums of weight and bias gradients go to `partial`.
int BackwardRows(CudaStream stream, const LayerNormBackwardArgs& args, const NormBlocks& blocks,
                 float* partial) {
  const MatrixShape shape = ShapeOf(args.h);
  if (shape.rows == 0) return 0;
  const bool aligned = PacksOfEight(args.h) && PacksOfEight(args.grad_y) &&
                       PacksOfEight(args.grad_h) && PacksOfEight(args.weight) &&
                       (!args.grad_residual || PacksOfEight(*args.grad_residual));
  int error = 0;
  WithActivationAndWeight(args.h.dtype, args.weight.dtype, [&]<typename T, typename W>(T*, W*) {
    const NormBackward<T, W> norm{
        .rows = shape.rows,
        .cols = shape.cols,
        .block_rows = blocks.rows_each,
        .h = NormRowsOf<T>(args.h, 1),
        .grad_y = NormRowsOf<T>(args.grad_y, 1),
        .grad_residual = NormRowsOf<T>(args.grad_residual, 1),
        .grad_h = NormRowsOf<T>(args.grad_h, 1),
        .weight = args.weight.As<W>(),
        .mean = args.mean.data(),
        .rstd = args.rstd.data(),
        .weight_sums = args.grad_weight ? partial : nullptr,
        .bias_sums = args.grad_bias ? partial + blocks.blocks * shape.cols : nullptr};
    error = LaunchNormBackward<true>(stream, norm, aligned);
  });
  return error;
}

}  // namespace

int LayerNormForward(CudaStream stream, const LayerNormForwardArgs& args) {
  CheckForward(args);
  if (args.x.rows == 0) return 0;
  const bool aligned =
      PacksOfEight(args.x) && PacksOfEight(args.y) && PacksOfEight(args.weight) &&
      (!args.bias || PacksOfEight(*args.bias)) &&
      (!args.residual.has_value() || (PacksOfEight(*args.residual) && PacksOfEight(*args.sum)));
  int error = 0;
  WithActivationAndWeight(args.x.dtype, args.weight.dtype, [&]<typename T, typename W>(T*, W*) {
    const NormForward<T, W> norm{.rows = args.x.rows,
                                 .cols = args.x.cols,
                                 .epsilon = args.epsilon,
                                 .x = NormRowsOf<T>(args.x, 1),
                                 .residual = NormRowsOf<T>(args.residual, 1),
                                 .sum = NormRowsOf<T>(args.sum, 1),
                                 .y = NormRowsOf<T>(args.y, 1),
                                 .weight = args.weight.As<W>(),
                                 .bias = args.bias ? args.bias->As<W>() : nullptr,
                                 .mean = args.mean.data(),
                                 .rstd = args.rstd.data()};
    error = LaunchNormForward<true>(stream, norm, aligned);
  });
  return error;
}

Bytes LayerNormBackwardWorkspace(MatrixShape shape) { return NormBackwardWorkspace(shape, 2); }

int LayerNormBackward(CudaStream stream, const LayerNormBackwardArgs& args) {
  const MatrixShape shape = ShapeOf(args.h);
  CheckMatrix(args.grad_y, shape, args.h.dtype, "grad_y");
  CheckMatrix(args.grad_h, shape, args.h.dtype, "grad_h");
  if (args.grad_residual) CheckMatrix(*args.grad_residual, shape, args.h.dtype, "grad_residual");
  if (args.grad_weight || args.grad_bias) {
    GANTRY_CHECK_LE(shape.cols, kLayerNormChannelsMax);
    GANTRY_CHECK_GE(static_cast<int64_t>(args.workspace.size()),
                    LayerNormBackwardWorkspace(shape).count());
  }
  const NormBlocks blocks = NormBackwardBlocks(shape);
  const int64_t elements = blocks.blocks * shape.cols;
  auto* partial = reinterpret_cast<float*>(args.workspace.data());
  int error = BackwardRows(stream, args, blocks, partial);
  for (const bool weight : {true, false}) {
    const std::optional<VectorView>& sums = weight ? args.grad_weight : args.grad_bias;
    if (error != 0 || !sums) continue;
    const std::span<const float> values(weight ? partial : partial + elements,
                                        static_cast<size_t>(elements));
    error = ColumnSums(
        stream, {.values = ViewOf(values, {.rows = blocks.blocks, .cols = shape.cols}),
                 .sums = *sums,
                 .accumulate = args.accumulate,
                 .workspace = args.workspace.subspan(static_cast<size_t>(2 * elements * 4))});
  }
  return error;
}

}  // namespace gantry::cuda
