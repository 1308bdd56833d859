#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

#ifndef GANTRY_KERNELS_ATTENTION_DECODE_TYPES_
#define GANTRY_KERNELS_ATTENTION_DECODE_TYPES_
namespace gantry {

// Scratch of one query head.
struct AttentionDecodeScratch {
  float* scores;  // [length, rounded up to 16]
  float* out;     // [head_dim, rounded up to 16]

  static AttentionDecodeScratch Take(WorkspaceCursor& cursor, int64_t length, int64_t head_dim) {
    AttentionDecodeScratch scratch;
    scratch.scores = cursor.Take<float>(RoundUp(length, 16));
    scratch.out = cursor.Take<float>(RoundUp(head_dim, 16));
    return scratch;
  }
};

}  // namespace gantry
#endif  // GANTRY_KERNELS_ATTENTION_DECODE_TYPES_

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// scores -> e^(scores - maximum); returns their sum.
float ExponentiateScores(float* scores, int64_t length) {
  V16 maximum = Set(-std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < length; i += 16) {
    maximum = Max(KeepFirst(Load(scores + i), length - i, scores[0]), maximum);
  }
  const V16 highest = Set(MaxLanes(maximum));
  V16 sum = Zero();
  for (int64_t i = 0; i < length; i += 16) {
    const V16 probability = KeepFirst(Exp(Load(scores + i) - highest), length - i, 0.0f);
    Store(probability, scores + i);
    sum = sum + probability;
  }
  return SumLanes(sum);
}

void DecodeHead(const AttentionDecodeArgs& args, int64_t head, const AttentionDecodeScratch& s) {
  const int64_t dim = args.q.cols / args.query_heads;
  const int64_t column = head / (args.query_heads / args.kv_heads) * dim;
  const int64_t length = args.k.rows;
  std::fill_n(s.scores, RoundUp(length, 16), 0.0f);
  std::fill_n(s.out, RoundUp(dim, 16), 0.0f);
  WithElementType(args.q.dtype, [&]<typename T>(T*) {
    const T* query = args.q.Row<T>(0) + head * dim;
    for (int64_t t = 0; t < length; ++t) {
      const T* key = args.k.Row<T>(t) + column;
      s.scores[t] = args.scale * SumChunks(dim, [&](int64_t i, int64_t count) {
                      return LoadFirst(query + i, count) * LoadFirst(key + i, count);
                    });
    }
    const float sum = ExponentiateScores(s.scores, length);
    for (int64_t t = 0; t < length; ++t) {
      const T* value = args.v.Row<T>(t) + column;
      const V16 probability = Set(s.scores[t]);
      for (int64_t i = 0; i < dim; i += 16) {
        Store(Load(s.out + i) + probability * LoadFirst(value + i, dim - i), s.out + i);
      }
    }
    T* out = args.out.Row<T>(0) + head * dim;
    for (int64_t i = 0; i < dim; i += 16) StoreFirst(Load(s.out + i) / Set(sum), out + i, dim - i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(DecodeHead);

namespace {

// A slot for every task.
ScratchSlots::Options Slots(int64_t kv_heads, int64_t length, int64_t head_dim) {
  WorkspaceCursor counting;
  AttentionDecodeScratch::Take(counting, length, head_dim);
  return {.slots = kv_heads, .bytes_each = counting.taken()};
}

}  // namespace

void AttentionDecode(const KernelContext& context, const AttentionDecodeArgs& args) {
  GANTRY_CHECK(args.kv_heads > 0 && args.query_heads % args.kv_heads == 0)
      << args.query_heads << " query heads, " << args.kv_heads << " key/value heads";
  const int64_t dim = args.q.cols / args.query_heads;
  const int64_t length = args.k.rows;
  GANTRY_CHECK_GE(length, 1);
  const MatrixShape query = {.rows = 1, .cols = args.query_heads * dim};
  const MatrixShape key = {.rows = length, .cols = args.kv_heads * dim};
  CheckMatrix(args.q, query, args.q.dtype, "q");
  CheckMatrix(args.out, query, args.q.dtype, "out");
  CheckMatrix(args.k, key, args.q.dtype, "k");
  CheckMatrix(args.v, key, args.q.dtype, "v");
  ScratchSlots slots(args.workspace, Slots(args.kv_heads, length, dim));
  const int64_t group = args.query_heads / args.kv_heads;
  context.team->For({.count = args.query_heads, .grain = group}, [&](int64_t begin, int64_t end) {
    const auto slot = slots.Acquire();
    WorkspaceCursor cursor(slot.memory());
    const AttentionDecodeScratch scratch = AttentionDecodeScratch::Take(cursor, length, dim);
    for (int64_t head = begin; head < end; ++head) {
      HWY_DYNAMIC_DISPATCH(DecodeHead)(args, head, scratch);
    }
  });
}

Bytes AttentionDecodeWorkspace(const AttentionShape& shape) {
  return ScratchSlots::WorkspaceBytes(Slots(shape.kv_heads, shape.tokens, shape.head_dim));
}

}  // namespace gantry
#endif  // HWY_ONCE
