// A block has 64 queries of one head and document, a warp sixteen of them; it goes through the
// tiles of keys with a running maximum and sum. Keys and values are copied while the other is
// worked on.
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

constexpr int kThreads = kOwnRows / kStripRows * kWarpThreads;

template <typename T>
struct Forward {
  AttentionPlan plan;
  Rows<const T> q;
  Rows<const T> k;
  Rows<const T> v;
  Rows<T> out;
  float* log_sum_exp;
};

__device__ __forceinline__ float MinusInfinity() { return __uint_as_float(0xff800000U); }

// Over the four lanes that hold a row.
template <typename Operation>
__device__ __forceinline__ float OverRow(float value, Operation operation) {
  value = operation(value, __shfl_xor_sync(kWholeWarp, value, 1));
  return operation(value, __shfl_xor_sync(kWholeWarp, value, 2));
}

// What a lane knows of one of its two rows.
struct RunningRow {
  float maximum;  // of raw scores
  float sum;      // of this lane's exponentials
};

// Scores of row `half` of the lane become e^(scale (score - maximum)); returns what the sums before
// are to be multiplied by.
template <int kTiles>
__device__ __forceinline__ float Exponentiate(float scale_log2, int half,
                                              float (&scores)[kTiles][4], RunningRow& row) {
  float maximum = row.maximum;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    maximum = fmaxf(maximum, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
  }
  maximum = OverRow(maximum, MaximumOf{});
  const float base = (maximum == MinusInfinity() ? 0.0F : maximum) * scale_log2;
  const float factor = exp2f(row.maximum * scale_log2 - base);
  row.maximum = maximum;
  row.sum *= factor;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      scores[j][i] = exp2f(scores[j][i] * scale_log2 - base);
      row.sum += scores[j][i];
    }
  }
  return factor;
}

template <int kDim, int kValueDim>
struct ForwardTiles {
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;
  static constexpr int64_t kBytes =
      2 * ((kOwnRows + kKeys) * kPitch<kDim> + kKeys * kPitch<kValueDim>);
};

template <typename T, int kDim, int kValueDim>
__global__ void __launch_bounds__(kThreads) ForwardKernel(Forward<T> args) {
  using Tiles = ForwardTiles<kDim, kValueDim>;
  constexpr int kKeys = Tiles::kKeys;
  GANTRY_DYNAMIC_SHARED(memory);
  T* q_tile = reinterpret_cast<T*>(memory);
  T* k_tile = q_tile + kOwnRows * kPitch<kDim>;
  T* v_tile = k_tile + kKeys * kPitch<kDim>;
  const AttentionPlan& plan = args.plan;
  const int begin = plan.starts[blockIdx.z];
  const int length = plan.starts[blockIdx.z + 1] - begin;
  // The last queries see most keys: they go first.
  const int query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kOwnRows;
  if (query >= length) return;
  const int queries = length - query < kOwnRows ? length - query : kOwnRows;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / plan.group;
  const int key_end = plan.visibility.KeyEnd(query + queries, length);
  int key = plan.visibility.FirstKey(query) / kKeys * kKeys;

  AsyncCopies copies;
  StartTile<kOwnRows, kDim, kThreads>(
      copies, q_tile, From(args.q, begin + query, head * plan.key_dim), queries, plan.key_dim);
  const Rows<const T> k_rows = From(args.k, begin, kv_head * plan.key_dim);
  const Rows<const T> v_rows = From(args.v, begin, kv_head * plan.value_dim);
  StartTile<kKeys, kDim, kThreads>(copies, k_tile, From(k_rows, key, 0), key_end - key,
                                   plan.key_dim);
  copies.EndGroup();

  T* q_strip = q_tile + static_cast<int>(threadIdx.x) / kWarpThreads * kStripRows * kPitch<kDim>;
  const int row = query + static_cast<int>(threadIdx.x) / kWarpThreads * kStripRows + FragmentRow();
  const float scale_log2 = plan.scale * kLog2E;
  float sums[kValueDim / 8][4] = {};
  RunningRow running[2] = {{MinusInfinity(), 0.0F}, {MinusInfinity(), 0.0F}};
  for (; key < key_end; key += kKeys) {
    copies.Wait<0>();
    __syncthreads();  // keys are there, values are free
    StartTile<kKeys, kValueDim, kThreads>(copies, v_tile, From(v_rows, key, 0), key_end - key,
                                          plan.value_dim);
    copies.EndGroup();
    float scores[kKeys / 8][4] = {};
    AddScores<kDim>(q_strip, k_tile, scores);
    if (key + kKeys > key_end || !plan.visibility.SeesAll(query, kOwnRows, key, kKeys)) {
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = key + j * 8 + FragmentColumn() + i % 2;
          if (at >= key_end || !plan.visibility.Sees(row + i / 2 * 8, at)) {
            scores[j][i] = MinusInfinity();
          }
        }
      }
    }
    const float upper = Exponentiate(scale_log2, 0, scores, running[0]);
    const float lower = Exponentiate(scale_log2, 1, scores, running[1]);
