// A block computes 128 x 128 elements of C = A B, eight warps 64 x 32 each, from tiles 32 deep that
// arrive in three stages.
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/async_copies.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/grouped_matmul.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr int kTile = 128;  // rows and columns of C
constexpr int kDepth = 32;
constexpr int kStages = 3;
constexpr int kThreads = 256;
constexpr int kWarpRows = 64;
constexpr int kWarpColumns = 32;
constexpr int kFree = 8;  // elements between rows, so that neighbouring rows lie in other banks

// An operand's tile: kTile rows of kDepth, or kDepth rows of kTile where the sum goes down its
// rows.
template <bool kTransposed>
struct OperandTile {
  static constexpr int kRows = kTransposed ? kDepth : kTile;
  static constexpr int kCols = kTransposed ? kTile : kDepth;
  static constexpr int kPitch = kCols + kFree;
  static constexpr int kElements = kRows * kPitch;
  // Where element (outer, inner) is: `inner` goes along the sum.
  __device__ static int At(int outer, int inner) {
    return kTransposed ? inner * kPitch + outer : outer * kPitch + inner;
  }
};

template <typename T, typename C>
struct Product {
  Rows<const T> a;
  Rows<const T> b;
  Rows<C> c;
  int cols;         // of C
  int weight_rows;  // of a group: out
  int weight_cols;  // in
  const int32_t* offsets;
  int groups;
  Accumulate accumulate;
};

// Starts copying a tile whose first element is (outer, inner), zeros beyond the ends.
template <bool kTransposed, typename T>
__device__ __forceinline__ void StartOperand(AsyncCopies& copies, T* to, const Rows<const T>& from,
                                             int outer, int outer_end, int inner, int inner_end) {
  using Tile = OperandTile<kTransposed>;
  constexpr int kChunks = Tile::kCols / 8;
  const int first_row = kTransposed ? inner : outer;
  const int row_end = kTransposed ? inner_end : outer_end;
  const int first_col = kTransposed ? outer : inner;
  const int col_end = kTransposed ? outer_end : inner_end;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * kChunks; i += kThreads) {
    const int row = i / kChunks;
    const int col = i % kChunks * 8;
    const bool inside = first_row + row < row_end && first_col + col < col_end;
    copies.Start(to + row * Tile::kPitch + col,
                 inside ? from[first_row + row] + first_col + col : from.data, inside);
  }
}

// Which group the tile of rows `tile` belongs to, when each group's last tile may be short, and
// which of the group's it is. Group -1: beyond the last.
struct GroupTile {
  int group;
  int tile;
};
__device__ __forceinline__ GroupTile Locate(const int32_t* offsets, int groups, int tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  int before = 0;
  for (int first = 0; first < groups; first += kWarpThreads) {
    const int group = first + lane;
    const int rows = group < groups ? offsets[group + 1] - offsets[group] : 0;
    const int own = (rows + kTile - 1) / kTile;
    int through = own;
#pragma unroll
    for (int width = 1; width < kWarpThreads; width *= 2) {
      const int lower = __shfl_up_sync(kWholeWarp, through, static_cast<unsigned>(width));
      if (lane >= width) through += lower;
    }
    const uint32_t reached = __ballot_sync(kWholeWarp, before + through > tile ? 1 : 0);
    const int last = __shfl_sync(kWholeWarp, through, kWarpThreads - 1);
    if (reached != 0) {
      const int found = __ffs(static_cast<int>(reached)) - 1;
      const int begin = before + __shfl_sync(kWholeWarp, through - own, found);
      return {.group = first + found, .tile = tile - begin};
    }
    before += last;
  }
  return {.group = -1, .tile = 0};
}

template <typename T, typename C>
__device__ __forceinline__ void StorePair(C* to, float first, float second, Accumulate accumulate) {
  if (accumulate == Accumulate::kAdd) {
    first += ToFloat(to[0]);
    second += ToFloat(to[1]);
  }
  const float values[2] = {first, second};
  StorePack<C, 2>(to, values);
}

