#include "trainer/models/decoder.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/layer_activations.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/autograd/layer.h"
#include "trainer/nn/attention.h"
#include "trainer/nn/embedding.h"
#include "trainer/nn/gelu.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/norm.h"
#include "trainer/nn/query_key_norm.h"
#include "trainer/nn/residual_add.h"
#include "trainer/nn/swiglu.h"
#include "trainer/nn/token_log_probability.h"

namespace gantry {
namespace {

LayerSaving SavingOf(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return LayerSaving::kKeep;
    case Recompute::kLayer:
      return LayerSaving::kRecompute;
    case Recompute::kOffload:
      return LayerSaving::kMove;
    case Recompute::kPlanned:
      return LayerSaving::kPlanned;
  }
  return LayerSaving::kKeep;
}

absl::Status CheckIds(std::span<const int32_t> ids, const char* name, int64_t vocabulary,
                      int32_t least) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= least && ids[i] < vocabulary) continue;
    return InvalidArgument(name, " ", i, " of the batch is ", ids[i], "; the vocabulary has ",
                           vocabulary, " tokens");
  }
  return absl::OkStatus();
}

// Ascending, with the start of every sequence among them.
absl::Status CheckDocuments(const TokenBatch& batch) {
  if (batch.documents.empty()) return absl::OkStatus();
  int64_t next_sequence = 0;
  int64_t previous = -1;
  for (const int32_t start : batch.documents) {
    if (start <= previous || start >= batch.sequences * batch.length) {
      return InvalidArgument("a document starts at ", start, " behind one at ", previous,
                             ", in a batch of ", batch.sequences * batch.length, " tokens");
    }
    if (start > next_sequence) break;
    if (start == next_sequence) next_sequence += batch.length;
    previous = start;
  }
  if (next_sequence == batch.sequences * batch.length) return absl::OkStatus();
  return InvalidArgument("no document starts at token ", next_sequence, ", where a sequence does");
}

// Each token's position in its document, to `positions`.
void AppendPositions(const TokenBatch& batch, std::vector<int32_t>& positions) {
  size_t next = 0;
  int32_t position = 0;
  for (int64_t row = 0; row < batch.sequences * batch.length; ++row) {
    const bool starts = next < batch.documents.size()
                            ? batch.documents[next] == row
                            : batch.documents.empty() && row % batch.length == 0;
    if (starts) position = 0;
    if (starts && !batch.documents.empty()) ++next;
    positions.push_back(position++);
  }
}

