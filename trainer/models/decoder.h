// A decoder of any of the families in families.h: pre-norm layers of grouped-query attention and a
// feed-forward part, a tied or separate head. Trains over any ParameterStore.
//
//   GANTRY_ASSIGN_OR_RETURN(auto model, DecoderModel::Create(context, config, {}));
//   GANTRY_RETURN_IF_ERROR(store->Seal());
//   GANTRY_RETURN_IF_ERROR(model->InitializeWeights(seed));
//   GANTRY_RETURN_IF_ERROR(store->BeginStep({.optimizer = adam}));
//   GANTRY_RETURN_IF_ERROR(store->BeginMicroBatch());
//   GANTRY_ASSIGN_OR_RETURN(LossSum loss, model->ForwardBackward(batch, 1.0 / valid_tokens));
//   GANTRY_ASSIGN_OR_RETURN(StepResult result, store->EndStep());
//
// The caller begins and ends steps and micro-batches. Before Seal the same calls are a dry run:
// they make all leases and allocations, run no kernel and report a loss of zero.
//
// Several micro-batches of a step can also go through the layers together, as one micro-batch of
// the store: each layer then serves all of them before the next one, so that parameters move twice
// a step instead of twice a micro-batch, and what all of them save is there at once.
//
// Thread-compatible. Does not own what the context points to.
#ifndef GANTRY_TRAINER_MODELS_DECODER_H_
#define GANTRY_TRAINER_MODELS_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/rope.h"
#include "trainer/autograd/execution_context.h"
#include "trainer/autograd/tape.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/decoder_weights.h"
#include "trainer/models/lora_config.h"
#include "trainer/models/rotary_tables.h"
#include "trainer/nn/attention.h"
#include "trainer/nn/lora.h"
#include "trainer/nn/token_log_probability.h"

namespace gantry {

// `sequences` equally long sequences, one behind the other. A sequence may hold several documents
// (packing): a token sees those of its own document only, and positions start at 0 with each.
// Padding needs no mask: behind a document's tokens nothing sees it, and in front of them it is a
// document of its own; its targets are kIgnoreTarget.
struct TokenBatch {
  int64_t sequences;
  int64_t length;
  std::span<const int32_t> tokens;   // [sequences, length]
  std::span<const int32_t> targets;  // likewise: the token after each, or kIgnoreTarget
  // Where documents start, as indices of `tokens`, ascending; among them the start of every
  // sequence. Empty: each sequence is one document. How many there are changes no allocation.
  std::span<const int32_t> documents = {};
  // What dropout's choices are keyed by: the optimizer step, and the number of sequences before
  // these in it, over all micro-batches and ranks.
  int64_t step = 0;
  int64_t first_sequence = 0;
};

struct LossSum {
  double loss_sum = 0.0;  // sum over valid tokens of -log p(target), unscaled
  int64_t valid_tokens = 0;
};

// A loss over the log-probabilities of a batch's targets: writes its derivative by each of them.
using TokenLoss = absl::FunctionRef<absl::Status(std::span<const float> log_probabilities,
                                                 std::span<float> gradients)>;

class DecoderModel {
 public:
  // Registers the parameters with context.store, which is not sealed yet. Errors: kInvalidArgument
  // for a bad config or a compute type other than f32 and bf16; those of registration.
  static absl::StatusOr<std::unique_ptr<DecoderModel>> Create(
      const ExecutionContext& context, const DecoderConfig& config,
      const DecoderRegistration& registration);

  // Random values, a pure function of seed, tensor and element. Between steps, after Seal.
  absl::Status InitializeWeights(uint64_t seed);
  // Adapters alone, over a base whose values were read from somewhere.
  absl::Status InitializeAdapters(uint64_t seed);

