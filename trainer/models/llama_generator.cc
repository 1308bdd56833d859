#include "trainer/models/llama_generator.h"

#include <array>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "trainer/nn/cached_attention.h"
#include "trainer/nn/embedding.h"

namespace gantry {

absl::StatusOr<std::unique_ptr<LlamaGenerator>> LlamaGenerator::Create(const LlamaModel* model,
                                                                       int64_t capacity) {
  if (capacity < 1 || capacity > model->config().max_sequence) {
    return InvalidArgument("a cache of ", capacity, " tokens; the model takes 1 to ",
                           model->config().max_sequence);
  }
  return std::unique_ptr<LlamaGenerator>(new LlamaGenerator(model, capacity));
}

LlamaGenerator::LlamaGenerator(const LlamaModel* model, int64_t capacity)
    : model_(model), capacity_(capacity) {
  const LlamaConfig& config = model->config();
  cache_.resize(static_cast<size_t>(2 * config.layers * capacity * config.kv_heads *
                                    config.head_dim * SizeOf(model->context().compute_dtype)));
}

MatrixView LlamaGenerator::Cache(int64_t layer, int64_t part) {
  const LlamaConfig& config = model_->config();
  const DType dtype = model_->context().compute_dtype;
  const int64_t cols = config.kv_heads * config.head_dim;
  return {.data = cache_.data() + (2 * layer + part) * capacity_ * cols * SizeOf(dtype),
          .dtype = dtype,
          .rows = capacity_,
          .cols = cols,
          .row_stride = cols};
}

void LlamaGenerator::Truncate(int64_t length) {
  GANTRY_CHECK(length >= 0 && length <= length_) << length << " of " << length_;
  length_ = length;
}

absl::Status LlamaGenerator::CheckTokens(std::span<const int32_t> tokens,
                                         std::span<float> logits) const {
  const int64_t vocabulary = model_->config().vocabulary;
  const auto count = static_cast<int64_t>(tokens.size());
  if (count == 0) return InvalidArgument("no tokens to append");
  if (count > capacity_ - length_) {
    return InvalidArgument(count, " tokens after ", length_, " do not fit a cache of ", capacity_);
  }
  if (static_cast<int64_t>(logits.size()) != vocabulary) {
    return InvalidArgument("room for ", logits.size(), " logits; the vocabulary has ", vocabulary);
  }
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    return InvalidArgument("token ", token, " is outside the vocabulary of ", vocabulary);
  }
  return absl::OkStatus();
}

absl::Status LlamaGenerator::Append(std::span<const int32_t> tokens, std::span<float> logits) {
  GANTRY_RETURN_IF_ERROR(CheckTokens(tokens, logits));
  ParameterStore& store = *model_->context().store;
  GANTRY_RETURN_IF_ERROR(store.BeginStep({.trace_key = tokens.size() == 1 ? "decode" : "prefill",
                                          .micro_batches = 1,
                                          .optimizer = std::nullopt}));
  const absl::Status status = RunStep(tokens, logits);
  const absl::StatusOr<StepResult> end = store.EndStep();
  GANTRY_RETURN_IF_ERROR(status);
  GANTRY_RETURN_IF_ERROR(end.status());
  length_ += static_cast<int64_t>(tokens.size());
  return absl::OkStatus();
}

absl::Status LlamaGenerator::RunStep(std::span<const int32_t> tokens, std::span<float> logits) {
  GANTRY_RETURN_IF_ERROR(model_->context().store->BeginMicroBatch());
  Tape tape(model_->context(), Tape::Mode::kEvaluation);
  GANTRY_ASSIGN_OR_RETURN(const Var hidden, Hidden(tape, tokens));
  return Logits(tape, hidden, logits);
}

absl::StatusOr<Var> LlamaGenerator::Hidden(Tape& tape, std::span<const int32_t> tokens) {
  const LlamaConfig& config = model_->config();
  const AttentionShape shape{.batch = 1,
                             .tokens = static_cast<int64_t>(tokens.size()),
                             .query_heads = config.heads,
                             .kv_heads = config.kv_heads,
                             .head_dim = config.head_dim};
  GANTRY_ASSIGN_OR_RETURN(Var hidden, Embedding(tape, tokens, model_->weights().embedding));
  for (int64_t i = 0; i < config.layers; ++i) {
    const LlamaLayerWeights& weights = model_->weights().layers[static_cast<size_t>(i)];
    GANTRY_ASSIGN_OR_RETURN(Var qkv, LlamaQueryKeyValue(tape, hidden, weights));
    GANTRY_ASSIGN_OR_RETURN(Var attended, CachedAttention(tape, std::move(qkv),
                                                          {.shape = shape,
                                                           .rope = &model_->rope(),
                                                           .keys = Cache(i, 0),
                                                           .values = Cache(i, 1),
                                                           .length = length_}));
    GANTRY_ASSIGN_OR_RETURN(hidden,
                            LlamaAfterAttention(tape, hidden, std::move(attended), weights));
  }
  return hidden;
}

absl::Status LlamaGenerator::Logits(Tape& tape, const Var& hidden, std::span<float> logits) const {
  const LlamaWeights& weights = model_->weights();
  const Activation& rows = hidden.value();
  const MatrixShape row{.rows = 1, .cols = rows.cols()};
  GANTRY_ASSIGN_OR_RETURN(const Activation normalized, tape.Allocate(row, rows.dtype()));
  const std::array<Parameter, 2> parameters = {weights.final_norm.parameter,
                                               weights.head.parameter};
  return tape.Forward("head", parameters, [&](const LeasedParameters& leased) {
    float rstd = 0.0F;
    RmsNormForward(tape.context().kernels, {.x = rows.matrix().Rows(rows.rows() - 1, 1),
                                            .residual = std::nullopt,
                                            .sum = std::nullopt,
                                            .weight = leased.Value(0, row).Flat(),
                                            .epsilon = weights.final_norm.epsilon,
                                            .y = normalized.matrix(),
                                            .rstd = {&rstd, 1}});
    return LinearForward(tape.context().kernels,
                         {.x = normalized.matrix(),
                          .weight = leased.Value(1, weights.head.shape),
                          .y = ViewOf(logits, {.rows = 1, .cols = weights.head.shape.rows})});
  });
}

}  // namespace gantry
