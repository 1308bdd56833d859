#include "kernels/cross_entropy_head.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/convert.h"
#include "kernels/kernel_context.h"
#include "kernels/matmul.h"
#include "kernels/simd_targets.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy_head.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

#ifndef GANTRY_KERNELS_CROSS_ENTROPY_HEAD_TYPES_
#define GANTRY_KERNELS_CROSS_ENTROPY_HEAD_TYPES_
namespace gantry {

// sum over the words seen so far of e^(logit - maximum).
struct RunningSum {
  double sum;
  float maximum;
};

struct LogitsGradient {
  float log_sum_exp;
  float grad_log_probability;
};

}  // namespace gantry
#endif  // GANTRY_KERNELS_CROSS_ENTROPY_HEAD_TYPES_

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

HWY_INLINE float ScalarExp(float x) {
  float lanes[16];
  Store(Exp(Set(x)), lanes);
  return lanes[0];
}

// Adds a row of logits to `running`.
void AddLogits(std::span<const float> logits, RunningSum& running) {
  const int64_t count = static_cast<int64_t>(logits.size());
  V16 lanes = Set(running.maximum);
  for (int64_t i = 0; i < count; i += 16) {
    const V16 values = LoadFirst(logits.data() + i, count - i);
    lanes = Max(KeepFirst(values, count - i, running.maximum), lanes);
  }
  const float maximum = MaxLanes(lanes);
  const float sum = SumChunks(count, [&](int64_t i, int64_t valid) {
    return KeepFirst(Exp(LoadFirst(logits.data() + i, valid) - Set(maximum)), valid, 0.0f);
  });
  running.sum = running.sum * static_cast<double>(ScalarExp(running.maximum - maximum)) + sum;
  running.maximum = maximum;
}

