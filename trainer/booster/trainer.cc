#include "trainer/booster/trainer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/tier.h"
#include "gemini/engine.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/learning_rate.h"
#include "trainer/booster/loss_scale.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/parameter_groups.h"
#include "trainer/booster/parameter_hash.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/text_codec.h"
#include "trainer/booster/text_generator.h"
#include "trainer/booster/training_batch.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_directory.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/data/token_source.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/decoder_weights.h"

namespace gantry {
namespace {

constexpr size_t kSettingsNamed = 4;  // in a warning
// Layer by layer should move blocks in at most so much of the time that one by one takes.
constexpr double kWorthwhile = 0.95;

int64_t ElementsOf(const DecoderModel& model) {
  int64_t elements = 0;
  for (const RegisteredTensor& tensor : model.weights().tensors) elements += tensor.elements;
  return elements;
}

std::array<Bytes, kTierCount> TierBytes(const EngineStatistics& statistics) {
  return {statistics.device.slot_bytes * statistics.device.slots_used,
          statistics.host.slot_bytes * statistics.host.slots_used, statistics.file_bytes()};
}

}  // namespace

Trainer::Trainer(Options options)
    : options_(std::move(options)),
      groups_(options_.config->optimizer.groups, options_.config->optimizer.weight_decay) {}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(Options options) {
  const RunConfig& config = *options.config;
  GANTRY_RETURN_IF_ERROR(ValidateTraining(config));
  if (config.train.eval_every == 0) options.validation = nullptr;
  options.settings["data.fingerprint"] = options.training->fingerprint();
  auto trainer = std::unique_ptr<Trainer>(new Trainer(std::move(options)));
  // First what fails fast.
  if (!config.train.checkpoint_dir.empty()) {
    GANTRY_ASSIGN_OR_RETURN(trainer->checkpoints_,
                            CheckpointDirectory::Open({.files = trainer->options_.files,
                                                       .path = config.train.checkpoint_dir,
                                                       .keep = config.train.keep}));
  }
  GANTRY_RETURN_IF_ERROR(trainer->RegisterModel());
  GANTRY_RETURN_IF_ERROR(trainer->DryRun());
  GANTRY_RETURN_IF_ERROR(trainer->options_.context.store->Seal());
  GANTRY_RETURN_IF_ERROR(trainer->FindStart());
  return trainer;
}

absl::Status Trainer::RegisterModel() {
  const RunConfig& config = *options_.config;
  GANTRY_ASSIGN_OR_RETURN(
      model_, DecoderModel::Create(
                  options_.context, config.model,
                  {.trainability = {},
                   .options = [this](std::string_view name, const RegistrationOptions& implied) {
                     return groups_.For(name, implied);
                   }}));
  std::vector<std::string> names;
  for (const RegisteredTensor& tensor : model_->weights().tensors) names.push_back(tensor.name);
  GANTRY_RETURN_IF_ERROR(CheckGroupsAreUsed(config.optimizer.groups, names));
  if (config.model.parameter_dtype == DType::kF16) {
    position_.loss_scale = LossScale{.scale = config.optimizer.loss_scale.initial, .good_steps = 0};
  }
  return absl::OkStatus();
}

// Shows the store the steps that will come.
absl::Status Trainer::DryRun() {
  if (evaluates()) GANTRY_RETURN_IF_ERROR(EvaluateStep().status());
  GANTRY_RETURN_IF_ERROR(ChooseOrder());
  return DryTrainStep();
}

// Once more with the layers run again where the store chooses.
absl::Status Trainer::DryTrainStep() {
  dry_layers_ = LayerSaving::kKeep;
  GANTRY_RETURN_IF_ERROR(TrainStep().status());
  if (options_.config->model.recompute != Recompute::kPlanned) return absl::OkStatus();
  dry_layers_ = LayerSaving::kRecompute;
  return TrainStep().status();
}

absl::Status Trainer::ChooseOrder() {
  const AccumulationOrder wanted = options_.config->train.accumulation_order;
  if (!model_->SumsInOneOrder()) {
    if (wanted != AccumulationOrder::kLayer) return absl::OkStatus();
    return InvalidArgument(
        "train.accumulation_order is layer, but the head is the embedding table "
        "(model.tie_embeddings): its gradient would be summed in another order, so the numbers "
        "would not be those of micro_batch; use that, or auto");
  }
  if (options_.config->data.accumulation == 1) return absl::OkStatus();
  if (wanted != AccumulationOrder::kAuto) {
    order_ = wanted;
    return absl::OkStatus();
  }
  if (options_.engine == nullptr) return absl::OkStatus();
  // The last dry run of a key counts.
  GANTRY_RETURN_IF_ERROR(DryTrainStep());
  const absl::StatusOr<Nanoseconds> one_by_one = options_.engine->MovementTime(kTrainKey);
  order_ = AccumulationOrder::kLayer;
  GANTRY_RETURN_IF_ERROR(DryTrainStep());
  const absl::StatusOr<Nanoseconds> by_layer = options_.engine->MovementTime(kTrainKey);
  // Where both are as good, the one that needs less memory.
  const bool pays =
      by_layer.ok() && (!one_by_one.ok() || static_cast<double>(*by_layer) <
                                                kWorthwhile * static_cast<double>(*one_by_one));
  if (!pays) order_ = AccumulationOrder::kMicroBatch;
  return absl::OkStatus();
}

absl::Status Trainer::FindStart() {
  const TrainConfig& train = options_.config->train;
  const bool empty = checkpoints_ == nullptr || checkpoints_->names().empty();
  if (train.resume == "auto") return empty ? StartFresh() : Resume(checkpoints_->path());
  if (train.resume != "never") return Resume(train.resume);
  if (empty) return StartFresh();
  return FailedPrecondition("'", checkpoints_->path(), "' holds checkpoints of an earlier run (",
                            checkpoints_->names().front(),
                            "): choose another train.checkpoint_dir, or train.resume=auto to "
                            "continue that run");
}

absl::Status Trainer::StartFresh() {
  if (options_.initialize) return options_.initialize(*options_.context.store);
  return model_->InitializeWeights(options_.config->train.seed);
}

absl::Status Trainer::Resume(const std::string& path) {
  GANTRY_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options_.files, path));
  GANTRY_RETURN_IF_ERROR(checkpoint.Restore(*options_.context.store));
  WarnOfOtherSettings(checkpoint.manifest().settings);
  const std::optional<LossScale> fresh_scale = position_.loss_scale;
  position_ = checkpoint.manifest().position;
  if (fresh_scale.has_value() != position_.loss_scale.has_value()) {
    position_.loss_scale = fresh_scale;  // of another type than the checkpoint
  }
  summary_.validation_best = position_.best;
  first_step_ = position_.step;
  saved_step_ = position_.step;
  checkpoint_ = checkpoint.path();
  // A crash may have come after the save and before it was named the best.
  const bool is_best = position_.best.has_value() && position_.best->step == position_.step;
  if (!options_.config->train.keep_best || !is_best || checkpoints_ == nullptr) {
    return absl::OkStatus();
  }
  const bool is_newest =
      !checkpoints_->names().empty() &&
      checkpoint_ == StrCat(checkpoints_->path(), "/", checkpoints_->names().front());
  return is_newest ? checkpoints_->MarkNewestBest() : absl::OkStatus();
}

