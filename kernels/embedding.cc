#include "kernels/embedding.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/convert.h"
#include "kernels/kernel_context.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

void GatherRow(const EmbeddingForwardArgs& args, int64_t row) {
  const int64_t cols = args.table.cols;
  const int64_t token = args.tokens[static_cast<size_t>(row)];
  WithElementType(args.table.dtype, [&]<typename T>(T*) {
    WithElementType(args.embedded.dtype, [&]<typename E>(E*) {
      const T* from = args.table.Row<T>(token);
      E* to = args.embedded.Row<E>(row);
      for (int64_t i = 0; i < cols; i += 16)
        StoreFirst(LoadFirst(from + i, cols - i), to + i, cols - i);
    });
  });
}

// to[i] += sum of grads[position, i] over `positions` in order.
void ScatterRow(const ConstMatrixView& grads, std::span<const int32_t> positions,
                const VectorView& to) {
  WithElementType(grads.dtype, [&]<typename E>(E*) {
    WithElementType(to.dtype, [&]<typename T>(T*) {
      for (int64_t i = 0; i < to.size; i += 16) {
        const int64_t count = to.size - i;
        V16 sum = Zero();
        for (const int32_t position : positions) {
          sum = sum + LoadFirst(grads.Row<E>(position) + i, count);
        }
        StoreFirst(LoadFirst(to.As<T>() + i, count) + sum, to.As<T>() + i, count);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(GatherRow);
HWY_EXPORT(ScatterRow);

namespace {

constexpr int64_t kRowsPerTask = 16;
constexpr int64_t kColumnsPerTask = 256;

void CheckTokens(std::span<const int32_t> tokens, int64_t vocabulary) {
  for (const int32_t token : tokens) {
    GANTRY_CHECK(token >= 0 && token < vocabulary)
        << "token id " << token << ", vocabulary " << vocabulary;
  }
}

struct SortedTokens {
  int32_t* order;   // [N] positions, sorted by token, then position
  int32_t* starts;  // [N + 1] where each distinct token's positions begin in `order`
};

SortedTokens TakeSortedTokens(WorkspaceCursor& cursor, int64_t tokens) {
  SortedTokens sorted;
  sorted.order = cursor.Take<int32_t>(tokens);
  sorted.starts = cursor.Take<int32_t>(tokens + 1);
  return sorted;
}

// Fills `sorted` and returns the number of distinct tokens.
int64_t SortTokens(std::span<const int32_t> tokens, const SortedTokens& sorted) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  std::iota(sorted.order, sorted.order + count, 0);
  const auto token_at = [&](int32_t position) { return tokens[static_cast<size_t>(position)]; };
  std::sort(sorted.order, sorted.order + count, [&](int32_t a, int32_t b) {
    return token_at(a) != token_at(b) ? token_at(a) < token_at(b) : a < b;
  });
  int64_t distinct = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i == 0 || token_at(sorted.order[i]) != token_at(sorted.order[i - 1])) {
      sorted.starts[distinct++] = static_cast<int32_t>(i);
    }
  }
  sorted.starts[distinct] = static_cast<int32_t>(count);
  return distinct;
}

}  // namespace

void EmbeddingForward(const KernelContext& context, const EmbeddingForwardArgs& args) {
  const int64_t rows = static_cast<int64_t>(args.tokens.size());
  CheckMatrix(args.embedded, {.rows = rows, .cols = args.table.cols}, args.embedded.dtype,
              "embedded");
  CheckTokens(args.tokens, args.table.rows);
  context.team->For({.count = rows, .grain = kRowsPerTask}, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) HWY_DYNAMIC_DISPATCH(GatherRow)(args, row);
  });
}

void EmbeddingBackward(const KernelContext& context, const EmbeddingBackwardArgs& args) {
  const int64_t count = static_cast<int64_t>(args.tokens.size());
  const int64_t cols = args.grad_table.cols;
  GANTRY_CHECK_LT(count, std::numeric_limits<int32_t>::max());
  CheckMatrix(args.grad_embedded, {.rows = count, .cols = cols}, args.grad_embedded.dtype,
              "grad_embedded");
  CheckTokens(args.tokens, args.grad_table.rows);
  if (args.accumulate == Accumulate::kOverwrite) {
    context.team->For({.count = args.grad_table.rows, .grain = 64},
                      [&](int64_t begin, int64_t end) {
                        for (int64_t row = begin; row < end; ++row) {
                          FillZero(args.grad_table.RowView(row));
                        }
                      });
  }
  WorkspaceCursor cursor(args.workspace);
  const SortedTokens sorted = TakeSortedTokens(cursor, count);
  const int64_t distinct = SortTokens(args.tokens, sorted);
  // Column blocks too, so that one very frequent token does not keep a thread busy alone.
  const int64_t column_blocks = CeilDiv(cols, kColumnsPerTask);
  context.team->For(
      {.count = distinct * column_blocks, .grain = 8}, [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
          const int64_t distinct_token = item / column_blocks;
          const int64_t column = item % column_blocks * kColumnsPerTask;
          const int64_t columns = std::min(cols - column, kColumnsPerTask);
          const int32_t first = sorted.starts[distinct_token];
          const std::span<const int32_t> positions(
              sorted.order + first, static_cast<size_t>(sorted.starts[distinct_token + 1] - first));
          const int32_t token = args.tokens[static_cast<size_t>(positions[0])];
          const ConstMatrixView grads = args.grad_embedded.Columns(column, columns);
          const VectorView to = args.grad_table.RowView(token).Part(column, columns);
          HWY_DYNAMIC_DISPATCH(ScatterRow)(grads, positions, to);
        }
      });
}

Bytes EmbeddingBackwardWorkspace(int64_t tokens) {
  WorkspaceCursor counting;
  TakeSortedTokens(counting, tokens);
  return counting.taken();
}

}  // namespace gantry
#endif  // HWY_ONCE
