#include "trainer/models/decoder_generator.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/matmul.h"
#include "trainer/nn/cached_attention.h"
#include "trainer/nn/norm.h"

namespace gantry {
namespace {

constexpr int64_t kCacheElementsMax = int64_t{1} << 40;

bool FitsCache(const DecoderConfig& config, const DecoderGenerator::Options& options) {
  int64_t elements = 2;
  for (const int64_t extent :
       {options.sequences, config.layers, options.capacity, config.kv_heads, config.head_dim}) {
    if (extent > kCacheElementsMax / elements) return false;
    elements *= extent;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderGenerator>> DecoderGenerator::Create(
    const DecoderModel* model, const Options& options) {
  const DecoderConfig& config = model->config();
  if (options.capacity < 1 || options.capacity > config.max_sequence) {
    return InvalidArgument("a cache of ", options.capacity, " tokens; the model takes 1 to ",
                           config.max_sequence);
  }
  if (options.sequences < 1 || options.step_tokens < 1) {
    return InvalidArgument("a cache of ", options.sequences, " sequences, filled ",
                           options.step_tokens, " tokens at a time; both must be at least 1");
  }
  if (!FitsCache(config, options)) {
    return InvalidArgument("a cache of ", options.sequences, " sequences of ", options.capacity,
                           " tokens has more than ", kCacheElementsMax, " elements");
  }
  return std::unique_ptr<DecoderGenerator>(new DecoderGenerator(model, options));
}

DecoderGenerator::DecoderGenerator(const DecoderModel* model, const Options& options)
    : model_(model), options_(options) {
  const DecoderConfig& config = model->config();
  lengths_.resize(static_cast<size_t>(options.sequences));
  cache_.resize(static_cast<size_t>(2 * options.sequences * config.layers * options.capacity *
                                    config.key_width() * SizeOf(model->context().compute_dtype)));
}

MatrixView DecoderGenerator::Cache(int64_t sequence, int64_t layer, int64_t part) {
  const DecoderConfig& config = model_->config();
  const DType dtype = model_->context().compute_dtype;
  const int64_t cols = config.key_width();
  const int64_t block = 2 * (sequence * config.layers + layer) + part;
  return {.data = cache_.data() + block * options_.capacity * cols * SizeOf(dtype),
          .dtype = dtype,
          .rows = options_.capacity,
          .cols = cols,
          .row_stride = cols};
}

void DecoderGenerator::Truncate(int64_t sequence, int64_t length) {
  int64_t& current = lengths_[static_cast<size_t>(sequence)];
  GANTRY_CHECK(length >= 0 && length <= current) << length << " of " << current;
  current = length;
}

absl::Status DecoderGenerator::CheckTokens(std::span<const SequenceTokens> appended,
                                           std::span<float> logits) const {
  const int64_t vocabulary = model_->config().vocabulary;
  if (appended.empty()) return InvalidArgument("no sequences to append to");
  if (logits.size() != appended.size() * static_cast<size_t>(vocabulary)) {
    return InvalidArgument("room for ", logits.size(), " logits of ", appended.size(),
                           " sequences; the vocabulary has ", vocabulary);
  }
  for (size_t i = 0; i < appended.size(); ++i) {
    const int64_t sequence = appended[i].sequence;
    if (sequence < 0 || sequence >= options_.sequences) {
      return InvalidArgument("sequence ", sequence, " of ", options_.sequences);
    }
    for (size_t j = 0; j < i; ++j) {
      if (appended[j].sequence != sequence) continue;
      return InvalidArgument("sequence ", sequence, " is named twice");
    }
    const auto count = static_cast<int64_t>(appended[i].tokens.size());
    if (count == 0) return InvalidArgument("no tokens to append to sequence ", sequence);
    if (count > options_.capacity - length(sequence)) {
      return InvalidArgument(count, " tokens after ", length(sequence), " do not fit a cache of ",
                             options_.capacity);
    }
    for (const int32_t token : appended[i].tokens) {
      if (token >= 0 && token < vocabulary) continue;
      return InvalidArgument("token ", token, " is outside the vocabulary of ", vocabulary);
    }
  }
  return absl::OkStatus();
}

absl::Status DecoderGenerator::Append(std::span<const int32_t> tokens, std::span<float> logits) {
  const SequenceTokens appended{.sequence = 0, .tokens = tokens};
  return Append(std::span(&appended, 1), logits);
}

absl::Status DecoderGenerator::Append(std::span<const SequenceTokens> appended,
                                      std::span<float> logits) {
  GANTRY_RETURN_IF_ERROR(CheckTokens(appended, logits));
  absl::Status status = absl::OkStatus();
  longest_ = 0;
  for (const SequenceTokens& entry : appended) {
    const auto count = static_cast<int64_t>(entry.tokens.size());
    longest_ = std::max(longest_, length(entry.sequence) + count);
  }
  Piece next{.entry = 0, .first = 0, .count = 0, .is_last = false};
  while (status.ok() && next.entry < appended.size()) {
    FillStep(appended, &next);
    status = RunStep(appended, logits);
    if (!status.ok()) break;
    for (const Piece& piece : pieces_) {
      lengths_[static_cast<size_t>(appended[piece.entry].sequence)] += piece.count;
    }
  }
  if (status.ok()) return status;
  // The steps before the one that failed took these.
  for (size_t i = 0; i < appended.size(); ++i) {
    const size_t first = pieces_.front().entry;
    int64_t taken = i < first ? static_cast<int64_t>(appended[i].tokens.size()) : 0;
    if (i == first) taken = pieces_.front().first;
    lengths_[static_cast<size_t>(appended[i].sequence)] -= taken;
  }
  return status;
}

void DecoderGenerator::FillStep(std::span<const SequenceTokens> appended, Piece* next) {
  pieces_.clear();
  tokens_.clear();
  int64_t room = options_.step_tokens;
  while (room > 0 && next->entry < appended.size()) {
    const std::span<const int32_t> tokens = appended[next->entry].tokens;
    const int64_t left = static_cast<int64_t>(tokens.size()) - next->first;
    next->count = std::min(room, left);
    next->is_last = next->count == left;
    const auto taken =
        tokens.subspan(static_cast<size_t>(next->first), static_cast<size_t>(next->count));
    tokens_.insert(tokens_.end(), taken.begin(), taken.end());
    pieces_.push_back(*next);
    room -= next->count;
    next->first += next->count;
    if (!next->is_last) continue;
    ++next->entry;
    next->first = 0;
  }
}

absl::Status DecoderGenerator::RunStep(std::span<const SequenceTokens> appended,
                                       std::span<float> logits) {
  const bool decodes = tokens_.size() == pieces_.size();
  ParameterStore& store = *model_->context().store;
  GANTRY_RETURN_IF_ERROR(store.BeginStep({.trace_key = decodes ? "decode" : "prefill",
                                          .micro_batches = 1,
                                          .optimizer = std::nullopt}));
  const absl::Status status = RunLayers(appended, logits);
  const absl::StatusOr<StepResult> end = store.EndStep();
  GANTRY_RETURN_IF_ERROR(status);
  return end.status();
}

absl::Status DecoderGenerator::RunLayers(std::span<const SequenceTokens> appended,
                                         std::span<float> logits) {
  cached_.clear();
  for (const Piece& piece : pieces_) {
    const int64_t sequence = appended[piece.entry].sequence;
    cached_.push_back({.tokens = piece.count,
                       .length = length(sequence),
                       .keys = Cache(sequence, 0, 0),
                       .values = Cache(sequence, 0, 1)});
  }
  GANTRY_RETURN_IF_ERROR(model_->context().store->BeginMicroBatch());
  Tape tape(model_->context(), Tape::Mode::kEvaluation);
  GANTRY_ASSIGN_OR_RETURN(const Var hidden, Hidden(tape));
  return Logits(tape, hidden, logits);
}

absl::StatusOr<Var> DecoderGenerator::Hidden(Tape& tape) {
  const DecoderConfig& config = model_->config();
  AttentionShape shape{.batch = 1,
                       .tokens = static_cast<int64_t>(tokens_.size()),
                       .query_heads = config.heads,
                       .kv_heads = config.kv_heads,
                       .head_dim = config.head_dim};
  positions_.clear();
  for (const CachedSequence& sequence : cached_) {
    const int64_t end = sequence.length + sequence.tokens;
    for (int64_t i = sequence.length; i < end; ++i) positions_.push_back(static_cast<int32_t>(i));
  }
  const RopeTable* rope = model_->rope(longest_);
  const LoraOptions lora = model_->lora_options({});
  const MatrixView first = Cache(0, 0, 0);
  const int64_t layer_bytes = 2 * first.rows * first.cols * SizeOf(first.dtype);
  GANTRY_ASSIGN_OR_RETURN(Var hidden, DecoderInput(tape, tokens_, positions_, model_->weights()));
  for (int64_t i = 0; i < config.layers; ++i) {
    const DecoderLayerWeights& weights = model_->weights().layers[static_cast<size_t>(i)];
    shape.window = config.window(i);
    GANTRY_ASSIGN_OR_RETURN(Var qkv, DecoderQueryKeyValue(tape, hidden, config, weights, lora));
    GANTRY_ASSIGN_OR_RETURN(Var attended,
                            CachedAttention(tape, std::move(qkv),
                                            {.shape = shape, .rope = rope, .sequences = cached_}));
    GANTRY_ASSIGN_OR_RETURN(
        hidden, DecoderAfterAttention(tape, hidden, std::move(attended), config, weights, lora));
    for (CachedSequence& sequence : cached_) {
      sequence.keys.data += layer_bytes;
      sequence.values.data += layer_bytes;
    }
  }
  return hidden;
}

absl::Status DecoderGenerator::Logits(Tape& tape, const Var& hidden,
                                      std::span<float> logits) const {
  const DecoderWeights& weights = model_->weights();
  const auto ending = static_cast<int64_t>(std::ranges::count_if(pieces_, &Piece::is_last));
  if (ending == 0) return absl::OkStatus();
  const Activation& rows = hidden.value();
  GANTRY_ASSIGN_OR_RETURN(Activation last,
                          tape.Allocate({.rows = ending, .cols = rows.cols()}, rows.dtype()));
  GANTRY_RETURN_IF_ERROR(tape.Forward("last_rows", {}, [&](const LeasedParameters&) {
    int64_t row = -1;
    int64_t to = 0;
    for (const Piece& piece : pieces_) {
      row += piece.count;
      if (!piece.is_last) continue;
      std::memcpy(last.matrix().RowView(to++).data, rows.matrix().RowView(row).data,
                  static_cast<size_t>(rows.cols() * SizeOf(rows.dtype())));
    }
    return absl::OkStatus();
  }));
  GANTRY_ASSIGN_OR_RETURN(const Var normalized,
                          Norm(tape, Var(std::move(last), nullptr), weights.final_norm));
  const auto vocabulary = weights.head.shape.rows;
  size_t first_entry = 0;
  while (!pieces_[first_entry].is_last) ++first_entry;
  const std::span<float> own =
      logits.subspan(pieces_[first_entry].entry * static_cast<size_t>(vocabulary),
                     static_cast<size_t>(ending * vocabulary));
  return tape.Forward("head", {&weights.head.parameter, 1}, [&](const LeasedParameters& leased) {
    return LinearForward(tape.context().kernels,
                         {.x = normalized.value().matrix(),
                          .weight = leased.Value(0, weights.head.shape),
                          .y = ViewOf(own, {.rows = ending, .cols = vocabulary})});
  });
}

}  // namespace gantry