void Trainer::WarnOfOtherSettings(const RunSettings& saved) const {
  std::vector<std::string> other;
  for (const auto& [key, value] : options_.settings) {
    if (key == kModelPathSetting) continue;  // a place, not a number
    const auto found = saved.find(key);
    if (found == saved.end() || found->second != value) other.push_back(key);
  }
  if (other.empty()) return;
  std::string names;
  for (size_t i = 0; i < other.size() && i < kSettingsNamed; ++i) {
    names += StrCat(i == 0 ? "" : ", ", other[i]);
  }
  if (other.size() > kSettingsNamed) {
    names += StrCat(" and ", other.size() - kSettingsNamed, " more");
  }
  options_.logger->Warning(StrCat("the checkpoint was written with other settings (", names,
                                  "): the run goes on, but not as the earlier one would have"));
}

void Trainer::Start() {
  if (started_) return;
  started_ = true;
  summary_.first_step = first_step_;
  summary_.parameters = ElementsOf(*model_);
  if (options_.engine != nullptr) options_.engine->ResetStatistics();
  if (options_.observer != nullptr) {
    options_.observer->OnStart({.parameters = summary_.parameters,
                                .first_step = first_step_,
                                .steps = options_.config->train.steps,
                                .tokens_per_step = TokensPerStep(options_.config->data),
                                .resumed_from = first_step_ > 0 ? checkpoint_ : ""});
  }
}

absl::StatusOr<TrainingSummary> Trainer::Run() {
  GANTRY_RETURN_IF_ERROR(RunSteps(options_.config->train.steps - position_.step, Settle::kNever));
  return Finish();
}

absl::Status Trainer::Advance(int64_t steps) { return RunSteps(steps, Settle::kAfterLast); }

absl::StatusOr<TrainingSummary> Trainer::Finish() {
  Start();
  GANTRY_RETURN_IF_ERROR(SaveIfNew());
  GANTRY_ASSIGN_OR_RETURN(summary_.parameter_hash, HashParameters(*options_.context.store));
  summary_.step = position_.step;
  summary_.checkpoint = checkpoint_;
  if (summary_.end == RunEnd::kFinished && stopped_early()) summary_.end = RunEnd::kStoppedEarly;
  if (options_.engine != nullptr) summary_.engine = options_.engine->statistics();
  return summary_;
}