  // Forward and backward pass of one micro-batch: gradients get `loss_scale` times the derivative
  // of the loss sum. For a mean over N tokens of all micro-batches and ranks, pass 1 / N. Errors:
  // kInvalidArgument for a batch that does not fit the config; those of the store, the arena and
  // the kernels, after which the step must be given up.
  absl::StatusOr<LossSum> ForwardBackward(const TokenBatch& batch, double loss_scale);
  // The same for any loss. Not called in a dry run.
  absl::Status ForwardBackward(const TokenBatch& batch, TokenLoss loss);
  // Of several micro-batches, layer by layer; one loss each. Gradients are summed in the order of
  // `batches`: they are those of one after the other, to the bit, where SumsInOneOrder().
  absl::StatusOr<std::vector<LossSum>> ForwardBackward(std::span<const TokenBatch> batches,
                                                       double loss_scale);
  // Whether each trainable parameter is used in one place only. A tied head is not: layer by layer,
  // its sum has the parts of the head first, then those of the embedding.
  bool SumsInOneOrder() const;
  // Forward pass only, in an evaluation step.
  absl::StatusOr<LossSum> Loss(const TokenBatch& batch);
  // The log-probability of each target, 0 where ignored; in an evaluation step.
  absl::Status LogProbabilities(const TokenBatch& batch, std::span<float> log_probabilities);

  const DecoderConfig& config() const { return config_; }
  const DecoderWeights& weights() const { return weights_; }
  const std::optional<LoraConfig>& lora() const { return lora_; }
  // What adapters of a batch are told; a rank of 0 without any.
  LoraOptions lora_options(const TokenBatch& batch) const;
  const ExecutionContext& context() const { return context_; }
  // For sequences of so many tokens; null without rotation. Valid until the next call.
  const RopeTable* rope(int64_t tokens) const { return rope_.For(tokens); }

 private:
  DecoderModel(const ExecutionContext& context, const DecoderConfig& config, DecoderWeights weights,
               std::optional<LoraConfig> lora);

  absl::Status CheckBatch(const TokenBatch& batch) const;
  // What a loss is told of one of several micro-batches.
  using BatchLoss = absl::FunctionRef<absl::Status(
      size_t batch, std::span<const float> log_probabilities, std::span<float> gradients)>;
  absl::Status Train(std::span<const TokenBatch> batches, BatchLoss loss);
  // What attention is told of each batch, but for windows; fills positions_.
  std::vector<SelfAttentionOptions> AttentionOf(std::span<const TokenBatch> batches);
  // The last layer's output for each batch, [sequences * length, width].
  absl::StatusOr<std::vector<Var>> Hidden(Tape& tape, std::span<const TokenBatch> batches);
  // Final norm and head.
  absl::Status Score(Tape& tape, Var hidden, const ScoredTokens& tokens) const;
  absl::Status Evaluate(Tape& tape, const TokenBatch& batch, std::span<float> log_probabilities);
  absl::StatusOr<Var> Layer(Tape& tape, const Var& input, const DecoderLayerWeights& weights,
                            const SelfAttentionOptions& attention, const LoraOptions& lora) const;

  ExecutionContext context_;
  DecoderConfig config_;
  DecoderWeights weights_;
  std::optional<LoraConfig> lora_;
  mutable RotaryTables rope_;
  // Per token of all batches; kept for their memory.
  std::vector<int32_t> positions_;
  std::vector<float> log_probabilities_;
  std::vector<float> gradients_;
};

// The parts of a forward pass that training and generation share. Tokens and positions, one a row,
// stay until the tape's Backward is done.
absl::StatusOr<Var> DecoderInput(Tape& tape, std::span<const int32_t> tokens,
                                 std::span<const int32_t> positions, const DecoderWeights& weights);
absl::StatusOr<Var> DecoderQueryKeyValue(Tape& tape, const Var& input, const DecoderConfig& config,
                                         const DecoderLayerWeights& weights,
                                         const LoraOptions& lora);
absl::StatusOr<Var> DecoderAfterAttention(Tape& tape, const Var& input, Var attended,
                                          const DecoderConfig& config,
                                          const DecoderLayerWeights& weights,
                                          const LoraOptions& lora);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_DECODER_H_
