#include "trainer/nn/cached_attention.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "trainer/nn/attention.h"

namespace gantry {
namespace {

using SplitViews = QueryKeyValue<MatrixView>;

// One sequence's part of a call.
struct Part {
  SplitViews split;  // its rows
  CachedSequence sequence;
  MatrixView out;
};

// Rotates the new queries and keys to their positions and stores the keys and values.
void AddToCache(const KernelContext& kernels, const Part& part, const RopeTable* rope) {
  const CachedSequence& sequence = part.sequence;
  for (const MatrixView& heads : {part.split.query, part.split.key}) {
    if (rope == nullptr) break;
    ApplyRope(kernels, {.heads = heads,
                        .table = rope,
                        .tokens_per_sequence = sequence.tokens,
                        .position_offset = sequence.length,
                        .direction = RopeDirection::kForward});
  }
  CopyRows(kernels,
           {.from = part.split.key, .to = sequence.keys.Rows(sequence.length, sequence.tokens)});
  CopyRows(kernels, {.from = part.split.value,
                     .to = sequence.values.Rows(sequence.length, sequence.tokens)});
}

// One token against the cache up to itself, or as far as it sees.
void Decode(const KernelContext& kernels, const Part& part, const AttentionShape& shape,
            std::span<std::byte> workspace) {
  const int64_t length = part.sequence.length + 1;
  const int64_t visible = shape.window > 0 ? std::min(length, shape.window) : length;
  AttentionDecode(kernels, {.query_heads = shape.query_heads,
                            .kv_heads = shape.kv_heads,
                            .scale = AttentionScale(shape),
                            .q = part.split.query,
                            .k = part.sequence.keys.Rows(length - visible, visible),
                            .v = part.sequence.values.Rows(length - visible, visible),
                            .out = part.out,
                            .workspace = workspace});
}

// What the sequences need of scratch memory.
struct Scratch {
  Bytes workspace = Bytes(0);
  int64_t prefilled = 0;  // most new tokens of a sequence that has several
};
Scratch ScratchOf(const CachedAttentionOptions& options, int threads) {
  Scratch scratch;
  for (const CachedSequence& sequence : options.sequences) {
    AttentionShape shape = options.shape;
    if (sequence.tokens == 1) {
      shape.tokens = sequence.length + 1;
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
    if (part.sequence.tokens == 1) return Decode(kernels, part, shape, SpanOf(workspace));
    AttentionShape own = shape;
    own.tokens = part.sequence.tokens;
    const int64_t length = part.sequence.length + own.tokens;
    AttentionForward(kernels, {.shape = own,
                               .scale = AttentionScale(shape),
                               .q = part.split.query,
                               .k = part.sequence.keys.Rows(0, length),
                               .v = part.sequence.values.Rows(0, length),
                               .out = part.out,
                               .log_sum_exp = {log_sum_exp.flat().As<float>(),
                                               static_cast<size_t>(own.query_heads * own.tokens)},
                               .workspace = SpanOf(workspace),
                               .cached = part.sequence.length});
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
