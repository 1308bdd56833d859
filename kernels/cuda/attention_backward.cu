// Three kernels: delta[i] = grad_out[i] . out[i]; the gradients of queries, a block to 64 queries;
// those of keys and values, a block to 64 keys, which goes through the query heads of its group in
// order. Scores are computed again, transposed where a block has keys, so that probabilities and
// their gradients are the left operand of the next product as they lie in registers.
#include <cstdint>
#include <type_traits>

#include "base/bytes.h"
#include "base/check.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/async_copies.cuh"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr int kDeltaThreads = 128;

template <typename T>
struct Backward {
  AttentionPlan plan;
  Rows<const T> q;
  Rows<const T> k;
  Rows<const T> v;
  Rows<const T> out;
  Rows<const T> grad_out;
  Rows<T> grad_q;
  Rows<T> grad_k;
  Rows<T> grad_v;
  const float* log_sum_exp;
  float* delta;  // [query_heads, rows]
};

// A block's own 64 rows stay in shared memory, the others pass through in two stages.
template <int kDim, int kValueDim>
struct BackwardTiles {
  static constexpr int kOthers = kDim <= 192 ? 32 : 16;
  static constexpr int kStages = kDim <= 192 ? 2 : 1;
  // Warps that share a strip of keys, each with a part of the columns of its gradients.
  static constexpr int kParts = kDim <= 128 ? 1 : 2;
  static constexpr int kRow = kPitch<kDim> + kPitch<kValueDim>;
  static constexpr int64_t kBytes = 2 * (kOwnRows + kStages * kOthers) * kRow;
};

// The rows of two matrices that a block goes through together.
template <typename T, int kDim, int kValueDim>
struct Stage {
  T* wide;    // kOthers rows of kDim
  T* narrow;  // kOthers rows of kValueDim

  __device__ Stage(T* memory, int stage) {
    using Tiles = BackwardTiles<kDim, kValueDim>;
    wide = memory + (stage % Tiles::kStages) * Tiles::kOthers * Tiles::kRow;
    narrow = wide + Tiles::kOthers * kPitch<kDim>;
  }
};

// A warp to a row and head.
template <typename T>
__global__ void __launch_bounds__(kDeltaThreads) DeltaKernel(Backward<T> args) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kDeltaThreads / kWarpThreads) +
                      threadIdx.x / kWarpThreads;
  if (row >= args.plan.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * args.plan.value_dim;
  float sum = 0.0F;
  for (int col = lane * 8; col < args.plan.value_dim; col += kWarpThreads * 8) {
    float out[8];
    float grad[8];
    LoadPack<T, 8>(args.out[row] + first + col, out);
    LoadPack<T, 8>(args.grad_out[row] + first + col, grad);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += out[i] * grad[i];
  }
  sum = ReduceWarp(sum, SumOf{});
  if (lane == 0) args.delta[static_cast<int64_t>(blockIdx.y) * args.plan.rows + row] = sum;
}