// The projection's linear maps over x, which is consumed, with their adapters.
// NOLINTNEXTLINE(performance-unnecessary-value-param): the value is consumed
absl::StatusOr<Var> Project(Tape& tape, Var x, std::string_view name,
                            const DecoderProjection& projection, const LoraOptions& lora) {
  GANTRY_ASSIGN_OR_RETURN(Var y, Linear(tape, x, {.name = name, .weights = projection.weights}));
  for (const LoraAdapter& adapter : projection.adapters) {
    GANTRY_ASSIGN_OR_RETURN(y, AddLora(tape, x, std::exchange(y, Var()), adapter, lora));
  }
  return y;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderModel>> DecoderModel::Create(
    const ExecutionContext& context, const DecoderConfig& config,
    const DecoderRegistration& registration) {
  GANTRY_RETURN_IF_ERROR(ValidateDecoderConfig(config));
  if (context.compute_dtype == DType::kF16) {
    return InvalidArgument("decoders compute in f32 or bf16, not f16");
  }
  GANTRY_ASSIGN_OR_RETURN(DecoderWeights weights,
                          RegisterDecoder(*context.store, config, registration));
  return std::unique_ptr<DecoderModel>(
      new DecoderModel(context, config, std::move(weights), registration.lora));
}

DecoderModel::DecoderModel(const ExecutionContext& context, const DecoderConfig& config,
                           DecoderWeights weights, std::optional<LoraConfig> lora)
    : context_(context),
      config_(config),
      weights_(std::move(weights)),
      lora_(std::move(lora)),
      rope_(config) {}

absl::Status DecoderModel::InitializeWeights(uint64_t seed) {
  if (context_.store->dry_run()) return FailedPrecondition("InitializeWeights before Seal");
  GANTRY_RETURN_IF_ERROR(
      InitializeDecoder(*context_.store, config_, weights_, seed, *context_.kernels.team));
  return InitializeAdapters(seed);
}

absl::Status DecoderModel::InitializeAdapters(uint64_t seed) {
  if (context_.store->dry_run()) return FailedPrecondition("InitializeAdapters before Seal");
  return gantry::InitializeAdapters(*context_.store, config_, weights_, seed);
}

LoraOptions DecoderModel::lora_options(const TokenBatch& batch) const {
  LoraOptions options{
      .rank = 0, .scale = 0.0F, .dropout = 0.0, .seed = 0, .step = 0, .first_row = 0};
  if (!lora_.has_value()) return options;
  options.rank = lora_->rank;
  options.scale = static_cast<float>(lora_->scale());
  options.dropout = lora_->dropout;
  options.seed = lora_->seed;
  options.step = static_cast<uint32_t>(batch.step);
  options.first_row = static_cast<uint64_t>(batch.first_sequence * batch.length);
  return options;
}

absl::Status DecoderModel::CheckBatch(const TokenBatch& batch) const {
  if (batch.sequences < 1 || batch.sequences > kDecoderExtentMax) {
    return InvalidArgument("a batch of ", batch.sequences, " sequences");
  }
  if (batch.length < 1 || batch.length > config_.max_sequence) {
    return InvalidArgument("sequences of ", batch.length, " tokens; the model takes 1 to ",
                           config_.max_sequence);
  }
  const auto count = static_cast<size_t>(batch.sequences * batch.length);
  if (batch.tokens.size() != count || batch.targets.size() != count) {
    return InvalidArgument("a batch of ", batch.sequences, " x ", batch.length, " has ",
                           batch.tokens.size(), " tokens and ", batch.targets.size(), " targets");
  }
  if (batch.step < 0 || batch.step > std::numeric_limits<uint32_t>::max() ||
      batch.first_sequence < 0 || batch.first_sequence > kDecoderExtentMax) {
    return InvalidArgument("a batch of step ", batch.step, " behind ", batch.first_sequence,
                           " sequences");
  }
  GANTRY_RETURN_IF_ERROR(CheckDocuments(batch));
  GANTRY_RETURN_IF_ERROR(CheckIds(batch.tokens, "token", config_.vocabulary, 0));
  return CheckIds(batch.targets, "target", config_.vocabulary, kIgnoreTarget);
}

absl::StatusOr<Var> DecoderInput(Tape& tape, std::span<const int32_t> tokens,
                                 std::span<const int32_t> positions,
                                 const DecoderWeights& weights) {
  if (!weights.positions.has_value()) return Embedding(tape, tokens, weights.embedding);
  GANTRY_ASSIGN_OR_RETURN(const Var embedded, Embedding(tape, tokens, weights.embedding));
  GANTRY_ASSIGN_OR_RETURN(const Var placed, Embedding(tape, positions, *weights.positions));
  return ResidualAdd(tape, embedded, placed);
}

absl::StatusOr<Var> DecoderQueryKeyValue(Tape& tape, const Var& input, const DecoderConfig& config,
                                         const DecoderLayerWeights& weights,
                                         const LoraOptions& lora) {
  Var qkv;
  {
    GANTRY_ASSIGN_OR_RETURN(Var normalized, Norm(tape, input, weights.input_norm));
    GANTRY_ASSIGN_OR_RETURN(qkv, Project(tape, std::move(normalized), "self_attn.qkv_proj",
                                         weights.query_key_value, lora));
  }
  if (!weights.query_norm.has_value()) return qkv;
  return QueryKeyNorm(tape, std::exchange(qkv, Var()),
                      {.query_heads = config.heads,
                       .kv_heads = config.kv_heads,
                       .head_dim = config.head_dim,
                       .query = *weights.query_norm,
                       .key = *weights.key_norm});
}

absl::StatusOr<Var> DecoderAfterAttention(Tape& tape, const Var& input, Var attended,
                                          const DecoderConfig& config,
                                          const DecoderLayerWeights& weights,
                                          const LoraOptions& lora) {
  Var sum;
  Var branch;
  GANTRY_ASSIGN_OR_RETURN(branch, Project(tape, std::move(attended), "self_attn.o_proj",
                                          weights.attention_output, lora));
  {
    GANTRY_ASSIGN_OR_RETURN(SumAndNorm middle,
                            AddNorm(tape, branch, input, weights.post_attention_norm));
    sum = std::move(middle.sum);
    branch = std::move(middle.normalized);
  }
  const bool is_gated = config.activation == ActivationKind::kSwiGlu;
  GANTRY_ASSIGN_OR_RETURN(
      branch, Project(tape, std::exchange(branch, Var()),
                      is_gated ? "mlp.gate_up_proj" : "mlp.up_proj", weights.gate_up, lora));
  if (is_gated) {
    GANTRY_ASSIGN_OR_RETURN(branch, SwiGlu(tape, branch));
  } else {
    const bool is_exact = config.activation == ActivationKind::kGelu;
    GANTRY_ASSIGN_OR_RETURN(branch,
                            Gelu(tape, branch, is_exact ? GeluForm::kExact : GeluForm::kTanh));
  }
  GANTRY_ASSIGN_OR_RETURN(
      branch, Project(tape, std::exchange(branch, Var()), "mlp.down_proj", weights.down, lora));
  return ResidualAdd(tape, sum, branch);
}

absl::StatusOr<Var> DecoderModel::Layer(Tape& tape, const Var& input,
                                        const DecoderLayerWeights& weights,
                                        const SelfAttentionOptions& attention,
                                        const LoraOptions& lora) const {
  GANTRY_ASSIGN_OR_RETURN(Var qkv, DecoderQueryKeyValue(tape, input, config_, weights, lora));
  GANTRY_ASSIGN_OR_RETURN(Var attended, SelfAttention(tape, std::move(qkv), attention));
  return DecoderAfterAttention(tape, input, std::move(attended), config_, weights, lora);
}

bool DecoderModel::SumsInOneOrder() const {
  const Parameter& head = weights_.head.parameter;
  return !head.trainable() || head.tensor != weights_.embedding.parameter.tensor;
}

std::vector<SelfAttentionOptions> DecoderModel::AttentionOf(std::span<const TokenBatch> batches) {
  positions_.clear();
  for (const TokenBatch& batch : batches) AppendPositions(batch, positions_);
  int64_t length = 0;
  for (const TokenBatch& batch : batches) length = std::max(length, batch.length);
  const RopeTable* rope = rope_.For(length);
  std::vector<SelfAttentionOptions> attention;
  attention.reserve(batches.size());
  size_t first = 0;
  for (const TokenBatch& batch : batches) {
    attention.push_back({.shape = {.batch = batch.sequences,
                                   .tokens = batch.length,
                                   .query_heads = config_.heads,
                                   .kv_heads = config_.kv_heads,
                                   .head_dim = config_.head_dim},
                         .rope = rope,
                         .documents = batch.documents,
                         .positions = {}});
    const std::span<const int32_t> own = std::span(positions_).subspan(first, batch.tokens.size());
    if (!batch.documents.empty()) attention.back().positions = own;
    first += own.size();
  }
  return attention;
}

// The last micro-batch goes first: the backward pass, which is this one reversed, then adds to the
// gradients in the order of the micro-batches.
absl::StatusOr<std::vector<Var>> DecoderModel::Hidden(Tape& tape,
                                                      std::span<const TokenBatch> batches) {
  std::vector<SelfAttentionOptions> attention = AttentionOf(batches);
  std::vector<Var> hidden(batches.size());
  size_t end = positions_.size();
  for (size_t b = batches.size(); b-- > 0;) {
    end -= batches[b].tokens.size();
    const std::span<const int32_t> positions =
        std::span(positions_).subspan(end, batches[b].tokens.size());
    GANTRY_ASSIGN_OR_RETURN(hidden[b], DecoderInput(tape, batches[b].tokens, positions, weights_));
  }
  LayerOptions options{.layer = 0, .saving = SavingOf(config_.recompute)};
  for (const DecoderLayerWeights& layer : weights_.layers) {
    for (size_t b = batches.size(); b-- > 0;) {
      attention[b].shape.window = config_.window(options.layer);
      const auto body = [this, &layer, own = attention[b], lora = lora_options(batches[b])](
                            Tape& inner, const Var& input) {
        return Layer(inner, input, layer, own, lora);
      };
      GANTRY_ASSIGN_OR_RETURN(hidden[b], RunLayer(tape, hidden[b], options, body));
    }
    ++options.layer;
  }
  return hidden;
}

absl::Status DecoderModel::Score(Tape& tape, Var hidden, const ScoredTokens& tokens) const {
  GANTRY_ASSIGN_OR_RETURN(hidden, Norm(tape, hidden, weights_.final_norm));
  return TokenLogProbability(tape, hidden, weights_.head, tokens);
}

absl::Status DecoderModel::Train(std::span<const TokenBatch> batches, BatchLoss loss) {
  size_t tokens = 0;
  for (const TokenBatch& batch : batches) {
    GANTRY_RETURN_IF_ERROR(CheckBatch(batch));
    tokens += batch.tokens.size();
  }
  log_probabilities_.resize(tokens);
  gradients_.resize(tokens);
  Tape tape(context_, Tape::Mode::kTraining);
  {
    GANTRY_ASSIGN_OR_RETURN(std::vector<Var> hidden, Hidden(tape, batches));
    for (size_t b = batches.size(); b-- > 0;) {
      tokens -= batches[b].tokens.size();
      const std::span<float> log_probabilities =
          std::span(log_probabilities_).subspan(tokens, batches[b].tokens.size());
      const std::span<float> gradients =
          std::span(gradients_).subspan(tokens, batches[b].tokens.size());
      GANTRY_RETURN_IF_ERROR(Score(tape, std::move(hidden[b]),
                                   {.targets = batches[b].targets,
                                    .log_probabilities = log_probabilities,
                                    .grad_log_probabilities = gradients}));
      GANTRY_RETURN_IF_ERROR(tape.Forward("loss", {}, [&](const LeasedParameters&) {
        return loss(b, log_probabilities, gradients);
      }));
    }
  }
  return tape.Backward();
}

absl::Status DecoderModel::ForwardBackward(const TokenBatch& batch, TokenLoss loss) {
  return Train({&batch, 1},
               [&](size_t, std::span<const float> log_probabilities, std::span<float> gradients) {
                 return loss(log_probabilities, gradients);
               });
}

absl::StatusOr<std::vector<LossSum>> DecoderModel::ForwardBackward(
    std::span<const TokenBatch> batches, double loss_scale) {
  std::vector<LossSum> losses(batches.size());
  GANTRY_RETURN_IF_ERROR(Train(batches, [&](size_t batch, std::span<const float> log_probabilities,
                                            std::span<float> gradients) {
    const CrossEntropyArgs args{.log_probabilities = log_probabilities,
                                .targets = batches[batch].targets,
                                .scale = 1.0,
                                .grad_log_probabilities = {}};
    const CrossEntropyResult sum = CrossEntropy(args);
    losses[batch] = {.loss_sum = sum.loss, .valid_tokens = sum.valid_tokens};
    CrossEntropyArgs scaled = args;
    scaled.scale = loss_scale;
    scaled.grad_log_probabilities = gradients;
    CrossEntropy(scaled);
    return absl::OkStatus();
  }));
  return losses;
}

absl::StatusOr<LossSum> DecoderModel::ForwardBackward(const TokenBatch& batch, double loss_scale) {
  GANTRY_ASSIGN_OR_RETURN(const std::vector<LossSum> losses,
                          ForwardBackward(std::span(&batch, 1), loss_scale));
  return losses.front();
}

absl::Status DecoderModel::Evaluate(Tape& tape, const TokenBatch& batch,
                                    std::span<float> log_probabilities) {
  GANTRY_RETURN_IF_ERROR(CheckBatch(batch));
  GANTRY_ASSIGN_OR_RETURN(std::vector<Var> hidden, Hidden(tape, {&batch, 1}));
  return Score(tape, std::move(hidden.front()),
               {.targets = batch.targets,
                .log_probabilities = log_probabilities,
                .grad_log_probabilities = {}});
}

absl::Status DecoderModel::LogProbabilities(const TokenBatch& batch,
                                            std::span<float> log_probabilities) {
  if (log_probabilities.size() != batch.tokens.size()) {
    return InvalidArgument(log_probabilities.size(), " log-probabilities for ", batch.tokens.size(),
                           " tokens");
  }
  Tape tape(context_, Tape::Mode::kEvaluation);
  return Evaluate(tape, batch, log_probabilities);
}

absl::StatusOr<LossSum> DecoderModel::Loss(const TokenBatch& batch) {
  log_probabilities_.resize(batch.tokens.size());
  Tape tape(context_, Tape::Mode::kEvaluation);
  GANTRY_RETURN_IF_ERROR(Evaluate(tape, batch, log_probabilities_));
  LossSum result;
  GANTRY_RETURN_IF_ERROR(tape.Forward("loss", {}, [&](const LeasedParameters&) {
    const CrossEntropyResult sum = CrossEntropy({.log_probabilities = log_probabilities_,
                                                 .targets = batch.targets,
                                                 .scale = 1.0,
                                                 .grad_log_probabilities = {}});
    result = {.loss_sum = sum.loss, .valid_tokens = sum.valid_tokens};
    return absl::OkStatus();
  }));
  return result;
}

}  // namespace gantry