absl::Status Trainer::RunSteps(int64_t steps, Settle settle) {
  if (!started_) {
    Start();
    // What a stop in a hurry left undone after the last step.
    if (evaluation_is_due() && position_.step > position_.evaluated_step) {
      GANTRY_RETURN_IF_ERROR(DoWhatIsDue());
    }
  }
  for (int64_t i = 0; i < steps && !finished(); ++i) {
    if (stopping()) {
      summary_.end = RunEnd::kStopped;
      break;
    }
    const bool last = i + 1 == steps || position_.step + 1 == options_.config->train.steps;
    GANTRY_RETURN_IF_ERROR(RunOneStep(last ? settle : Settle::kNever));
    // What is due can wait when there is a hurry: Finish saves.
    if (!stopping()) GANTRY_RETURN_IF_ERROR(DoWhatIsDue());
  }
  return absl::OkStatus();
}

absl::Status Trainer::DoWhatIsDue() {
  const TrainConfig& train = options_.config->train;
  const bool last = position_.step == train.steps;
  if (evaluation_is_due() || (evaluates() && last)) {
    GANTRY_RETURN_IF_ERROR(EvaluateAndTell());
  }
  return Due(train.checkpoint_every) ? SaveIfNew() : absl::OkStatus();
}

absl::Status Trainer::RunOneStep(Settle settle) {
  const double learning_rate = Hyperparameters().learning_rate;
  const std::optional<LossScale> scale = position_.loss_scale;
  const Nanoseconds stall_before = StallSoFar();
  const Nanoseconds begin = options_.clock->Now();
  GANTRY_ASSIGN_OR_RETURN(const StepOutcome outcome, TrainStep());
  if (settle == Settle::kAfterLast && options_.engine != nullptr) {
    GANTRY_RETURN_IF_ERROR(options_.engine->Drain());
  }
  position_.step += 1;
  position_.sequences += options_.config->data.batch_size * options_.config->data.accumulation;
  const bool skipped = outcome.result.outcome == StepResult::Outcome::kSkippedNonFinite;
  if (!skipped) position_.updates += 1;
  if (scale.has_value()) {
    position_.loss_scale =
        NextLossScale(*scale, outcome.result.outcome, options_.config->optimizer.loss_scale);
  }

  StepMetrics metrics{.step = position_.step,
                      .steps = options_.config->train.steps,
                      .loss = outcome.loss,
                      .learning_rate = learning_rate,
                      .gradient_norm = outcome.result.gradient_norm,
                      .outcome = outcome.result.outcome,
                      .tokens = TokensPerStep(options_.config->data),
                      .duration = options_.clock->Now() - begin,
                      .stall = StallSoFar() - stall_before};
  if (options_.engine != nullptr) metrics.tier_bytes = TierBytes(options_.engine->statistics());
  if (!summary_.loss_first.has_value()) summary_.loss_first = metrics.loss;
  summary_.loss_last = metrics.loss;
  summary_.tokens += metrics.tokens;
  summary_.duration += metrics.duration;
  summary_.stall += metrics.stall;
  if (scale.has_value()) metrics.loss_scale = scale->scale;
  if (skipped) ++summary_.skipped_steps;
  if (options_.observer != nullptr) options_.observer->OnStep(metrics);
  return absl::OkStatus();
}

OptimizerStep Trainer::Hyperparameters() const {
  const OptimizerConfig& optimizer = options_.config->optimizer;
  return {.kind = optimizer.kind,
          .learning_rate = LearningRateAt(ScheduleOf(*options_.config), position_.step),
          .beta1 = Beta1Of(optimizer),
          .beta2 = Beta2Of(optimizer),
          .epsilon = optimizer.epsilon,
          .weight_decay = groups_.weight_decay(),
          .step = position_.updates + 1,  // of the states, which skipped steps leave alone
          .max_gradient_norm = optimizer.max_gradient_norm,
          .loss_scale = position_.loss_scale.has_value() ? position_.loss_scale->scale : 1.0};
}

