#include <algorithm>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/attention_tiles-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/tile_gemm-inl.h"

#ifndef GANTRY_KERNELS_ATTENTION_BACKWARD_TYPES_
#define GANTRY_KERNELS_ATTENTION_BACKWARD_TYPES_
namespace gantry {

// Scratch of one task.
struct AttentionBackwardScratch {
  float* grad_q;         // [tokens * group, padded]
  float* deltas;         // [tokens * group] out . grad_out
  float* queries;        // [rows, padded]
  float* grad_out;       // [rows, padded]
  float* probabilities;  // [rows, kKeyTile]
  float* grad_scores;    // [rows, kKeyTile]
  float* keys;           // [kKeyTile, padded]
  float* keys_t;         // [head_dim, kKeyTile]
  float* values_t;       // [head_dim, kKeyTile]
  float* grad_k;         // [kKeyTile, padded]
  float* grad_v;         // [kKeyTile, padded]

  static AttentionBackwardScratch Take(WorkspaceCursor& cursor, const AttentionShape& shape) {
    const int64_t rows = QueryTileRows(shape);
    const int64_t padded = PaddedHeadDim(shape);
    AttentionBackwardScratch scratch;
    scratch.grad_q = cursor.Take<float>(shape.tokens * shape.group() * padded);
    scratch.deltas = cursor.Take<float>(shape.tokens * shape.group());
    scratch.queries = cursor.Take<float>(rows * padded);
    scratch.grad_out = cursor.Take<float>(rows * padded);
    scratch.probabilities = cursor.Take<float>(rows * kKeyTile);
    scratch.grad_scores = cursor.Take<float>(rows * kKeyTile);
    scratch.keys = cursor.Take<float>(kKeyTile * padded);
    scratch.keys_t = cursor.Take<float>(shape.head_dim * kKeyTile);
    scratch.values_t = cursor.Take<float>(shape.head_dim * kKeyTile);
    scratch.grad_k = cursor.Take<float>(kKeyTile * padded);
    scratch.grad_v = cursor.Take<float>(kKeyTile * padded);
    return scratch;
  }
};

}  // namespace gantry
#endif  // GANTRY_KERNELS_ATTENTION_BACKWARD_TYPES_

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// deltas[row] = out . grad_out, which is the sum over keys of probability * grad_probability.
template <typename T>
void ComputeDeltas(const AttentionBackwardArgs& args, const AttentionHead& head, float* deltas) {
  const AttentionShape& shape = args.shape;
  const int64_t group = shape.group();
  for (int64_t row = 0; row < shape.tokens * group; ++row) {
    const int64_t matrix_row = head.batch * shape.tokens + row / group;
    const int64_t column = (head.kv_head * group + row % group) * shape.head_dim;
    const T* out = args.out.Row<T>(matrix_row) + column;
    const T* grad_out = args.grad_out.Row<T>(matrix_row) + column;
    deltas[row] = SumChunks(shape.head_dim, [&](int64_t i, int64_t count) {
      return LoadFirst(out + i, count) * LoadFirst(grad_out + i, count);
    });
  }
}

// From scores (in probabilities) and grad_probabilities (in grad_scores) to what the names say.
void SoftmaxBackwardTile(const AttentionBackwardArgs& args, const AttentionTile& tile,
                         const AttentionBackwardScratch& s) {
  const AttentionShape& shape = args.shape;
  const int64_t group = shape.group();
  const V16 scale = Set(args.scale);
  const AttentionRows rows = RowsThatSee(shape, tile);
  for (int64_t row = rows.first; row < rows.end; ++row) {
    const int64_t token = tile.query + row / group;
    const int64_t head = tile.head.kv_head * group + row % group;
    const int64_t index = (tile.head.batch * shape.query_heads + head) * shape.tokens + token;
    const V16 log_sum_exp = Set(args.log_sum_exp[static_cast<size_t>(index)]);
    const V16 delta = Set(s.deltas[tile.query * group + row]);
    const int64_t hidden = VisibleFirst(shape, tile, token);
    const int64_t visible = VisibleEnd(tile, token);
    const auto masked = [&](const V16& value, int64_t i) {
      return KeepFrom(KeepFirst(value, visible - i, 0.0f), hidden - i, 0.0f);
    };
    float* p = s.probabilities + row * kKeyTile;
    float* g = s.grad_scores + row * kKeyTile;
    for (int64_t i = 0; i < visible; i += 16) {
      const V16 probability = masked(Exp(Load(p + i) * scale - log_sum_exp), i);
      const V16 grad_score = (probability * (Load(g + i) - delta)) * scale;
      Store(probability, p + i);
      Store(masked(grad_score, i), g + i);
    }
    for (int64_t i = RoundUp(visible, 16); i < kKeyTile; i += 16) {
      Store(Zero(), p + i);
      Store(Zero(), g + i);
    }
  }
}

