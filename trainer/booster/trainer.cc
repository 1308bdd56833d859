#include "trainer/booster/trainer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/tier.h"
#include "gemini/engine.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/learning_rate.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/parameter_hash.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/text_generator.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_directory.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/data/batch_sampler.h"
#include "trainer/data/byte_corpus.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/decoder_weights.h"

namespace gantry {
namespace {

constexpr char kEvaluateKey[] = "evaluate";
constexpr size_t kSettingsNamed = 4;  // in a warning
// Layer by layer should move blocks in at most so much of the time that one by one takes.
constexpr double kWorthwhile = 0.95;

TokenBatch ViewOf(const SampledTokens& sampled) {
  return {.sequences = sampled.sequences,
          .length = sampled.length,
          .tokens = sampled.tokens,
          .targets = sampled.targets};
}

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

Trainer::Trainer(Options options, BatchSampler training, std::optional<BatchSampler> validation)
    : options_(std::move(options)), training_(training), validation_(validation) {}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(Options options) {
  const RunConfig& config = *options.config;
  GANTRY_RETURN_IF_ERROR(ValidateTraining(config));
  const BatchSampler::Options sampling{.seed = config.data.seed,
                                       .sequence_length = config.data.sequence_length};
  GANTRY_ASSIGN_OR_RETURN(BatchSampler training,
                          BatchSampler::Create(options.corpus->training(), sampling));
  std::optional<BatchSampler> validation;
  if (!options.corpus->validation().empty() && config.train.eval_every > 0) {
    GANTRY_ASSIGN_OR_RETURN(validation,
                            BatchSampler::Create(options.corpus->validation(), sampling));
  }
  options.settings["data.fingerprint"] = options.corpus->fingerprint();
  auto trainer = std::unique_ptr<Trainer>(new Trainer(std::move(options), training, validation));
  // First what fails fast.
  if (!config.train.checkpoint_dir.empty()) {
    GANTRY_ASSIGN_OR_RETURN(trainer->checkpoints_,
                            CheckpointDirectory::Open({.files = trainer->options_.files,
                                                       .path = config.train.checkpoint_dir,
                                                       .keep = config.train.keep}));
  }
  GANTRY_ASSIGN_OR_RETURN(trainer->model_,
                          DecoderModel::Create(trainer->options_.context, config.model, {}));
  GANTRY_RETURN_IF_ERROR(trainer->DryRun());
  GANTRY_RETURN_IF_ERROR(trainer->options_.context.store->Seal());
  GANTRY_RETURN_IF_ERROR(trainer->FindStart());
  return trainer;
}

// Shows the store the steps that will come.
absl::Status Trainer::DryRun() {
  if (validation_.has_value()) GANTRY_RETURN_IF_ERROR(EvaluateStep().status());
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
  return model_->InitializeWeights(options_.config->train.seed);
}

absl::Status Trainer::Resume(const std::string& path) {
  GANTRY_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options_.files, path));
  GANTRY_RETURN_IF_ERROR(checkpoint.Restore(*options_.context.store));
  WarnOfOtherSettings(checkpoint.manifest().settings);
  position_ = checkpoint.manifest().position;
  first_step_ = position_.step;
  saved_step_ = position_.step;
  checkpoint_ = checkpoint.path();
  return absl::OkStatus();
}

