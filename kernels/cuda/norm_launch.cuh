// How norm.cuh's kernels are launched. Included by .cu files.
#ifndef GANTRY_KERNELS_CUDA_NORM_LAUNCH_CUH_
#define GANTRY_KERNELS_CUDA_NORM_LAUNCH_CUH_

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/row_work.cuh"
#include "kernels/views.h"

namespace gantry::cuda {

// Calls launch(RowWork) with the one for such rows.
template <typename Launch>
int WithRowWork(int64_t cols, bool aligned, const Launch& launch) {
  if (!aligned) return launch(RowWork<kBlockRowThreads, 1>{});
  if (cols > kWarpColumnsMax) return launch(RowWork<kBlockRowThreads, 8>{});
  return launch(RowWork<kWarpThreads, 8>{});
}

// How the backward pass divides rows among blocks, each of which writes one row of sums.
struct NormBlocks {
  int64_t blocks;
  int64_t rows_each;
};
inline NormBlocks NormBackwardBlocks(MatrixShape shape) {
  const int64_t blocks_max = shape.cols > kWarpColumnsMax ? 512 : 1024;
  int64_t rows_each = CeilDiv(shape.rows, blocks_max);
  if (rows_each < 8) rows_each = 8;
  return {.blocks = CeilDiv(shape.rows, rows_each), .rows_each = rows_each};
}
// Of the rows of sums (`sums` to a block) and of adding them.
inline Bytes NormBackwardWorkspace(MatrixShape shape, int64_t sums) {
  const MatrixShape partial{.rows = NormBackwardBlocks(shape).blocks, .cols = shape.cols};
  return Bytes(sums * partial.rows * partial.cols * 4) + ColumnSumsWorkspace(partial);
}

template <bool kCentered, typename T, typename W>
int LaunchNormForward(CudaStream stream, const NormForward<T, W>& norm, bool aligned) {
  return WithRowWork(norm.cols, aligned, [&]<typename Work>(Work) {
    const LaunchShape shape{.grid = {.x = static_cast<uint32_t>(CeilDiv(norm.rows, Work::kGroups))},
                            .block = {.x = Work::kBlockThreads}};
    return GANTRY_LAUNCH((NormForwardKernel<T, W, Work, kCentered>), shape, stream, norm);
  });
}

template <bool kCentered, typename T, typename W>
int LaunchNormBackward(CudaStream stream, const NormBackward<T, W>& norm, bool aligned) {
  return WithRowWork(norm.cols, aligned, [&]<typename Work>(Work) {
    const int64_t sums =
        (norm.weight_sums != nullptr ? 1 : 0) + (norm.bias_sums != nullptr ? 1 : 0);
    const LaunchShape shape{
        .grid = {.x = static_cast<uint32_t>(CeilDiv(norm.rows, norm.block_rows))},
        .block = {.x = Work::kBlockThreads},
        .shared_bytes = sums * Work::kGroups * norm.cols * 4};
    return GANTRY_LAUNCH((NormBackwardKernel<T, W, Work, kCentered>), shape, stream, norm);
  });
}

// The matrix's vectors, or none.
template <typename T, typename Byte>
auto NormRowsOf(const BasicMatrixView<Byte>& view, int64_t groups) {
  using Element = typename BasicMatrixView<Byte>::template Element<T>;
  return NormRows<Element>{.data = view.template Row<T>(0),
                           .stride = view.row_stride,
                           .cols = view.cols / groups,
                           .groups = static_cast<uint32_t>(groups)};
}
template <typename T, typename Byte>
auto NormRowsOf(const std::optional<BasicMatrixView<Byte>>& view, int64_t groups) {
  using Element = typename BasicMatrixView<Byte>::template Element<T>;
  return view ? NormRowsOf<T>(*view, groups) : NormRows<Element>{nullptr, 0, 0, 1};
}

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_NORM_LAUNCH_CUH_