template <typename T>
void BackwardQueryTile(const AttentionBackwardArgs& args, const AttentionTile& tile,
                       const AttentionBackwardScratch& s) {
  const int64_t group = args.shape.group();
  const int64_t dim = args.shape.head_dim;
  const int64_t padded = PaddedHeadDim(args.shape);
  const HeadRows query_rows = QueryRows(args.shape, tile.head, tile.query, tile.tokens);
  PackRows<T>(args.q, query_rows, s.queries);
  PackRows<T>(args.grad_out, query_rows, s.grad_out);
  const AttentionRows seeing = RowsThatSee(args.shape, tile);
  const int64_t first = seeing.first;
  const int64_t rows = seeing.end - seeing.first;
  const int64_t padded_keys = RoundUp(tile.keys, 16);
  const float* queries = s.queries + first * padded;
  const float* grad_out = s.grad_out + first * padded;
  float* p = s.probabilities + first * kKeyTile;
  float* g = s.grad_scores + first * kKeyTile;
  const auto scores_into = [](float* data) {
    return TileGemmC{.data = data, .row_stride = kKeyTile, .accumulate = Accumulate::kOverwrite};
  };
  const auto add_into = [&](float* data) {
    return TileGemmC{.data = data, .row_stride = padded, .accumulate = Accumulate::kAdd};
  };
  TileGemm({.m = rows, .n = padded_keys, .k = dim},
           {.data = queries, .row_stride = padded, .column_stride = 1},
           {.data = s.keys_t, .row_stride = kKeyTile}, scores_into(p));
  TileGemm({.m = rows, .n = padded_keys, .k = dim},
           {.data = grad_out, .row_stride = padded, .column_stride = 1},
           {.data = s.values_t, .row_stride = kKeyTile}, scores_into(g));
  SoftmaxBackwardTile(args, tile, s);
  TileGemm({.m = tile.keys, .n = padded, .k = rows},
           {.data = p, .row_stride = 1, .column_stride = kKeyTile},
           {.data = grad_out, .row_stride = padded}, add_into(s.grad_v));
  TileGemm({.m = tile.keys, .n = padded, .k = rows},
           {.data = g, .row_stride = 1, .column_stride = kKeyTile},
           {.data = queries, .row_stride = padded}, add_into(s.grad_k));
  TileGemm({.m = rows, .n = padded, .k = tile.keys},
           {.data = g, .row_stride = kKeyTile, .column_stride = 1},
           {.data = s.keys, .row_stride = padded},
           add_into(s.grad_q + (tile.query * group + first) * padded));
}

// All queries that see one tile of keys; tile.query and tile.tokens are set here. Tiles of queries
// lie at multiples of their size from the document's start.
template <typename T>
void BackwardKeyTile(const AttentionBackwardArgs& args, const AttentionDocument& document,
                     AttentionTile tile, const AttentionBackwardScratch& s) {
  const AttentionShape& shape = args.shape;
  const int64_t padded = PaddedHeadDim(shape);
  const HeadRows keys = KeyRows(shape, tile.head, tile.key, tile.keys);
  PackRows<T>(args.v, keys, s.keys);  // passes through the keys' buffer
  TransposeKeys(s.keys, tile.keys, shape.head_dim, s.values_t);
  PackRows<T>(args.k, keys, s.keys);
  TransposeKeys(s.keys, tile.keys, shape.head_dim, s.keys_t);
  std::fill_n(s.grad_k, kKeyTile * padded, 0.0f);
  std::fill_n(s.grad_v, kKeyTile * padded, 0.0f);
  const int64_t tile_tokens = QueryTileTokens(shape);
  int64_t end = document.end;
  if (shape.window > 0) end = std::min(end, tile.key + tile.keys + shape.window - 1);
  tile.query = document.begin + (tile.key - document.begin) / tile_tokens * tile_tokens;
  for (; tile.query < end; tile.query += tile_tokens) {
    tile.tokens = std::min(tile_tokens, end - tile.query);
    BackwardQueryTile<T>(args, tile, s);
  }
  UnpackRows<T>(s.grad_k, keys, args.grad_k);
  UnpackRows<T>(s.grad_v, keys, args.grad_v);
}