void Trainer::WarnOfOtherSettings(const RunSettings& saved) const {
  std::vector<std::string> other;
  for (const auto& [key, value] : options_.settings) {
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
  if (options_.engine != nullptr) summary_.engine = options_.engine->statistics();
  return summary_;
}

absl::Status Trainer::RunSteps(int64_t steps, Settle settle) {
  Start();
  for (int64_t i = 0; i < steps && position_.step < options_.config->train.steps; ++i) {
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
  if (validation_.has_value() && (last || Due(train.eval_every))) {
    GANTRY_RETURN_IF_ERROR(EvaluateAndTell());
  }
  return Due(train.checkpoint_every) ? SaveIfNew() : absl::OkStatus();
}

absl::Status Trainer::RunOneStep(Settle settle) {
  const double learning_rate = Hyperparameters().learning_rate;
  const Nanoseconds stall_before = StallSoFar();
  const Nanoseconds begin = options_.clock->Now();
  GANTRY_ASSIGN_OR_RETURN(const StepOutcome outcome, TrainStep());
  if (settle == Settle::kAfterLast && options_.engine != nullptr) {
    GANTRY_RETURN_IF_ERROR(options_.engine->Drain());
  }
  position_.step += 1;
  position_.sequences += options_.config->data.batch_size * options_.config->data.accumulation;

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
  if (metrics.outcome == StepResult::Outcome::kSkippedNonFinite) ++summary_.skipped_steps;
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
          .weight_decay = optimizer.weight_decay,
          .step = position_.step + 1,
          .max_gradient_norm = optimizer.max_gradient_norm};
}

absl::StatusOr<Trainer::StepOutcome> Trainer::TrainStep() {
  ParameterStore& store = *options_.context.store;
  const bool by_layer = order_ == AccumulationOrder::kLayer;
  GANTRY_RETURN_IF_ERROR(
      store.BeginStep({.trace_key = kTrainKey,
                       .micro_batches = by_layer ? 1 : options_.config->data.accumulation,
                       .optimizer = Hyperparameters(),
                       .dry_layers = dry_layers_}));
  const absl::StatusOr<LossSum> loss = by_layer ? LayerByLayer() : MicroBatches();
  absl::StatusOr<StepResult> result = store.EndStep();
  GANTRY_RETURN_IF_ERROR(loss.status());  // it came first, and may be why EndStep failed
  GANTRY_RETURN_IF_ERROR(result.status());
  const double valid = static_cast<double>(std::max<int64_t>(loss->valid_tokens, 1));
  return StepOutcome{.loss = loss->loss_sum / valid, .result = *result};
}

// Every byte has a next one: all tokens are valid.
double Trainer::LossScale() const {
  return 1.0 / static_cast<double>(TokensPerStep(options_.config->data));
}

absl::StatusOr<LossSum> Trainer::MicroBatches() {
  const DataConfig& data = options_.config->data;
  LossSum total;
  for (int64_t i = 0; i < data.accumulation; ++i) {
    GANTRY_RETURN_IF_ERROR(options_.context.store->BeginMicroBatch());
    const SampledTokens sampled =
        training_.Random(position_.sequences + i * data.batch_size, data.batch_size);
    GANTRY_ASSIGN_OR_RETURN(const LossSum loss,
                            model_->ForwardBackward(ViewOf(sampled), LossScale()));
    total.loss_sum += loss.loss_sum;
    total.valid_tokens += loss.valid_tokens;
  }
  return total;
}

// One micro-batch of the store, which hears of each gradient once all have contributed.
absl::StatusOr<LossSum> Trainer::LayerByLayer() {
  const DataConfig& data = options_.config->data;
  GANTRY_RETURN_IF_ERROR(options_.context.store->BeginMicroBatch());
  std::vector<SampledTokens> sampled;
  std::vector<TokenBatch> batches;
  for (int64_t i = 0; i < data.accumulation; ++i) {
    sampled.push_back(training_.Random(position_.sequences + i * data.batch_size, data.batch_size));
  }
  for (const SampledTokens& tokens : sampled) batches.push_back(ViewOf(tokens));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<LossSum> losses,
                          model_->ForwardBackward(batches, LossScale()));
  LossSum total;
  for (const LossSum& loss : losses) {
    total.loss_sum += loss.loss_sum;
    total.valid_tokens += loss.valid_tokens;
  }
  return total;
}

absl::Status Trainer::EvaluateAndTell() {
  GANTRY_ASSIGN_OR_RETURN(const LossSum loss, EvaluateStep());
  if (options_.observer == nullptr) return absl::OkStatus();
  options_.observer->OnEvaluation(
      {.step = position_.step,
       .loss = loss.loss_sum / static_cast<double>(std::max<int64_t>(loss.valid_tokens, 1)),
       .tokens = loss.valid_tokens});
  return absl::OkStatus();
}

absl::StatusOr<LossSum> Trainer::EvaluateStep() {
  GANTRY_CHECK(validation_.has_value());
  ParameterStore& store = *options_.context.store;
  const int64_t batches = options_.config->train.eval_batches;
  const int64_t batch_size = options_.config->data.batch_size;
  GANTRY_RETURN_IF_ERROR(store.BeginStep(
      {.trace_key = kEvaluateKey, .micro_batches = batches, .optimizer = std::nullopt}));
  LossSum total;
  absl::Status status;
  for (int64_t i = 0; i < batches && status.ok(); ++i) {
    status = store.BeginMicroBatch();
    if (!status.ok()) break;
    const SampledTokens sampled = validation_->Evenly(
        {.first = i * batch_size, .count = batch_size, .total = batches * batch_size});
    const absl::StatusOr<LossSum> loss = model_->Loss(ViewOf(sampled));
    status = loss.status();
    if (!status.ok()) break;
    total.loss_sum += loss->loss_sum;
    total.valid_tokens += loss->valid_tokens;
  }
  const absl::Status end = store.EndStep().status();
  GANTRY_RETURN_IF_ERROR(status);
  GANTRY_RETURN_IF_ERROR(end);
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

Nanoseconds Trainer::StallSoFar() const {
  if (options_.engine == nullptr) return 0;
  const EngineStatistics statistics = options_.engine->statistics();
  Nanoseconds sum = 0;
  for (const Nanoseconds stall : statistics.stalls) sum += stall;
  return sum;
}

absl::StatusOr<std::string> Trainer::Sample(std::string_view prompt, int64_t tokens) {
  const TextRequest request{.prompt = prompt,
                            .tokens = tokens,
                            .sampling = options_.config->generate.sampling,
                            .stop = options_.stop};
  return GenerateText(*model_, request, [](char) {});
}

}  // namespace gantry
