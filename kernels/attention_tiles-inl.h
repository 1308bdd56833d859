// What the forward and the backward pass of attention share: the tiling, and copies of tiles into
// contiguous float memory. Include inside the foreach_target pattern, like simd-inl.h.
#ifndef GANTRY_KERNELS_ATTENTION_TILES_TYPES_
#define GANTRY_KERNELS_ATTENTION_TILES_TYPES_

#include <algorithm>
#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/views.h"

namespace gantry {

// A tile of queries holds `tokens` consecutive tokens of all heads of a group, token-major: row r
// is token first + r / group, head r % group. Rows that may see a key from token s on are then a
// suffix, (s - first) * group and up.
inline constexpr int64_t kKeyTile = 64;
inline int64_t QueryTileTokens(const AttentionShape& shape) {
  return std::max<int64_t>(1, 128 / shape.group());
}
inline int64_t QueryTileRows(const AttentionShape& shape) {
  return RoundUp(QueryTileTokens(shape) * shape.group(), 16);
}
inline int64_t PaddedHeadDim(const AttentionShape& shape) { return RoundUp(shape.head_dim, 16); }

// One sequence and one key/value head.
struct AttentionHead {
  int64_t batch;
  int64_t kv_head;
};

// Tokens of a sequence that see each other.
struct AttentionDocument {
  int64_t begin;
  int64_t end;
};
// The document that a token of a sequence lies in.
inline AttentionDocument DocumentOf(const AttentionShape& shape, DocumentStarts documents,
                                    int64_t batch, int64_t token) {
  if (documents.empty()) return {.begin = 0, .end = shape.tokens};
  const int64_t first_row = batch * shape.tokens;
  const auto next = std::upper_bound(documents.begin(), documents.end(), first_row + token);
  GANTRY_CHECK(next != documents.begin()) << "no document starts at or before " << token;
  const AttentionDocument document = {
      .begin = *(next - 1) - first_row,
      .end = next == documents.end() ? shape.tokens : *next - first_row};
  GANTRY_CHECK(document.begin >= 0 && document.end <= shape.tokens)
      << "sequence " << batch << " has no document that starts with it";
  return document;
}

// A tile of queries against a tile of keys; all numbers are tokens of the sequence.
struct AttentionTile {
  AttentionHead head;
  int64_t query;   // first token
  int64_t tokens;  // query tokens
  int64_t key;     // first key
  int64_t keys;
};

// Keys of the tile that a query sees lie in [first, end).
inline int64_t VisibleEnd(const AttentionTile& tile, int64_t token) {
  return std::min(tile.keys, token - tile.key + 1);
}
inline int64_t VisibleFirst(const AttentionShape& shape, const AttentionTile& tile, int64_t token) {
  return shape.window == 0 ? 0 : std::max<int64_t>(0, token - shape.window + 1 - tile.key);
}

// Rows of the tile of queries that see at least one of its keys.
struct AttentionRows {
  int64_t first;
  int64_t end;
};
inline AttentionRows RowsThatSee(const AttentionShape& shape, const AttentionTile& tile) {
  const int64_t first = std::max<int64_t>(0, tile.key - tile.query);
  int64_t end = tile.tokens;
  if (shape.window > 0) end = std::min(end, tile.key + tile.keys + shape.window - 1 - tile.query);
  return {.first = first * shape.group(), .end = end * shape.group()};
}

// Consecutive rows of one or more adjacent heads in a [batch * tokens, heads * head_dim] matrix.
struct HeadRows {
  int64_t first_row;
  int64_t count;  // rows
  int64_t first_head;
  int64_t heads;  // adjacent heads
  int64_t head_dim;
};
inline HeadRows QueryRows(const AttentionShape& shape, const AttentionHead& head, int64_t token,
                          int64_t count) {
  return {.first_row = head.batch * shape.tokens + token,
          .count = count,
          .first_head = head.kv_head * shape.group(),
          .heads = shape.group(),
          .head_dim = shape.head_dim};
}
inline HeadRows KeyRows(const AttentionShape& shape, const AttentionHead& head, int64_t token,
                        int64_t count) {
  return {.first_row = head.batch * shape.tokens + token,
          .count = count,
          .first_head = head.kv_head,
          .heads = 1,
          .head_dim = shape.head_dim};
}

}  // namespace gantry

#endif  // GANTRY_KERNELS_ATTENTION_TILES_TYPES_

#if defined(GANTRY_KERNELS_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GANTRY_KERNELS_ATTENTION_TILES_INL_H_
#undef GANTRY_KERNELS_ATTENTION_TILES_INL_H_
#else
#define GANTRY_KERNELS_ATTENTION_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// Lanes below `first` become `fill`.
HWY_INLINE V16 KeepFrom(const V16& value, int64_t first, float fill) {
  if (HWY_LIKELY(first <= 0)) return value;
  V16 out;
  GANTRY_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    IntRegister lane;
    GANTRY_UNROLL
    for (int j = 0; j < kLanes; ++j) lane[j] = i * kLanes + j;
    const FloatRegister filled = fill - FloatRegister{};
    out.r[i] = lane < static_cast<int32_t>(first) ? filled : value.r[i];
  }
  return out;
}

// to[row * heads + head, 0 .. padded) = the head's vector as float, padded with zeros to a
// multiple of 16.
template <typename T>
void PackRows(const ConstMatrixView& from, const HeadRows& rows, float* to) {
  for (int64_t row = 0; row < rows.count; ++row) {
    const T* data = from.Row<T>(rows.first_row + row) + rows.first_head * rows.head_dim;
    for (int64_t head = 0; head < rows.heads; ++head, data += rows.head_dim) {
      for (int64_t i = 0; i < rows.head_dim; i += 16, to += 16) {
        Store(LoadFirst(data + i, rows.head_dim - i), to);
      }
    }
  }
}

// The reverse: rows of `from` (padded as above) rounded into the heads' vectors.
template <typename T>
void UnpackRows(const float* from, const HeadRows& rows, const MatrixView& to) {
  for (int64_t row = 0; row < rows.count; ++row) {
    T* data = to.Row<T>(rows.first_row + row) + rows.first_head * rows.head_dim;
    for (int64_t head = 0; head < rows.heads; ++head, data += rows.head_dim) {
      for (int64_t i = 0; i < rows.head_dim; i += 16, from += 16) {
        StoreFirst(Load(from), data + i, rows.head_dim - i);
      }
    }
  }
}

// to[d, key] = from[key, d] for a tile of `keys` rows, keys above them zero; to is
// [head_dim, kKeyTile], from is padded as above.
inline void TransposeKeys(const float* from, int64_t keys, int64_t head_dim, float* to) {
  const int64_t padded = RoundUp(head_dim, 16);
  // Blocks of 8 dimensions: eight output lines stay in the cache while their keys are filled.
  for (int64_t block = 0; block < head_dim; block += 8) {
    const int64_t end = std::min(block + 8, head_dim);
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t d = block; d < end; ++d) to[d * kKeyTile + key] = from[key * padded + d];
    }
  }
  for (int64_t d = 0; d < head_dim && keys < kKeyTile; ++d) {
    std::fill(to + d * kKeyTile + keys, to + (d + 1) * kKeyTile, 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
