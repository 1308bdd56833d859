#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/norm_launch.cuh"
#include "kernels/cuda/rms_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

void CheckGroups(MatrixShape shape, int64_t groups, int64_t channels) {
  GANTRY_CHECK(groups > 0 && shape.cols == groups * channels)
      << shape.cols << " columns, " << groups << " groups of " << channels;
  GANTRY_CHECK(groups == 1 || shape.rows * groups < (int64_t{1} << 32));
}

}  // namespace

int RmsNormForward(CudaStream stream, const RmsNormForwardArgs& args) {
  GANTRY_CHECK_EQ(args.residual.has_value(), args.sum.has_value());
  CheckGroups(ShapeOf(args.x), args.groups, args.weight.size);
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.rstd.size()), args.x.rows * args.groups);
  CheckMatrix(args.y, ShapeOf(args.x), args.x.dtype, "y");
  if (args.residual.has_value()) {
    CheckMatrix(*args.residual, ShapeOf(args.x), args.x.dtype, "residual");
    CheckMatrix(*args.sum, ShapeOf(args.x), args.x.dtype, "sum");
  }
  if (args.x.rows == 0) return 0;
  const bool aligned =
      PacksOfEight(args.x) && PacksOfEight(args.y) && PacksOfEight(args.weight) &&
      (!args.residual.has_value() || (PacksOfEight(*args.residual) && PacksOfEight(*args.sum)));
  int error = 0;
  WithActivationAndWeight(args.x.dtype, args.weight.dtype, [&]<typename T, typename W>(T*, W*) {
    const NormForward<T, W> norm{.rows = args.x.rows * args.groups,
                                 .cols = args.weight.size,
                                 .epsilon = args.epsilon,
                                 .x = NormRowsOf<T>(args.x, args.groups),
                                 .residual = NormRowsOf<T>(args.residual, args.groups),
                                 .sum = NormRowsOf<T>(args.sum, args.groups),
                                 .y = NormRowsOf<T>(args.y, args.groups),
                                 .weight = args.weight.As<W>(),
                                 .bias = nullptr,
                                 .mean = nullptr,
                                 .rstd = args.rstd.data()};
    error = LaunchNormForward<false>(stream, norm, aligned);
  });
  return error;
}

Bytes RmsNormBackwardWorkspace(MatrixShape shape) { return NormBackwardWorkspace(shape, 1); }

int RmsNormBackward(CudaStream stream, const RmsNormBackwardArgs& args) {
  const MatrixShape matrix = ShapeOf(args.h);
  CheckGroups(matrix, args.groups, args.weight.size);
  CheckMatrix(args.grad_y, matrix, args.h.dtype, "grad_y");
  CheckMatrix(args.grad_h, matrix, args.h.dtype, "grad_h");
  if (args.grad_residual) CheckMatrix(*args.grad_residual, matrix, args.h.dtype, "grad_residual");
  const MatrixShape shape{.rows = matrix.rows * args.groups, .cols = args.weight.size};
  const NormBlocks blocks = NormBackwardBlocks(shape);
  const int64_t sums_bytes = args.grad_weight ? blocks.blocks * shape.cols * 4 : 0;
  if (args.grad_weight) {
    GANTRY_CHECK_LE(shape.cols, kRmsNormChannelsMax);
    GANTRY_CHECK_GE(static_cast<int64_t>(args.workspace.size()),
                    cuda::RmsNormBackwardWorkspace(shape).count());
  }
  auto* sums = reinterpret_cast<float*>(args.workspace.data());
  int error = 0;
  if (shape.rows > 0) {
    const bool aligned = (args.groups == 1 || shape.cols % 8 == 0) && PacksOfEight(args.h) &&
                         PacksOfEight(args.grad_y) && PacksOfEight(args.grad_h) &&
                         PacksOfEight(args.weight) &&
                         (!args.grad_residual || PacksOfEight(*args.grad_residual));
    WithActivationAndWeight(args.h.dtype, args.weight.dtype, [&]<typename T, typename W>(T*, W*) {
      const NormBackward<T, W> norm{.rows = shape.rows,
                                    .cols = shape.cols,
                                    .block_rows = blocks.rows_each,
                                    .h = NormRowsOf<T>(args.h, args.groups),
                                    .grad_y = NormRowsOf<T>(args.grad_y, args.groups),
                                    .grad_residual = NormRowsOf<T>(args.grad_residual, args.groups),
                                    .grad_h = NormRowsOf<T>(args.grad_h, args.groups),
                                    .weight = args.weight.As<W>(),
                                    .mean = nullptr,
                                    .rstd = args.rstd.data(),
                                    .weight_sums = args.grad_weight ? sums : nullptr,
                                    .bias_sums = nullptr};
      error = LaunchNormBackward<false>(stream, norm, aligned);
    });
  }
  if (error != 0 || !args.grad_weight) return error;
  return ColumnSums(stream, {.values = ViewOf(std::span<const float>(sums, sums_bytes / 4),
                                              {.rows = blocks.blocks, .cols = shape.cols}),
                             .sums = *args.grad_weight,
                             .accumulate = args.accumulate,
                             .workspace = args.workspace.subspan(sums_bytes)});
}

}  // namespace gantry::cuda
