#include "trainer/nn/cached_attention.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/bytes.h"
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

// One sequence's part of a call.
struct Part {
  SplitViews split;  // its rows
  CachedSequence sequence;
  MatrixView out;
};

bool Decodes(const CachedSequence& sequence) { return sequence.length > 0 || sequence.tokens == 1; }

// Rotates the new queries and keys to their positions and stores the keys and values.
void AddToCache(const KernelContext& kernels, const Part& part, const RopeTable* rope) {
  const CachedSequence& sequence = part.sequence;
  for (const MatrixView& heads : {part.split.query, part.split.key}) {
    ApplyRope(kernels, {.heads = heads,
                        .table = rope,
                        .tokens_per_sequence = sequence.tokens,
                        .position_offset = sequence.length,
                        .direction = RopeDirection::kForward});
  }
  CopyRows(part.split.key, sequence.keys.Rows(sequence.length, sequence.tokens));
  CopyRows(part.split.value, sequence.values.Rows(sequence.length, sequence.tokens));
}

// Token by token, each against the cache up to itself.
void Decode(const KernelContext& kernels, const Part& part, const AttentionShape& shape,
            std::span<std::byte> workspace) {
  for (int64_t row = 0; row < part.sequence.tokens; ++row) {
    const int64_t visible = part.sequence.length + row + 1;
    AttentionDecode(kernels, {.query_heads = shape.query_heads,
                              .kv_heads = shape.kv_heads,
                              .scale = AttentionScale(shape),
                              .q = part.split.query.Rows(row, 1),
                              .k = part.sequence.keys.Rows(0, visible),
                              .v = part.sequence.values.Rows(0, visible),
                              .out = part.out.Rows(row, 1),
                              .workspace = workspace});
  }
}

// What the sequences need of scratch memory.
struct Scratch {
  Bytes workspace = Bytes(0);
  int64_t prefilled = 0;  // most new tokens of a sequence that is not decoded
};
Scratch ScratchOf(const CachedAttentionOptions& options, int threads) {
  Scratch scratch;
  for (const CachedSequence& sequence : options.sequences) {
    AttentionShape shape = options.shape;
    if (Decodes(sequence)) {
      shape.tokens = sequence.length + sequence.tokens;
      scratch.workspace = std::max(scratch.workspace, AttentionDecodeWorkspace(shape));
    } else {
      shape.tokens = sequence.tokens;
      scratch.workspace = std::max(scratch.workspace, AttentionForwardWorkspace(shape, threads));
      scratch.prefilled = std::max(scratch.prefilled, sequence.tokens);
    }
  }
  return scratch;
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
  const Scratch scratch = ScratchOf(options, kernels.team->threads());
  GANTRY_ASSIGN_OR_RETURN(
      Activation out,
      tape.Allocate({.rows = shape.tokens, .cols = shape.query_heads * shape.head_dim},
                    input.dtype()));
  GANTRY_ASSIGN_OR_RETURN(const ArenaBuffer workspace, tape.AllocateWorkspace(scratch.workspace));
  GANTRY_ASSIGN_OR_RETURN(
      const Activation log_sum_exp,
      tape.Allocate({.rows = shape.query_heads, .cols = scratch.prefilled}, DType::kF32));
  const auto run = [&](const Part& part) {
    AddToCache(kernels, part, options.rope);
    if (Decodes(part.sequence)) return Decode(kernels, part, shape, SpanOf(workspace));
    AttentionShape own = shape;
    own.tokens = part.sequence.tokens;
    AttentionForward(kernels, {.shape = own,
                               .scale = AttentionScale(shape),
                               .q = part.split.query,
                               .k = part.split.key,
                               .v = part.split.value,
                               .out = part.out,
                               .log_sum_exp = {log_sum_exp.flat().As<float>(),
                                               static_cast<size_t>(own.query_heads * own.tokens)},
                               .workspace = SpanOf(workspace)});
  };
  GANTRY_RETURN_IF_ERROR(tape.Forward("attention", {}, [&](const LeasedParameters&) {
    int64_t row = 0;
    for (const CachedSequence& sequence : options.sequences) {
      run({.split = SplitQkv(input.matrix().Rows(row, sequence.tokens), shape),
           .sequence = sequence,
           .out = out.matrix().Rows(row, sequence.tokens)});
      row += sequence.tokens;
    }
    GANTRY_CHECK_EQ(row, shape.tokens);
    return absl::OkStatus();
  }));
  return tape.MakeVar(std::move(out), {&qkv}, {});
}

}  // namespace gantry
