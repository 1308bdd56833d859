#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_forward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/attention_tiles-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/tile_gemm-inl.h"

#ifndef GANTRY_KERNELS_ATTENTION_FORWARD_TYPES_
#define GANTRY_KERNELS_ATTENTION_FORWARD_TYPES_
namespace gantry {

// Scratch of one task.
struct AttentionForwardScratch {
  float* queries;      // [rows, padded]
  float* out;          // [rows, padded] running sum of probability * value
  float* scores;       // [rows, kKeyTile]
  float* maxima;       // [rows]
  float* corrections;  // [rows]
  float* sums;         // [rows]
  float* keys;         // [kKeyTile, padded]
  float* keys_t;       // [head_dim, kKeyTile]
  float* values;       // [kKeyTile, padded]

  static AttentionForwardScratch Take(WorkspaceCursor& cursor, const AttentionShape& shape) {
    const int64_t rows = QueryTileRows(shape);
    const int64_t padded = PaddedHeadDim(shape);
    AttentionForwardScratch scratch;
    scratch.queries = cursor.Take<float>(rows * padded);
    scratch.out = cursor.Take<float>(rows * padded);
    scratch.scores = cursor.Take<float>(rows * kKeyTile);
    scratch.maxima = cursor.Take<float>(rows);
    scratch.corrections = cursor.Take<float>(rows);
    scratch.sums = cursor.Take<float>(rows);
    scratch.keys = cursor.Take<float>(kKeyTile * padded);
    scratch.keys_t = cursor.Take<float>(shape.head_dim * kKeyTile);
    scratch.values = cursor.Take<float>(kKeyTile * padded);
    return scratch;
  }
};

}  // namespace gantry
#endif  // GANTRY_KERNELS_ATTENTION_FORWARD_TYPES_

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// Turns scores into probabilities relative to the new running maximum, and rescales what the rows
// have summed so far.
void SoftmaxTile(const AttentionForwardArgs& args, const AttentionTile& tile,
                 const AttentionForwardScratch& s) {
  const int64_t group = args.shape.group();
  const int64_t padded = PaddedHeadDim(args.shape);
  const AttentionRows rows = RowsThatSee(args.shape, tile);
  const V16 scale = Set(args.scale);
  const float lowest = -std::numeric_limits<float>::infinity();
  for (int64_t row = rows.first; row < rows.end; ++row) {
    const int64_t hidden = VisibleFirst(args.shape, tile, tile.query + row / group);
    const int64_t visible = VisibleEnd(tile, tile.query + row / group);
    float* scores = s.scores + row * kKeyTile;
    V16 maximum = Set(s.maxima[row]);
    for (int64_t i = 0; i < visible; i += 16) {
      const V16 scaled =
          KeepFrom(KeepFirst(Load(scores + i) * scale, visible - i, lowest), hidden - i, lowest);
      Store(scaled, scores + i);
      maximum = Max(scaled, maximum);
    }
    const float new_maximum = MaxLanes(maximum);
    s.corrections[row] = s.maxima[row] - new_maximum;
    s.maxima[row] = new_maximum;
  }
  for (int64_t row = rows.first / 16 * 16; row < rows.end; row += 16) {
    Store(Exp(Load(s.corrections + row)), s.corrections + row);
  }
  for (int64_t row = rows.first; row < rows.end; ++row) {
    const int64_t visible = VisibleEnd(tile, tile.query + row / group);
    float* scores = s.scores + row * kKeyTile;
    const V16 maximum = Set(s.maxima[row]);
    V16 sum = Zero();
    for (int64_t i = 0; i < visible; i += 16) {
      const V16 probability = Exp(Load(scores + i) - maximum);
      Store(probability, scores + i);
      sum = sum + probability;
    }
    for (int64_t i = RoundUp(visible, 16); i < kKeyTile; i += 16) Store(Zero(), scores + i);
    s.sums[row] = s.sums[row] * s.corrections[row] + SumLanes(sum);
    if (s.corrections[row] == 1.0f) continue;
    const V16 correction = Set(s.corrections[row]);
    float* out = s.out + row * padded;
    for (int64_t i = 0; i < padded; i += 16) Store(Load(out + i) * correction, out + i);
  }
}

template <typename T>
void AddKeyTile(const AttentionForwardArgs& args, const AttentionTile& tile,
                const AttentionForwardScratch& s) {
  const int64_t dim = args.shape.head_dim;
  const int64_t padded = PaddedHeadDim(args.shape);
  const HeadRows keys = KeyRows(args.shape, tile.head, tile.key, tile.keys);
  PackRows<T>(args.k, keys, s.keys);
  TransposeKeys(s.keys, tile.keys, dim, s.keys_t);
  PackRows<T>(args.v, keys, s.values);
  const AttentionRows seeing = RowsThatSee(args.shape, tile);
  const int64_t first_row = seeing.first;
  const int64_t rows = seeing.end - seeing.first;
  TileGemm({.m = rows, .n = RoundUp(tile.keys, 16), .k = dim},
           {.data = s.queries + first_row * padded, .row_stride = padded, .column_stride = 1},
           {.data = s.keys_t, .row_stride = kKeyTile},
           {.data = s.scores + first_row * kKeyTile,
            .row_stride = kKeyTile,
            .accumulate = Accumulate::kOverwrite});
  SoftmaxTile(args, tile, s);
  TileGemm(
      {.m = rows, .n = padded, .k = tile.keys},
      {.data = s.scores + first_row * kKeyTile, .row_stride = kKeyTile, .column_stride = 1},
      {.data = s.values, .row_stride = padded},
      {.data = s.out + first_row * padded, .row_stride = padded, .accumulate = Accumulate::kAdd});
}