// kSumsRows: the sum goes down the rows of both operands, a block of the grid's z is a group; else
// a block of its y is a tile of rows.
template <typename T, typename C, bool kSumsRows, bool kBTransposed>
__global__ void __launch_bounds__(kThreads) ProductKernel(Product<T, C> product) {
  using ATile = OperandTile<kSumsRows>;
  using BTile = OperandTile<kBTransposed>;
  GANTRY_DYNAMIC_SHARED(memory);
  T* tiles = reinterpret_cast<T*>(memory);
  GroupTile at{.group = static_cast<int>(blockIdx.z), .tile = static_cast<int>(blockIdx.y)};
  if constexpr (!kSumsRows) at = Locate(product.offsets, product.groups, at.tile);
  if (at.group < 0) return;
  const int begin = product.offsets[at.group];
  const int rows = product.offsets[at.group + 1] - begin;
  const int row = at.tile * kTile;
  const int col = static_cast<int>(blockIdx.x) * kTile;
  const int64_t weight = static_cast<int64_t>(at.group) * product.weight_rows;
  const int row_end = kSumsRows ? product.weight_rows : rows;
  const int depth = kSumsRows ? rows : kBTransposed ? product.weight_rows : product.weight_cols;
  const Rows<const T> a{.data = product.a[begin], .stride = product.a.stride};
  const Rows<const T> b{.data = product.b[kSumsRows ? begin : weight], .stride = product.b.stride};
  const Rows<C> c{.data = product.c[kSumsRows ? weight : begin], .stride = product.c.stride};

  AsyncCopies copies;
  const int steps = (depth + kDepth - 1) / kDepth;
  const auto start = [&](int step) {
    if (step < steps) {
      T* to = tiles + step % kStages * (ATile::kElements + BTile::kElements);
      StartOperand<kSumsRows>(copies, to, a, row, row_end, step * kDepth, depth);
      StartOperand<kBTransposed>(copies, to + ATile::kElements, b, col, product.cols, step * kDepth,
                                 depth);
    }
    copies.EndGroup();
  };
  for (int step = 0; step < kStages - 1; ++step) start(step);
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int warp_row = warp % (kTile / kWarpRows) * kWarpRows;
  const int warp_col = warp / (kTile / kWarpRows) * kWarpColumns;
  float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    copies.Wait<kStages - 2>();
    __syncthreads();  // this step's tiles are there, those before it are free
    start(step + kStages - 1);
    const T* a_tile = tiles + step % kStages * (ATile::kElements + BTile::kElements);
    const T* b_tile = a_tile + ATile::kElements;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      FragmentB right[kWarpColumns / 8];
#pragma unroll
      for (int j = 0; j < kWarpColumns / 8; j += 2) {
        LoadB<kBTransposed>(b_tile + BTile::At(warp_col + j * 8, k), BTile::kPitch, right[j],
                            right[j + 1]);
      }
#pragma unroll
      for (int i = 0; i < kWarpRows / 16; ++i) {
        const FragmentA left =
            LoadA<kSumsRows>(a_tile + ATile::At(warp_row + i * 16, k), ATile::kPitch);
        MultiplyAdd<T>(left, right, sums[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kWarpRows / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpColumns / 8; ++j) {
      const int to_row = row + warp_row + i * 16 + FragmentRow();
      const int to_col = col + warp_col + j * 8 + FragmentColumn();
      if (to_col >= product.cols) continue;
      const float(&sum)[4] = sums[i][j];
      if (to_row < row_end) {
        StorePair<T>(c[to_row] + to_col, sum[0], sum[1], product.accumulate);
      }
      if (to_row + 8 < row_end) {
        StorePair<T>(c[to_row + 8] + to_col, sum[2], sum[3], product.accumulate);
      }
    }
  }
}

template <typename T, typename C, bool kSumsRows, bool kBTransposed>
int Launch(CudaStream stream, const Product<T, C>& product, Dimensions grid) {
  constexpr int64_t kStageBytes =
      2 * (OperandTile<kSumsRows>::kElements + OperandTile<kBTransposed>::kElements);
  GANTRY_CHECK(grid.y <= 65535 && grid.z <= 65535) << grid.y << " tiles of rows";
  if (grid.count() == 0) return 0;
  const LaunchShape launch{
      .grid = grid, .block = {.x = kThreads}, .shared_bytes = kStages * kStageBytes};
  return GANTRY_LAUNCH((ProductKernel<T, C, kSumsRows, kBTransposed>), launch, stream, product);
}

uint32_t Tiles(int64_t extent) { return static_cast<uint32_t>(CeilDiv(extent, kTile)); }

// What all three have in common: x is [rows, in], y [rows, out], weight [groups * out, in].
int Groups(const ConstMatrixView& x, const ConstMatrixView& y, const ConstMatrixView& weight,
           std::span<const int32_t> offsets) {
  GANTRY_CHECK_GE(offsets.size(), size_t{1});
  const auto groups = static_cast<int64_t>(offsets.size()) - 1;
  CheckMatrix(y, {.rows = x.rows, .cols = y.cols}, x.dtype, "rows");
  CheckMatrix(weight, {.rows = groups * y.cols, .cols = x.cols}, weight.dtype, "weight");
  GANTRY_CHECK(x.cols % 8 == 0 && y.cols % 8 == 0) << x.cols << " to " << y.cols << " features";
  GANTRY_CHECK(PacksOfEight(x) && PacksOfEight(y) && PacksOfEight(weight))
      << "rows are not aligned to 16 bytes";
  return static_cast<int>(groups);
}

// Calls function(T*) for bf16 and f16.
template <typename Function>
void WithHalfType(DType dtype, const Function& function) {
  GANTRY_CHECK(dtype == DType::kBF16 || dtype == DType::kF16) << "no grouped product of " << dtype;
  if (dtype == DType::kBF16) return function(static_cast<BFloat16*>(nullptr));
  function(static_cast<Float16*>(nullptr));
}

}  // namespace

