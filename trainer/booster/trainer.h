// The training loop over any ParameterStore: dry run, Seal, initial weights or a checkpoint, then
// steps of one or several micro-batches with evaluation and checkpoints between them.
//
//   GANTRY_ASSIGN_OR_RETURN(auto trainer, Trainer::Create({.config = &config,
//       .training = &training, .validation = &validation, .context = plugin->context(), .engine =
//       &plugin->engine(), ...}));
//   GANTRY_ASSIGN_OR_RETURN(TrainingSummary summary, trainer->Run());
//
// A run is a function of config, data and its position (RunPosition), so one that stops and resumes
// gives the same bits as one that does not. The order in which a step's
// micro-batches go through the layers changes no number, so it may differ from run to run.
//
// One thread makes all calls; a stop may be requested from anywhere.
#ifndef GANTRY_TRAINER_BOOSTER_TRAINER_H_
#define GANTRY_TRAINER_BOOSTER_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "gemini/engine.h"
#include "gemini/layer_activations.h"
#include "trainer/autograd/execution_context.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/parameter_groups.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/stop_source.h"
#include "trainer/booster/text_codec.h"
#include "trainer/booster/training_batch.h"
#include "trainer/checkpoint/checkpoint_directory.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/data/token_source.h"
#include "trainer/models/decoder.h"

namespace gantry {

class Trainer {
 public:
  static constexpr char kTrainKey[] = "train";  // of a training step's trace

  struct Options {
    // All outlive the trainer.
    const RunConfig* config;
    const TokenSource* training;
    const TokenSource* validation;     // null: nothing is evaluated
    const TextCodec* codec = nullptr;  // of samples; null: bytes
    ExecutionContext context;          // its store is not sealed and holds no parameters yet
    Engine* engine = nullptr;          // for statistics, when the store is one
    Clock* clock;
    Logger* logger;
    FileCalls* files;
    const StopSource* stop = nullptr;      // null: runs to the end
    TrainingObserver* observer = nullptr;  // null: nobody listens
    // Fills the sealed store at the beginning of a run; empty: with random values.
    std::function<absl::Status(ParameterStore& store)> initialize = {};
    RunSettings settings;  // saved with checkpoints, compared on resuming
  };

  // Everything up to the first step. Errors: kInvalidArgument for a config that contradicts itself
  // or a checkpoint from another model; kFailedPrecondition for train.resume = never where
  // checkpoints are; kResourceExhausted for budgets too small; those of the parts.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(Options options);

  // Trains to the end or to a requested stop, then saves (where there is a checkpoint directory)
  // and hashes the parameters. Errors: those of the store, the model and the checkpoint directory;
  // the checkpoints written before stay.
  absl::StatusOr<TrainingSummary> Run();

  // Run in pieces, so that two runs can be timed in turns: trains up to `steps` more steps (fewer
  // at the end, or when a stop was requested), then waits for their updates within the last step's
  // time.
  absl::Status Advance(int64_t steps);
  // The end of Run: saves and hashes. REQUIRES: all steps are done, or a stop was requested.
  absl::StatusOr<TrainingSummary> Finish();
  bool finished() const {
    return position_.step == options_.config->train.steps || stopped_early();
  }

  // Continues a text with the model as it is now. Errors: as GenerateTexts.
  absl::StatusOr<std::string> Sample(std::string_view prompt, int64_t tokens);

  const RunPosition& position() const { return position_; }
  // Never kAuto; kMicroBatch where there is only one.
  AccumulationOrder accumulation_order() const { return order_; }
  const DecoderModel& model() const { return *model_; }

 private:
  explicit Trainer(Options options);

  // Parts of Create.
  absl::Status RegisterModel();
  absl::Status DryRun();
  absl::Status DryTrainStep();
  absl::Status ChooseOrder();
  absl::Status StartFresh();
  absl::Status Resume(const std::string& path);
  absl::Status FindStart();
  void WarnOfOtherSettings(const RunSettings& saved) const;

  struct StepOutcome {
    double loss;
    StepResult result;
  };
  // Whether a step's time includes the updates that it leaves behind.
  enum class Settle { kNever, kAfterLast };
  void Start();
  absl::Status RunSteps(int64_t steps, Settle settle);
  absl::Status RunOneStep(Settle settle);
  absl::Status DoWhatIsDue();
  absl::StatusOr<StepOutcome> TrainStep();
  // What the model trains on in a step.
  absl::StatusOr<std::vector<TrainingBatch>> ReadStep() const;
  absl::StatusOr<LossSum> MicroBatches(std::span<const TrainingBatch> batches, double loss_scale);
  absl::StatusOr<LossSum> LayerByLayer(std::span<const TrainingBatch> batches, double loss_scale);
  bool evaluates() const { return options_.validation != nullptr; }
  bool evaluation_is_due() const { return evaluates() && Due(options_.config->train.eval_every); }
  absl::Status EvaluateAndTell();
  bool Remember(double validation_loss);
  absl::StatusOr<LossSum> EvaluateStep();
  absl::Status SaveIfNew();
  absl::Status SaveAsBest();
  OptimizerStep Hyperparameters() const;
  Nanoseconds StallSoFar() const;
  bool stopping() const { return options_.stop != nullptr && options_.stop->requested(); }
  bool stopped_early() const;
  bool Due(int64_t every) const { return every > 0 && position_.step % every == 0; }

  Options options_;
  GroupedRegistration groups_;
  std::unique_ptr<CheckpointDirectory> checkpoints_;  // null: nothing is saved
  std::unique_ptr<DecoderModel> model_;
  AccumulationOrder order_ = AccumulationOrder::kMicroBatch;
  TrainingSummary summary_;
  LayerSaving dry_layers_ = LayerSaving::kKeep;
  bool started_ = false;
  RunPosition position_;
  int64_t first_step_ = 0;
  int64_t saved_step_ = 0;  // no need to save this one
  std::string checkpoint_;  // the newest, or the one resumed from
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_TRAINER_H_