// Divides by the sums and stores the outputs and the logarithms of the sums.
template <typename T>
void FinishTile(const AttentionForwardArgs& args, const AttentionTile& tile,
                const AttentionForwardScratch& s) {
  const AttentionShape& shape = args.shape;
  const int64_t group = shape.group();
  const int64_t padded = PaddedHeadDim(shape);
  for (int64_t row = 0; row < tile.tokens * group; ++row) {
    const V16 sum = Set(s.sums[row]);
    float* out = s.out + row * padded;
    for (int64_t i = 0; i < padded; i += 16) Store(Load(out + i) / sum, out + i);
    const int64_t head = tile.head.kv_head * group + row % group;
    const int64_t index = (tile.head.batch * shape.query_heads + head) * shape.tokens;
    args.log_sum_exp[static_cast<size_t>(index + tile.query - args.cached + row / group)] =
        static_cast<float>(s.maxima[row] + std::log(static_cast<double>(s.sums[row])));
  }
  UnpackRows<T>(s.out, QueryRows(shape, tile.head, tile.query - args.cached, tile.tokens),
                args.out);
}

// All keys of one tile of queries of a document that begins with tile.key; sets tile.keys, and
// tile.key for each tile of keys. These lie at multiples of their size from the document's start.
void ForwardQueryTile(const AttentionForwardArgs& args, AttentionTile tile,
                      const AttentionForwardScratch& s) {
  const int64_t rows = QueryTileRows(args.shape);
  std::fill_n(s.out, rows * PaddedHeadDim(args.shape), 0.0f);
  std::fill_n(s.sums, rows, 0.0f);
  std::fill_n(s.corrections, rows, 0.0f);
  std::fill_n(s.maxima, rows, -std::numeric_limits<float>::infinity());
  WithElementType(args.q.dtype, [&]<typename T>(T*) {
    PackRows<T>(args.q, QueryRows(args.shape, tile.head, tile.query - args.cached, tile.tokens),
                s.queries);
    const int64_t end = tile.query + tile.tokens;
    // Keys that no query of the tile sees any more.
    const int64_t passed =
        args.shape.window == 0 ? 0 : tile.query - args.shape.window + 1 - tile.key;
    tile.key += std::max<int64_t>(0, passed) / kKeyTile * kKeyTile;
    for (; tile.key < end; tile.key += kKeyTile) {
      tile.keys = std::min(kKeyTile, end - tile.key);
      AddKeyTile<T>(args, tile, s);
    }
    FinishTile<T>(args, tile, s);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(ForwardQueryTile);

namespace {

ScratchSlots::Options Slots(const AttentionShape& shape, int threads) {
  WorkspaceCursor counting;
  AttentionForwardScratch::Take(counting, shape);
  return {.slots = threads, .bytes_each = counting.taken()};
}

void CheckForward(const AttentionForwardArgs& args) {
  const AttentionShape& shape = args.shape;
  GANTRY_CHECK(shape.kv_heads > 0 && shape.query_heads % shape.kv_heads == 0)
      << shape.query_heads << " query heads, " << shape.kv_heads << " key/value heads";
  const int64_t rows = shape.batch * shape.tokens;
  const MatrixShape query = {.rows = rows, .cols = shape.query_heads * shape.head_dim};
  const MatrixShape key = {.rows = rows + args.cached, .cols = shape.kv_heads * shape.head_dim};
  GANTRY_CHECK_GE(shape.window, 0);
  GANTRY_CHECK(args.cached == 0 || (shape.batch == 1 && args.documents.empty()))
      << args.cached << " cached of " << shape.batch << " sequences";
  CheckMatrix(args.q, query, args.q.dtype, "q");
  CheckMatrix(args.k, key, args.q.dtype, "k");
  CheckMatrix(args.v, key, args.q.dtype, "v");
  CheckMatrix(args.out, query, args.q.dtype, "out");
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.log_sum_exp.size()), rows * shape.query_heads);
}

}  // namespace

void AttentionForward(const KernelContext& context, const AttentionForwardArgs& args) {
  CheckForward(args);
  const AttentionShape& shape = args.shape;
  if (shape.batch * shape.tokens == 0) return;
  ScratchSlots slots(args.workspace, Slots(shape, context.team->threads()));
  const int64_t tile_tokens = QueryTileTokens(shape);
  const int64_t tiles = CeilDiv(shape.tokens, tile_tokens);
  const int64_t heads = shape.batch * shape.kv_heads;
  context.team->For({.count = heads * tiles, .grain = 1}, [&](int64_t task, int64_t) {
    // The last tiles of a sequence see the most keys: they start first.
    const int64_t query = (tiles - 1 - task / heads) * tile_tokens;
    const int64_t head = task % heads;
    const auto slot = slots.Acquire();
    WorkspaceCursor cursor(slot.memory());
    const AttentionForwardScratch scratch = AttentionForwardScratch::Take(cursor, shape);
    const int64_t batch = head / shape.kv_heads;
    const int64_t end = std::min(query + tile_tokens, shape.tokens);
    // The part of the tile in each document.
    for (int64_t token = query; token < end;) {
      const AttentionDocument document = DocumentOf(shape, args.documents, batch, token);
      const int64_t tokens = std::min(document.end, end) - token;
      const AttentionTile tile = {.head = {.batch = batch, .kv_head = head % shape.kv_heads},
                                  .query = args.cached + token,
                                  .tokens = tokens,
                                  .key = document.begin,
                                  .keys = 0};
      HWY_DYNAMIC_DISPATCH(ForwardQueryTile)(args, tile, scratch);
      token += tokens;
    }
  });
}

Bytes AttentionForwardWorkspace(const AttentionShape& shape, int threads) {
  return ScratchSlots::WorkspaceBytes(Slots(shape, threads));
}

}  // namespace gantry
#endif  // HWY_ONCE