void BackwardHead(const AttentionBackwardArgs& args, const AttentionHead& head,
                  const AttentionBackwardScratch& s) {
  const AttentionShape& shape = args.shape;
  std::fill_n(s.grad_q, shape.tokens * shape.group() * PaddedHeadDim(shape), 0.0f);
  WithElementType(args.q.dtype, [&]<typename T>(T*) {
    ComputeDeltas<T>(args, head, s.deltas);
    AttentionDocument document = {.begin = 0, .end = 0};
    while (document.end < shape.tokens) {
      document = DocumentOf(shape, args.documents, head.batch, document.end);
      for (int64_t key = document.begin; key < document.end; key += kKeyTile) {
        BackwardKeyTile<T>(args, document,
                           {.head = head,
                            .query = 0,
                            .tokens = 0,
                            .key = key,
                            .keys = std::min(kKeyTile, document.end - key)},
                           s);
      }
    }
    UnpackRows<T>(s.grad_q, QueryRows(shape, head, 0, shape.tokens), args.grad_q);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(BackwardHead);

namespace {

ScratchSlots::Options Slots(const AttentionShape& shape, int threads) {
  WorkspaceCursor counting;
  AttentionBackwardScratch::Take(counting, shape);
  return {.slots = threads, .bytes_each = counting.taken()};
}

void CheckBackward(const AttentionBackwardArgs& args) {
  const AttentionShape& shape = args.shape;
  GANTRY_CHECK(shape.kv_heads > 0 && shape.query_heads % shape.kv_heads == 0)
      << shape.query_heads << " query heads, " << shape.kv_heads << " key/value heads";
  const int64_t rows = shape.batch * shape.tokens;
  const MatrixShape query = {.rows = rows, .cols = shape.query_heads * shape.head_dim};
  const MatrixShape key = {.rows = rows, .cols = shape.kv_heads * shape.head_dim};
  const DType dtype = args.q.dtype;
  GANTRY_CHECK_GE(shape.window, 0);
  CheckMatrix(args.q, query, dtype, "q");
  CheckMatrix(args.out, query, dtype, "out");
  CheckMatrix(args.grad_out, query, dtype, "grad_out");
  CheckMatrix(args.grad_q, query, dtype, "grad_q");
  CheckMatrix(args.k, key, dtype, "k");
  CheckMatrix(args.v, key, dtype, "v");
  CheckMatrix(args.grad_k, key, dtype, "grad_k");
  CheckMatrix(args.grad_v, key, dtype, "grad_v");
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.log_sum_exp.size()), rows * shape.query_heads);
}

}  // namespace

void AttentionBackward(const KernelContext& context, const AttentionBackwardArgs& args) {
  CheckBackward(args);
  const AttentionShape& shape = args.shape;
  if (shape.batch * shape.tokens == 0) return;
  ScratchSlots slots(args.workspace, Slots(shape, context.team->threads()));
  context.team->For({.count = shape.batch * shape.kv_heads, .grain = 1}, [&](int64_t task,
                                                                             int64_t) {
    const auto slot = slots.Acquire();
    WorkspaceCursor cursor(slot.memory());
    const AttentionBackwardScratch scratch = AttentionBackwardScratch::Take(cursor, shape);
    const AttentionHead head = {.batch = task / shape.kv_heads, .kv_head = task % shape.kv_heads};
    HWY_DYNAMIC_DISPATCH(BackwardHead)(args, head, scratch);
  });
}

Bytes AttentionBackwardWorkspace(const AttentionShape& shape, int threads) {
  return ScratchSlots::WorkspaceBytes(Slots(shape, threads));
}

}  // namespace gantry
#endif  // HWY_ONCE