absl::StatusOr<Trainer::StepOutcome> Trainer::TrainStep() {
  GANTRY_ASSIGN_OR_RETURN(const std::vector<TrainingBatch> batches, ReadStep());
  int64_t scored = 0;
  for (const TrainingBatch& batch : batches) scored += batch.scored_tokens();
  if (scored == 0) {
    return InvalidArgument("no token of step ", position_.step + 1,
                           " is scored: its sequences hold nothing to learn");
  }
  ParameterStore& store = *options_.context.store;
  const bool by_layer = order_ == AccumulationOrder::kLayer;
  const OptimizerStep optimizer = Hyperparameters();
  // The mean over all micro-batches, whatever part of the tokens each of them has.
  const double scale = optimizer.loss_scale / static_cast<double>(scored);
  GANTRY_RETURN_IF_ERROR(
      store.BeginStep({.trace_key = kTrainKey,
                       .micro_batches = by_layer ? 1 : options_.config->data.accumulation,
                       .optimizer = optimizer,
                       .dry_layers = dry_layers_}));
  const absl::StatusOr<LossSum> loss =
      by_layer ? LayerByLayer(batches, scale) : MicroBatches(batches, scale);
  absl::StatusOr<StepResult> result = store.EndStep();
  GANTRY_RETURN_IF_ERROR(loss.status());  // it came first, and may be why EndStep failed
  GANTRY_RETURN_IF_ERROR(result.status());
  return StepOutcome{.loss = loss->loss_sum / static_cast<double>(scored), .result = *result};
}

absl::StatusOr<std::vector<TrainingBatch>> Trainer::ReadStep() const {
  const DataConfig& data = options_.config->data;
  std::vector<TrainingBatch> batches;
  batches.reserve(static_cast<size_t>(data.accumulation));
  for (int64_t i = 0; i < data.accumulation; ++i) {
    GANTRY_ASSIGN_OR_RETURN(
        SampledTokens sampled,
        options_.training->Read(position_.sequences + i * data.batch_size, data.batch_size));
    batches.emplace_back(std::move(sampled));
  }
  return batches;
}

absl::StatusOr<LossSum> Trainer::MicroBatches(std::span<const TrainingBatch> batches,
                                              double loss_scale) {
  LossSum total;
  for (const TrainingBatch& batch : batches) {
    GANTRY_RETURN_IF_ERROR(options_.context.store->BeginMicroBatch());
    GANTRY_ASSIGN_OR_RETURN(const LossSum loss, model_->ForwardBackward(batch.view(), loss_scale));
    total.loss_sum += loss.loss_sum;
    total.valid_tokens += loss.valid_tokens;
  }
  return total;
}

// One micro-batch of the store, which hears of each gradient once all have contributed.
absl::StatusOr<LossSum> Trainer::LayerByLayer(std::span<const TrainingBatch> batches,
                                              double loss_scale) {
  GANTRY_RETURN_IF_ERROR(options_.context.store->BeginMicroBatch());
  std::vector<TokenBatch> views;
  views.reserve(batches.size());
  for (const TrainingBatch& batch : batches) views.push_back(batch.view());
  GANTRY_ASSIGN_OR_RETURN(const std::vector<LossSum> losses,
                          model_->ForwardBackward(views, loss_scale));
  LossSum total;
  for (const LossSum& loss : losses) {
    total.loss_sum += loss.loss_sum;
    total.valid_tokens += loss.valid_tokens;
  }
  return total;
}

absl::Status Trainer::SaveIfNew() {
  if (checkpoints_ == nullptr || position_.step == saved_step_) return absl::OkStatus();
  const Nanoseconds begin = options_.clock->Now();
  GANTRY_ASSIGN_OR_RETURN(
      checkpoint_, checkpoints_->Save(*options_.context.store, position_, options_.settings));
  saved_step_ = position_.step;
  if (options_.observer != nullptr) {
    options_.observer->OnCheckpoint(
        {.step = position_.step, .path = checkpoint_, .duration = options_.clock->Now() - begin});
  }
  return absl::OkStatus();
}

absl::Status Trainer::SaveAsBest() {
  if (!options_.config->train.keep_best || checkpoints_ == nullptr) return absl::OkStatus();
  GANTRY_RETURN_IF_ERROR(SaveIfNew());
  return checkpoints_->MarkNewestBest();
}

Nanoseconds Trainer::StallSoFar() const {
  if (options_.engine == nullptr) return 0;
  const EngineStatistics statistics = options_.engine->statistics();
  Nanoseconds sum = 0;
  for (const Nanoseconds stall : statistics.stalls) sum += stall;
  return sum;
}

absl::StatusOr<std::string> Trainer::Sample(std::string_view prompt, int64_t tokens) {
  const ByteCodec bytes;
  const TextCodec& codec = options_.codec != nullptr ? *options_.codec : bytes;
  TextRequest request{.prompts = {},
                      .tokens = tokens,
                      .sampling = options_.config->generate.sampling,
                      .stop = options_.stop};
  GANTRY_ASSIGN_OR_RETURN(std::vector<int32_t> encoded, codec.Encode(prompt));
  request.prompts.push_back(std::move(encoded));
  GANTRY_ASSIGN_OR_RETURN(std::vector<GeneratedText> texts,
                          GenerateTexts(*model_, codec, request, [](size_t, std::string_view) {}));
  return std::move(texts.front().text);
}

}  // namespace gantry