template <typename T, int kDim, int kValueDim>
__global__ void __launch_bounds__(kOwnRows / kStripRows * kWarpThreads)
    GradQueryKernel(Backward<T> args) {
  using Tiles = BackwardTiles<kDim, kValueDim>;
  constexpr int kThreads = kOwnRows / kStripRows * kWarpThreads;
  constexpr int kKeys = Tiles::kOthers;
  GANTRY_DYNAMIC_SHARED(memory);
  T* q_tile = reinterpret_cast<T*>(memory);
  T* grad_tile = q_tile + kOwnRows * kPitch<kDim>;
  T* stages = grad_tile + kOwnRows * kPitch<kValueDim>;
  const AttentionPlan& plan = args.plan;
  const int begin = plan.starts[blockIdx.z];
  const int length = plan.starts[blockIdx.z + 1] - begin;
  const int query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kOwnRows;
  if (query >= length) return;
  const int queries = length - query < kOwnRows ? length - query : kOwnRows;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / plan.group;
  const int key_end = plan.visibility.KeyEnd(query + queries, length);
  const int first_key = plan.visibility.FirstKey(query) / kKeys * kKeys;
  const int tiles = (key_end - first_key + kKeys - 1) / kKeys;
  const Rows<const T> k_rows = From(args.k, begin, kv_head * plan.key_dim);
  const Rows<const T> v_rows = From(args.v, begin, kv_head * plan.value_dim);

  AsyncCopies copies;
  const auto start = [&](int tile) {
    const int key = first_key + tile * kKeys;
    const Stage<T, kDim, kValueDim> stage(stages, tile);
    StartTile<kKeys, kDim, kThreads>(copies, stage.wide, From(k_rows, key, 0), key_end - key,
                                     plan.key_dim);
    StartTile<kKeys, kValueDim, kThreads>(copies, stage.narrow, From(v_rows, key, 0), key_end - key,
                                          plan.value_dim);
    copies.EndGroup();
  };
  StartTile<kOwnRows, kDim, kThreads>(
      copies, q_tile, From(args.q, begin + query, head * plan.key_dim), queries, plan.key_dim);
  StartTile<kOwnRows, kValueDim, kThreads>(
      copies, grad_tile, From(args.grad_out, begin + query, head * plan.value_dim), queries,
      plan.value_dim);
  start(0);

  const int strip = static_cast<int>(threadIdx.x) / kWarpThreads * kStripRows;
  const int row = query + strip + FragmentRow();
  const float scale_log2 = plan.scale * kLog2E;
  float log_sum_exp[2] = {};
  float delta[2] = {};
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= length) continue;
    const int64_t at = head * plan.rows + begin + row + 8 * half;
    log_sum_exp[half] = args.log_sum_exp[at] * kLog2E;
    delta[half] = args.delta[at];
  }
  float sums[kDim / 8][4] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    copies.Wait<0>();
    __syncthreads();
    if (Tiles::kStages > 1 && tile + 1 < tiles) start(tile + 1);
    const Stage<T, kDim, kValueDim> stage(stages, tile);
    const int key = first_key + tile * kKeys;
    float scores[kKeys / 8][4] = {};
    float grads[kKeys / 8][4] = {};
    AddScores<kDim>(q_tile + strip * kPitch<kDim>, stage.wide, scores);
    AddScores<kValueDim>(grad_tile + strip * kPitch<kValueDim>, stage.narrow, grads);
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = key + j * 8 + FragmentColumn() + i % 2;
        const bool seen = at < key_end && plan.visibility.Sees(row + i / 2 * 8, at);
        const float probability =
            seen ? exp2f(scores[j][i] * scale_log2 - log_sum_exp[i / 2]) : 0.0F;
        scores[j][i] = probability * (grads[j][i] - delta[i / 2]);
      }
    }
    FragmentA weights[kKeys / 16];
    FragmentsOf<T>(scores, weights);
    AddWeighted<kDim>(weights, stage.wide, sums);
    if (Tiles::kStages == 1) {
      __syncthreads();
      if (tile + 1 < tiles) start(tile + 1);
    }
  }
  __syncthreads();  // queries are no longer read
  StoreStrip(sums, plan.scale, plan.scale, q_tile + strip * kPitch<kDim>, kPitch<kDim>);
  __syncthreads();
  StoreTile<kOwnRows, kDim, kThreads>(q_tile, kPitch<kDim>,
                                      From(args.grad_q, begin + query, head * plan.key_dim),
                                      queries, plan.key_dim);
}