// logits -> -grad * probability, in place.
void LogitsToGradients(const LogitsGradient& gradient, std::span<float> logits) {
  const int64_t count = static_cast<int64_t>(logits.size());
  const V16 factor = Set(-gradient.grad_log_probability);
  const V16 log_sum_exp = Set(gradient.log_sum_exp);
  for (int64_t i = 0; i < count; i += 16) {
    float* data = logits.data() + i;
    StoreFirst(factor * Exp(LoadFirst(data, count - i) - log_sum_exp), data, count - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(AddLogits);
HWY_EXPORT(LogitsToGradients);

namespace {

constexpr int64_t kTokenBlock = 1024;
constexpr int64_t kVocabularyBlock = 2048;
constexpr int64_t kRowsPerTask = 8;

// Words per block of the backward pass, which holds the gradient of all tokens' logits at once.
int64_t BackwardVocabularyBlock(const HeadShape& shape) {
  constexpr int64_t kElements = 8 << 20;
  const int64_t block = kElements / std::max<int64_t>(1, shape.tokens) / 256 * 256;
  return std::min(shape.vocabulary, std::clamp<int64_t>(block, 256, kVocabularyBlock));
}

struct ForwardScratch {
  float* logits;        // [token block, vocabulary block]
  RunningSum* running;  // [tokens]

  static ForwardScratch Take(WorkspaceCursor& cursor, const HeadShape& shape) {
    ForwardScratch scratch;
    scratch.logits = cursor.Take<float>(std::min(kTokenBlock, shape.tokens) *
                                        std::min(kVocabularyBlock, shape.vocabulary));
    scratch.running = cursor.Take<RunningSum>(shape.tokens);
    return scratch;
  }
};

struct BackwardScratch {
  std::byte* grad_logits;  // [tokens, vocabulary block] of x's type
  float* logits;           // [token block, vocabulary block], or null when x is f32
  float* grad_x;           // [tokens, channels], or null when grad_x is f32

  static BackwardScratch Take(WorkspaceCursor& cursor, const HeadShape& shape,
                              const HeadBackwardTypes& types) {
    const int64_t block = BackwardVocabularyBlock(shape);
    BackwardScratch scratch;
    scratch.grad_logits = cursor.Take<std::byte>(shape.tokens * block * SizeOf(types.x));
    scratch.logits = cursor.Take<float>(
        types.x == DType::kF32 ? 0 : std::min(kTokenBlock, shape.tokens) * block);
    scratch.grad_x =
        cursor.Take<float>(types.grad_x == DType::kF32 ? 0 : shape.tokens * shape.channels);
    return scratch;
  }
};

MatrixView FloatMatrix(float* data, MatrixShape shape) {
  return ViewOf(std::span(data, static_cast<size_t>(shape.rows * shape.cols)), shape);
}

HeadShape ShapeOfHead(const ConstMatrixView& x, const ConstMatrixView& weight) {
  GANTRY_CHECK_EQ(x.cols, weight.cols);
  return {.tokens = x.rows, .channels = x.cols, .vocabulary = weight.rows};
}

void CheckTargets(std::span<const int32_t> targets, const HeadShape& shape) {
  GANTRY_CHECK_EQ(static_cast<int64_t>(targets.size()), shape.tokens);
  for (const int32_t target : targets) {
    GANTRY_CHECK(target == kIgnoreTarget || (target >= 0 && target < shape.vocabulary))
        << "target " << target << ", vocabulary " << shape.vocabulary;
  }
}

// Rows of tokens and words.
struct LogitsBlock {
  int64_t token;
  int64_t tokens;
  int64_t word;
  int64_t words;
};

// The target's column in the block, or -1.
int64_t TargetColumn(const LogitsBlock& block, int32_t target) {
  const int64_t column = target - block.word;
  return target != kIgnoreTarget && column >= 0 && column < block.words ? column : -1;
}

// Adds one block of logits to the tokens' running sums, and notes the targets' logits.
void ReduceBlock(const KernelContext& context, const TokenLogProbabilitiesArgs& args,
                 const LogitsBlock& block, const ForwardScratch& scratch) {
  context.team->For({.count = block.tokens, .grain = kRowsPerTask},
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        const std::span<const float> logits(scratch.logits + row * block.words,
                                                            static_cast<size_t>(block.words));
                        const size_t token = static_cast<size_t>(block.token + row);
                        HWY_DYNAMIC_DISPATCH(AddLogits)(logits, scratch.running[token]);
                        const int64_t column = TargetColumn(block, args.targets[token]);
                        if (column < 0) continue;
                        args.log_probabilities[token] = logits[static_cast<size_t>(column)];
                      }
                    });
}

}  // namespace

absl::Status TokenLogProbabilities(const KernelContext& context,
                                   const TokenLogProbabilitiesArgs& args) {
  const HeadShape shape = ShapeOfHead(args.x, args.weight);
  CheckTargets(args.targets, shape);
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.log_probabilities.size()), shape.tokens);
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.log_sum_exp.size()), shape.tokens);
  WorkspaceCursor cursor(args.workspace);
  const ForwardScratch scratch = ForwardScratch::Take(cursor, shape);
  std::fill_n(scratch.running, shape.tokens,
              RunningSum{.sum = 0, .maximum = -std::numeric_limits<float>::infinity()});
  for (int64_t word = 0; word < shape.vocabulary; word += kVocabularyBlock) {
    for (int64_t token = 0; token < shape.tokens; token += kTokenBlock) {
      const LogitsBlock block = {.token = token,
                                 .tokens = std::min(kTokenBlock, shape.tokens - token),
                                 .word = word,
                                 .words = std::min(kVocabularyBlock, shape.vocabulary - word)};
      const MatrixView logits =
          FloatMatrix(scratch.logits, {.rows = block.tokens, .cols = block.words});
      GANTRY_RETURN_IF_ERROR(LinearForward(context, {.x = args.x.Rows(token, block.tokens),
                                                     .weight = args.weight.Rows(word, block.words),
                                                     .y = logits}));
      ReduceBlock(context, args, block, scratch);
    }
  }
  for (size_t token = 0; token < args.targets.size(); ++token) {
    const RunningSum& running = scratch.running[token];
    const double log_sum_exp = running.maximum + std::log(running.sum);
    args.log_sum_exp[token] = static_cast<float>(log_sum_exp);
    float& log_probability = args.log_probabilities[token];
    log_probability = args.targets[token] == kIgnoreTarget
                          ? 0.0f
                          : static_cast<float>(log_probability - log_sum_exp);
  }
  return absl::OkStatus();
}

Bytes TokenLogProbabilitiesWorkspace(const HeadShape& shape) {
  WorkspaceCursor counting;
  ForwardScratch::Take(counting, shape);
  return counting.taken();
}

namespace {

// One row of logits becomes its gradient, rounded into `grad_logits` (which may be the logits).
void LogitsRowBackward(const TokenLogProbabilitiesBackwardArgs& args, const LogitsBlock& block,
                       int64_t row, std::span<float> logits, const VectorView& grad_logits) {
  const size_t token = static_cast<size_t>(block.token + row);
  const int32_t target = args.targets[token];
  const float grad = args.grad_log_probabilities[token];
  if (target == kIgnoreTarget || grad == 0.0f) return FillZero(grad_logits);
  HWY_DYNAMIC_DISPATCH(LogitsToGradients)
  ({.log_sum_exp = args.log_sum_exp[token], .grad_log_probability = grad}, logits);
  if (const int64_t column = TargetColumn(block, target); column >= 0) {
    logits[static_cast<size_t>(column)] += grad;
  }
  if (grad_logits.dtype == DType::kF32) return;
  ConvertFromFloat(logits.data(), grad_logits, Accumulate::kOverwrite);
}

// grad_logits[:, words of the block] for all tokens.
absl::Status GradLogits(const KernelContext& context, const TokenLogProbabilitiesBackwardArgs& args,
                        LogitsBlock block, const BackwardScratch& scratch,
                        const MatrixView& grad_logits) {
  const int64_t tokens = args.x.rows;
  for (block.token = 0; block.token < tokens; block.token += kTokenBlock) {
    block.tokens = std::min(kTokenBlock, tokens - block.token);
    const MatrixView target = grad_logits.Rows(block.token, block.tokens);
    const MatrixView logits =
        target.dtype == DType::kF32
            ? target
            : FloatMatrix(scratch.logits, {.rows = block.tokens, .cols = block.words});
    GANTRY_RETURN_IF_ERROR(
        LinearForward(context, {.x = args.x.Rows(block.token, block.tokens),
                                .weight = args.weight.Rows(block.word, block.words),
                                .y = logits}));
    context.team->For(
        {.count = block.tokens, .grain = kRowsPerTask}, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            LogitsRowBackward(args, block, row,
                              {logits.Row<float>(row), static_cast<size_t>(block.words)},
                              target.RowView(row));
          }
        });
  }
  return absl::OkStatus();
}