#pragma unroll
    for (int j = 0; j < kValueDim / 8; ++j) {
      sums[j][0] *= upper;
      sums[j][1] *= upper;
      sums[j][2] *= lower;
      sums[j][3] *= lower;
    }
    FragmentA probabilities[kKeys / 16];
    FragmentsOf<T>(scores, probabilities);
    copies.Wait<0>();
    __syncthreads();  // values are there, keys are free
    if (key + kKeys < key_end) {
      StartTile<kKeys, kDim, kThreads>(copies, k_tile, From(k_rows, key + kKeys, 0),
                                       key_end - key - kKeys, plan.key_dim);
      copies.EndGroup();
    }
    AddWeighted<kValueDim>(probabilities, v_tile, sums);
  }

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = OverRow(running[half].sum, SumOf{});
    inverse[half] = sum > 0.0F ? 1.0F / sum : 0.0F;
    if (FragmentColumn() == 0 && row + 8 * half < length) {
      args.log_sum_exp[head * plan.rows + begin + row + 8 * half] =
          running[half].maximum * plan.scale + logf(sum);
    }
  }
  __syncthreads();  // queries are no longer read
  StoreStrip(sums, inverse[0], inverse[1], q_strip, kPitch<kDim>);
  __syncthreads();
  StoreTile<kOwnRows, kValueDim, kThreads>(q_tile, kPitch<kDim>,
                                           From(args.out, begin + query, head * plan.value_dim),
                                           queries, plan.value_dim);
}

}  // namespace

int AttentionForward(CudaStream stream, const AttentionForwardArgs& args) {
  const AttentionLayout& layout = args.layout;
  CheckAttentionLayout(layout);
  CheckAttentionView(args.q, args.q, {.heads = layout.query_heads, .dim = layout.key_dim});
  CheckAttentionView(args.k, args.q, {.heads = layout.kv_heads, .dim = layout.key_dim});
  CheckAttentionView(args.v, args.q, {.heads = layout.kv_heads, .dim = layout.value_dim});
  CheckAttentionView(args.out, args.q, {.heads = layout.query_heads, .dim = layout.value_dim});
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.log_sum_exp.size()), layout.query_heads * args.q.rows);
  const auto documents = static_cast<uint32_t>(layout.starts.size() - 1);
  if (documents == 0 || layout.longest == 0) return 0;
  int error = 0;
  WithAttentionTypes(args.q.dtype, layout, [&](auto* type, auto dim, auto value_dim) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kDim = decltype(dim)::value;
    constexpr int kValueDim = decltype(value_dim)::value;
    const Forward<T> forward{.plan = PlanOf(layout, args.q.rows),
                             .q = RowsOf<T>(args.q),
                             .k = RowsOf<T>(args.k),
                             .v = RowsOf<T>(args.v),
                             .out = RowsOf<T>(args.out),
                             .log_sum_exp = args.log_sum_exp.data()};
    const LaunchShape launch{.grid = {.x = static_cast<uint32_t>(CeilDiv(layout.longest, kOwnRows)),
                                      .y = static_cast<uint32_t>(layout.query_heads),
                                      .z = documents},
                             .block = {.x = kThreads},
                             .shared_bytes = ForwardTiles<kDim, kValueDim>::kBytes};
    error = GANTRY_LAUNCH((ForwardKernel<T, kDim, kValueDim>), launch, stream, forward);
  });
  return error;
}

}  // namespace gantry::cuda