template <typename T, int kDim, int kValueDim>
__global__ void __launch_bounds__(kOwnRows / kStripRows * kWarpThreads *
                                  BackwardTiles<kDim, kValueDim>::kParts)
    GradKeyKernel(Backward<T> args) {
  using Tiles = BackwardTiles<kDim, kValueDim>;
  constexpr int kParts = Tiles::kParts;
  constexpr int kThreads = kOwnRows / kStripRows * kWarpThreads * kParts;
  constexpr int kQueries = Tiles::kOthers;
  GANTRY_DYNAMIC_SHARED(memory);
  T* k_tile = reinterpret_cast<T*>(memory);
  T* v_tile = k_tile + kOwnRows * kPitch<kDim>;
  T* stages = v_tile + kOwnRows * kPitch<kValueDim>;
  const AttentionPlan& plan = args.plan;
  const int begin = plan.starts[blockIdx.z];
  const int length = plan.starts[blockIdx.z + 1] - begin;
  const int key = static_cast<int>(blockIdx.x) * kOwnRows;  // the first are seen most
  if (key >= length) return;
  const int keys = length - key < kOwnRows ? length - key : kOwnRows;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int query_end = plan.visibility.QueryEnd(key + keys, length);
  const int first_query = plan.visibility.FirstQuery(key) / kQueries * kQueries;
  const int head_tiles = (query_end - first_query + kQueries - 1) / kQueries;
  const int tiles = head_tiles * plan.group;

  AsyncCopies copies;
  const auto start = [&](int tile) {
    const int head = kv_head * plan.group + tile / head_tiles;
    const int query = first_query + tile % head_tiles * kQueries;
    const Stage<T, kDim, kValueDim> stage(stages, tile);
    StartTile<kQueries, kDim, kThreads>(copies, stage.wide,
                                        From(args.q, begin + query, head * plan.key_dim),
                                        query_end - query, plan.key_dim);
    StartTile<kQueries, kValueDim, kThreads>(
        copies, stage.narrow, From(args.grad_out, begin + query, head * plan.value_dim),
        query_end - query, plan.value_dim);
    copies.EndGroup();
  };
  StartTile<kOwnRows, kDim, kThreads>(
      copies, k_tile, From(args.k, begin + key, kv_head * plan.key_dim), keys, plan.key_dim);
  StartTile<kOwnRows, kValueDim, kThreads>(
      copies, v_tile, From(args.v, begin + key, kv_head * plan.value_dim), keys, plan.value_dim);
  start(0);

  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int strip = warp / kParts * kStripRows;
  constexpr int kKeyPart = kDim / kParts;
  constexpr int kValuePart = kValueDim / kParts;
  const int key_part = warp % kParts * kKeyPart;
  const int value_part = warp % kParts * kValuePart;
  const int row = key + strip + FragmentRow();
  const float scale_log2 = plan.scale * kLog2E;
  float key_sums[kKeyPart / 8][4] = {};
  float value_sums[kValuePart / 8][4] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    copies.Wait<0>();
    __syncthreads();
    if (Tiles::kStages > 1 && tile + 1 < tiles) start(tile + 1);
    const Stage<T, kDim, kValueDim> stage(stages, tile);
    const int64_t head_row = (kv_head * plan.group + tile / head_tiles) * plan.rows + begin;
    const int query = first_query + tile % head_tiles * kQueries;
    float scores[kQueries / 8][4] = {};  // of keys by queries
    float grads[kQueries / 8][4] = {};
    AddScores<kDim>(k_tile + strip * kPitch<kDim>, stage.wide, scores);
    AddScores<kValueDim>(v_tile + strip * kPitch<kValueDim>, stage.narrow, grads);
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = query + j * 8 + FragmentColumn() + i % 2;
        const int own = row + i / 2 * 8;
        float probability = 0.0F;
        float delta = 0.0F;
        if (at < query_end && own < length && plan.visibility.Sees(at, own)) {
          probability = exp2f(scores[j][i] * scale_log2 - args.log_sum_exp[head_row + at] * kLog2E);
          delta = args.delta[head_row + at];
        }
        scores[j][i] = probability;
        grads[j][i] = probability * (grads[j][i] - delta);
      }
    }
    FragmentA weights[kQueries / 16];
    FragmentsOf<T>(scores, weights);
    AddWeighted<kValueDim>(weights, stage.narrow + value_part, value_sums);
    FragmentsOf<T>(grads, weights);
    AddWeighted<kDim>(weights, stage.wide + key_part, key_sums);
    if (Tiles::kStages == 1) {
      __syncthreads();
      if (tile + 1 < tiles) start(tile + 1);
    }
  }
  __syncthreads();  // keys and values are no longer read
  StoreStrip(key_sums, plan.scale, plan.scale, k_tile + strip * kPitch<kDim> + key_part,
             kPitch<kDim>);
  StoreStrip(value_sums, 1.0F, 1.0F, v_tile + strip * kPitch<kValueDim> + value_part,
             kPitch<kValueDim>);
  __syncthreads();
  StoreTile<kOwnRows, kDim, kThreads>(k_tile, kPitch<kDim>,
                                      From(args.grad_k, begin + key, kv_head * plan.key_dim), keys,
                                      plan.key_dim);
  StoreTile<kOwnRows, kValueDim, kThreads>(v_tile, kPitch<kValueDim>,
                                           From(args.grad_v, begin + key, kv_head * plan.value_dim),
                                           keys, plan.value_dim);
}

