#include "trainer/nn/cached_attention.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "trainer/nn/attention.h"

namespace gantry {
namespace {

using SplitViews = QueryKeyValue<MatrixView>;

void CopyRows(const MatrixView& from, const MatrixView& to) {
  const auto bytes = static_cast<size_t>(from.cols * SizeOf(from.dtype));
  for (int64_t row = 0; row < from.rows; ++row) {
    std::memcpy(to.RowView(row).data, from.RowView(row).data, bytes);
  }
}

// Rotates the new queries and keys to their positions and stores the keys and values.
void AddToCache(const KernelContext& kernels, const SplitViews& split,
                const CachedAttentionOptions& options) {
  for (const MatrixView& heads : {split.query, split.key}) {
    ApplyRope(kernels, {.heads = heads,
                        .table = options.rope,
                        .tokens_per_sequence = options.shape.tokens,
                        .position_offset = options.length,
                        .direction = RopeDirection::kForward});
  }
  CopyRows(split.key, options.keys.Rows(options.length, options.shape.tokens));
  CopyRows(split.value, options.values.Rows(options.length, options.shape.tokens));
}

// Token by token, each against the cache up to itself.
void Decode(const KernelContext& kernels, const SplitViews& split,
            const CachedAttentionOptions& options, const MatrixView& out,
            std::span<std::byte> workspace) {
  for (int64_t row = 0; row < options.shape.tokens; ++row) {
    const int64_t visible = options.length + row + 1;
    AttentionDecode(kernels, {.query_heads = options.shape.query_heads,
                              .kv_heads = options.shape.kv_heads,
                              .scale = AttentionScale(options.shape),
                              .q = split.query.Rows(row, 1),
                              .k = options.keys.Rows(0, visible),
                              .v = options.values.Rows(0, visible),
                              .out = out.Rows(row, 1),
                              .workspace = workspace});
  }
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): the value is consumed
absl::StatusOr<Var> CachedAttention(Tape& tape, Var qkv, const CachedAttentionOptions& options) {
  const AttentionShape& shape = options.shape;
  const Activation& input = qkv.value();
  GANTRY_CHECK(tape.mode() == Tape::Mode::kEvaluation);
  GANTRY_CHECK(input.unique()) << "the projections are held elsewhere";
  GANTRY_CHECK_EQ(shape.batch, 1);
  GANTRY_CHECK_EQ(input.rows(), shape.tokens);
  const KernelContext& kernels = tape.context().kernels;
  const bool decodes = options.length > 0 || shape.tokens == 1;
  AttentionShape whole = shape;
  whole.tokens = options.length + shape.tokens;
  GANTRY_ASSIGN_OR_RETURN(
      Activation out,
      tape.Allocate({.rows = shape.tokens, .cols = shape.query_heads * shape.head_dim},
                    input.dtype()));
  GANTRY_ASSIGN_OR_RETURN(
      const ArenaBuffer workspace,
      tape.AllocateWorkspace(decodes ? AttentionDecodeWorkspace(whole)
                                     : AttentionForwardWorkspace(shape, kernels.team->threads())));
  GANTRY_ASSIGN_OR_RETURN(
      const Activation log_sum_exp,
      tape.Allocate({.rows = shape.query_heads, .cols = decodes ? 0 : shape.tokens}, DType::kF32));
  GANTRY_RETURN_IF_ERROR(tape.Forward("attention", {}, [&](const LeasedParameters&) {
    const SplitViews split = SplitQkv(input.matrix(), shape);
    AddToCache(kernels, split, options);
    if (decodes) {
      Decode(kernels, split, options, out.matrix(), SpanOf(workspace));
    } else {
      AttentionForward(kernels,
                       {.shape = shape,
                        .scale = AttentionScale(shape),
                        .q = split.query,
                        .k = split.key,
                        .v = split.value,
                        .out = out.matrix(),
                        .log_sum_exp = {log_sum_exp.flat().As<float>(),
                                        static_cast<size_t>(shape.query_heads * shape.tokens)},
                        .workspace = SpanOf(workspace)});
    }
    return absl::OkStatus();
  }));
  return tape.MakeVar(std::move(out), {&qkv}, {});
}

}  // namespace gantry