int GroupedForward(CudaStream stream, const GroupedForwardArgs& args) {
  const int groups = Groups(args.x, args.out, args.weight, args.offsets);
  GANTRY_CHECK_EQ(args.weight.dtype, args.x.dtype);
  int error = 0;
  WithHalfType(args.x.dtype, [&]<typename T>(T*) {
    const Product<T, T> product{.a = RowsOf<T>(args.x),
                                .b = RowsOf<T>(args.weight),
                                .c = RowsOf<T>(args.out),
                                .cols = static_cast<int>(args.out.cols),
                                .weight_rows = static_cast<int>(args.out.cols),
                                .weight_cols = static_cast<int>(args.x.cols),
                                .offsets = args.offsets.data(),
                                .groups = groups,
                                .accumulate = Accumulate::kOverwrite};
    const uint32_t tiles = Tiles(args.x.rows) + static_cast<uint32_t>(groups);
    error = Launch<T, T, false, false>(stream, product, {.x = Tiles(args.out.cols), .y = tiles});
  });
  return error;
}

int GroupedBackwardInput(CudaStream stream, const GroupedBackwardInputArgs& args) {
  const int groups = Groups(args.grad_x, args.grad_out, args.weight, args.offsets);
  GANTRY_CHECK_EQ(args.weight.dtype, args.grad_x.dtype);
  int error = 0;
  WithHalfType(args.grad_x.dtype, [&]<typename T>(T*) {
    const Product<T, T> product{.a = RowsOf<T>(args.grad_out),
                                .b = RowsOf<T>(args.weight),
                                .c = RowsOf<T>(args.grad_x),
                                .cols = static_cast<int>(args.grad_x.cols),
                                .weight_rows = static_cast<int>(args.grad_out.cols),
                                .weight_cols = static_cast<int>(args.grad_x.cols),
                                .offsets = args.offsets.data(),
                                .groups = groups,
                                .accumulate = Accumulate::kOverwrite};
    const uint32_t tiles = Tiles(args.grad_x.rows) + static_cast<uint32_t>(groups);
    error = Launch<T, T, false, true>(stream, product, {.x = Tiles(args.grad_x.cols), .y = tiles});
  });
  return error;
}

int GroupedBackwardWeight(CudaStream stream, const GroupedBackwardWeightArgs& args) {
  const int groups = Groups(args.x, args.grad_out, args.grad_weight, args.offsets);
  int error = 0;
  WithActivationAndWeight(
      args.x.dtype, args.grad_weight.dtype, [&]<typename T, typename C>(T*, C*) {
        if constexpr (std::is_same_v<T, float>) {
          GANTRY_CHECK(false) << "no grouped product of f32";
        } else {
          const Product<T, C> product{.a = RowsOf<T>(args.grad_out),
                                      .b = RowsOf<T>(args.x),
                                      .c = RowsOf<C>(args.grad_weight),
                                      .cols = static_cast<int>(args.x.cols),
                                      .weight_rows = static_cast<int>(args.grad_out.cols),
                                      .weight_cols = static_cast<int>(args.x.cols),
                                      .offsets = args.offsets.data(),
                                      .groups = groups,
                                      .accumulate = args.accumulate};
          error = Launch<T, C, true, true>(stream, product,
                                           {.x = Tiles(args.x.cols),
                                            .y = Tiles(args.grad_out.cols),
                                            .z = static_cast<uint32_t>(groups)});
        }
      });
  return error;
}

}  // namespace gantry::cuda