template <typename T>
Backward<T> BackwardOf(const AttentionBackwardArgs& args) {
  return {.plan = PlanOf(args.layout, args.q.rows),
          .q = RowsOf<T>(args.q),
          .k = RowsOf<T>(args.k),
          .v = RowsOf<T>(args.v),
          .out = RowsOf<T>(args.out),
          .grad_out = RowsOf<T>(args.grad_out),
          .grad_q = RowsOf<T>(args.grad_q),
          .grad_k = RowsOf<T>(args.grad_k),
          .grad_v = RowsOf<T>(args.grad_v),
          .log_sum_exp = args.log_sum_exp.data(),
          .delta = reinterpret_cast<float*>(args.workspace.data())};
}

template <typename T, int kDim, int kValueDim>
int Run(CudaStream stream, const AttentionLayout& layout, const Backward<T>& backward) {
  using Tiles = BackwardTiles<kDim, kValueDim>;
  const LaunchShape rows{.grid = {.x = static_cast<uint32_t>(
                                      CeilDiv(backward.plan.rows, kDeltaThreads / kWarpThreads)),
                                  .y = static_cast<uint32_t>(layout.query_heads)},
                         .block = {.x = kDeltaThreads}};
  int error = GANTRY_LAUNCH(DeltaKernel<T>, rows, stream, backward);
  if (error != 0) return error;
  const auto blocks = static_cast<uint32_t>(CeilDiv(layout.longest, kOwnRows));
  const auto documents = static_cast<uint32_t>(layout.starts.size() - 1);
  constexpr uint32_t kWarps = kOwnRows / kStripRows;
  const LaunchShape queries{
      .grid = {.x = blocks, .y = static_cast<uint32_t>(layout.query_heads), .z = documents},
      .block = {.x = kWarps * kWarpThreads},
      .shared_bytes = Tiles::kBytes};
  error = GANTRY_LAUNCH((GradQueryKernel<T, kDim, kValueDim>), queries, stream, backward);
  if (error != 0) return error;
  const LaunchShape keys{
      .grid = {.x = blocks, .y = static_cast<uint32_t>(layout.kv_heads), .z = documents},
      .block = {.x = kWarps * kWarpThreads * Tiles::kParts},
      .shared_bytes = Tiles::kBytes};
  return GANTRY_LAUNCH((GradKeyKernel<T, kDim, kValueDim>), keys, stream, backward);
}

void Check(const AttentionBackwardArgs& args) {
  const AttentionLayout& layout = args.layout;
  CheckAttentionLayout(layout);
  for (const ConstMatrixView& view : {args.q, ConstMatrixView(args.grad_q)}) {
    CheckAttentionView(view, args.q, {.heads = layout.query_heads, .dim = layout.key_dim});
  }
  for (const ConstMatrixView& view : {args.k, ConstMatrixView(args.grad_k)}) {
    CheckAttentionView(view, args.q, {.heads = layout.kv_heads, .dim = layout.key_dim});
  }
  for (const ConstMatrixView& view : {args.v, ConstMatrixView(args.grad_v)}) {
    CheckAttentionView(view, args.q, {.heads = layout.kv_heads, .dim = layout.value_dim});
  }
  for (const ConstMatrixView& view : {args.out, args.grad_out}) {
    CheckAttentionView(view, args.q, {.heads = layout.query_heads, .dim = layout.value_dim});
  }
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.log_sum_exp.size()), layout.query_heads * args.q.rows);
  GANTRY_CHECK_GE(static_cast<int64_t>(args.workspace.size()),
                  AttentionBackwardWorkspace(args.q.rows, layout.query_heads).count());
}

}  // namespace

Bytes AttentionBackwardWorkspace(int64_t rows, int64_t query_heads) {
  return Bytes(rows * query_heads * 4);
}

int AttentionBackward(CudaStream stream, const AttentionBackwardArgs& args) {
  Check(args);
  if (args.layout.starts.size() < 2 || args.layout.longest == 0 || args.q.rows == 0) return 0;
  int error = 0;
  WithAttentionTypes(args.q.dtype, args.layout, [&](auto* type, auto dim, auto value_dim) {
    using T = std::remove_pointer_t<decltype(type)>;
    error = Run<T, decltype(dim)::value, decltype(value_dim)::value>(stream, args.layout,
                                                                     BackwardOf<T>(args));
  });
  return error;
}

}  // namespace gantry::cuda