void CheckBackward(const TokenLogProbabilitiesBackwardArgs& args, const HeadShape& shape) {
  CheckTargets(args.targets, shape);
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.log_sum_exp.size()), shape.tokens);
  GANTRY_CHECK_EQ(static_cast<int64_t>(args.grad_log_probabilities.size()), shape.tokens);
  CheckMatrix(args.grad_x, ShapeOf(args.x), args.grad_x.dtype, "grad_x");
  if (args.grad_weight) {
    CheckMatrix(*args.grad_weight, ShapeOf(args.weight), args.grad_weight->dtype, "grad_weight");
  }
}

}  // namespace

absl::Status TokenLogProbabilitiesBackward(const KernelContext& context,
                                           const TokenLogProbabilitiesBackwardArgs& args) {
  const HeadShape shape = ShapeOfHead(args.x, args.weight);
  CheckBackward(args, shape);
  WorkspaceCursor cursor(args.workspace);
  const BackwardScratch scratch =
      BackwardScratch::Take(cursor, shape, {.x = args.x.dtype, .grad_x = args.grad_x.dtype});
  const MatrixView grad_x =
      args.grad_x.dtype == DType::kF32
          ? args.grad_x
          : FloatMatrix(scratch.grad_x, {.rows = shape.tokens, .cols = shape.channels});
  const int64_t words_per_block = BackwardVocabularyBlock(shape);
  for (int64_t word = 0; word < shape.vocabulary; word += words_per_block) {
    const int64_t words = std::min(words_per_block, shape.vocabulary - word);
    const MatrixView grad_logits = {.data = scratch.grad_logits,
                                    .dtype = args.x.dtype,
                                    .rows = shape.tokens,
                                    .cols = words,
                                    .row_stride = words};
    const LogitsBlock block = {.token = 0, .tokens = 0, .word = word, .words = words};
    GANTRY_RETURN_IF_ERROR(GradLogits(context, args, block, scratch, grad_logits));
    GANTRY_RETURN_IF_ERROR(LinearBackwardInput(
        context, {.grad_y = grad_logits,
                  .weight = args.weight.Rows(word, words),
                  .grad_x = grad_x,
                  .accumulate = word == 0 ? Accumulate::kOverwrite : Accumulate::kAdd}));
    if (!args.grad_weight) continue;
    GANTRY_RETURN_IF_ERROR(
        LinearBackwardWeight(context, {.grad_y = grad_logits,
                                       .x = args.x,
                                       .grad_weight = args.grad_weight->Rows(word, words),
                                       .accumulate = args.accumulate}));
  }
  if (args.grad_x.dtype == DType::kF32) return absl::OkStatus();
  context.team->For({.count = shape.tokens, .grain = kRowsPerTask}, [&](int64_t begin,
                                                                        int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      ConvertFromFloat(grad_x.Row<float>(row), args.grad_x.RowView(row), Accumulate::kOverwrite);
    }
  });
  return absl::OkStatus();
}

Bytes TokenLogProbabilitiesBackwardWorkspace(const HeadShape& shape,
                                             const HeadBackwardTypes& types) {
  WorkspaceCursor counting;
  BackwardScratch::Take(counting, shape, types);
  return counting.taken();
}

CrossEntropyResult CrossEntropy(const CrossEntropyArgs& args) {
  GANTRY_CHECK_EQ(args.log_probabilities.size(), args.targets.size());
  GANTRY_CHECK(args.grad_log_probabilities.empty() ||
               args.grad_log_probabilities.size() == args.targets.size())
      << args.grad_log_probabilities.size() << " gradients, " << args.targets.size() << " targets";
  CrossEntropyResult result = {.loss = 0, .valid_tokens = 0};
  for (size_t token = 0; token < args.targets.size(); ++token) {
    const bool valid = args.targets[token] != kIgnoreTarget;
    if (!args.grad_log_probabilities.empty()) {
      args.grad_log_probabilities[token] = valid ? static_cast<float>(-args.scale) : 0.0f;
    }
    if (!valid) continue;
    result.loss -= static_cast<double>(args.log_probabilities[token]);
    ++result.valid_tokens;
  }
  result.loss *= args.scale;
  return result;
}

}  // namespace gantry
#endif  // HWY_ONCE
