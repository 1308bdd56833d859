#include "trainer/cli/demo_command.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/engine.h"
#include "trainer/booster/gemini_plugin.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/run_data.h"
#include "trainer/booster/trainer.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/config.h"
#include "trainer/cli/console.h"
#include "trainer/cli/demo_report.h"
#include "trainer/cli/demo_settings.h"
#include "trainer/cli/exit_check.h"
#include "trainer/cli/interrupt.h"
#include "trainer/cli/reports.h"

namespace gantry {
namespace {

constexpr char kFortunesFolder[] = "/usr/share/games/fortunes";
constexpr char kOutFolder[] = "out/demo";
constexpr std::string_view kPrompt = "The ";

struct DemoRequest {
  DemoSettings settings;
  std::string out;
  bool own_spill_folder = false;  // none was named
  OutputFormat format = OutputFormat::kText;
};

// The text files of Debian's fortunes packages: those without a suffix.
std::vector<std::string> FortuneFiles() {
  std::vector<std::string> files;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(kFortunesFolder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (!entry->path().has_extension() && entry->is_regular_file(error)) {
      files.push_back(entry->path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::vector<std::string>> TakeTexts(Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeValue(arguments, "text"));
  RunConfig list;  // for the one way to split a list
  if (text.has_value()) GANTRY_RETURN_IF_ERROR(ApplyOverride("data.files", text, list));
  std::vector<std::string> files = list.data.files;
  files.insert(files.end(), arguments.words.begin(), arguments.words.end());
  arguments.words.clear();
  return files;
}

absl::StatusOr<DemoRequest> ParseRequest(Arguments arguments) {
  DemoRequest request;
  GANTRY_ASSIGN_OR_RETURN(request.format, TakeOutputFormat(arguments));
  GANTRY_ASSIGN_OR_RETURN(const bool quick, TakeFlag(arguments, "quick"));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> out, TakeValue(arguments, "out"));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> texts, TakeTexts(arguments));
  request.settings = DemoSettings::Make(quick ? DemoLength::kQuick : DemoLength::kFull);
  request.out = out.value_or(kOutFolder);
  RunConfig& config = request.settings.config;
  config.data.files = texts;
  GANTRY_RETURN_IF_ERROR(ApplyOverrides(arguments, config));
  if (!config.train.checkpoint_dir.empty()) {
    return InvalidArgument(
        "--checkpoint_dir: the demonstration keeps no checkpoints; use "
        "`gantry train`");
  }
  if (config.data.files.empty()) config.data.files = FortuneFiles();
  if (config.data.files.empty()) {
    return InvalidArgument(
        "no text to train on: install the Debian package fortunes, or name files "
        "with --text=FILE");
  }
  request.own_spill_folder = config.memory.spill_dirs.empty();
  if (request.own_spill_folder) config.memory.spill_dirs = {StrCat(request.out, "/spill")};
  GANTRY_RETURN_IF_ERROR(ValidateTraining(config));
  return request;
}

// Keeps the losses, and the time of all steps but the first.
class LossRecorder final : public TrainingObserver {
 public:
  void OnStart(const RunDescription& description) override { parameters_ = description.parameters; }
  void OnStep(const StepMetrics& metrics) override {
    losses_.push_back(metrics.loss);
    if (losses_.size() == 1) return;
    tokens_ += metrics.tokens;
    duration_ += metrics.duration;
  }
  void OnEvaluation(const EvaluationMetrics&) override {}
  void OnCheckpoint(const CheckpointMetrics&) override {}

  int64_t parameters() const { return parameters_; }
  const std::vector<double>& losses() const { return losses_; }
  double tokens_per_second() const {
    return duration_ == 0 ? 0.0
                          : static_cast<double>(tokens_) * 1e9 / static_cast<double>(duration_);
  }

 private:
  int64_t parameters_ = 0;
  std::vector<double> losses_;
  int64_t tokens_ = 0;
  Nanoseconds duration_ = 0;
};

struct RunOutcome {
  DemoRun run;
  int64_t parameters;
  std::string sample;
};

// One of the two runs, ready to train in pieces.
class TurnedRun {
 public:
  struct Options {
    const RunConfig* config;  // outlives the run
    const RunData* data;      // likewise
    std::string label;
  };
  static absl::StatusOr<std::unique_ptr<TurnedRun>> Create(const Options& options,
                                                           const CommandContext& context) {
    auto run = std::unique_ptr<TurnedRun>(new TurnedRun(options, context));
    const RunConfig& config = *options.config;
    GANTRY_ASSIGN_OR_RETURN(run->plugin_,
                            GeminiPlugin::Create({.memory = &config.memory,
                                                  .threads = ThreadsOf(config.train),
                                                  .compute_dtype = ComputeDTypeOf(config.model),
                                                  .gradient_dtype = GradientDTypeOf(config),
                                                  .optimizer = config.optimizer.kind,
                                                  .state_format = config.optimizer.state_format,
                                                  .clock = &run->clock_,
                                                  .logger = &run->logger_,
                                                  .files = context.files}));
    GANTRY_ASSIGN_OR_RETURN(run->trainer_,
                            Trainer::Create({.config = &config,
                                             .training = &options.data->training(),
                                             .validation = options.data->validation(),
                                             .context = run->plugin_->context(),
                                             .engine = &run->plugin_->engine(),
                                             .clock = &run->clock_,
                                             .logger = &run->logger_,
                                             .files = context.files,
                                             .stop = context.stop,
                                             .observer = &run->observers_,
                                             .settings = {}}));
    return run;
  }

  Trainer& trainer() { return *trainer_; }
  BudgetReport budget() { return plugin_->engine().budget_report(); }

  // REQUIRES: the trainer is finished. `sample_bytes`: 0 for no text.
  absl::StatusOr<RunOutcome> Finish(int64_t sample_bytes) {
    GANTRY_ASSIGN_OR_RETURN(const TrainingSummary summary, trainer_->Finish());
    RunOutcome outcome{.run = {.losses = recorder_.losses(),
                               .parameter_hash = summary.parameter_hash,
                               .tokens_per_second = recorder_.tokens_per_second(),
                               .stall_seconds = static_cast<double>(summary.stall) * 1e-9,
                               .statistics = plugin_->engine().statistics(),
                               .budget = plugin_->engine().budget_report()},
                       .parameters = recorder_.parameters(),
                       .sample = {}};
    if (sample_bytes > 0) {
      GANTRY_ASSIGN_OR_RETURN(const std::string text, trainer_->Sample(kPrompt, sample_bytes));
      outcome.sample = StrCat(kPrompt, text);
    }
    return outcome;
  }

 private:
  TurnedRun(const Options& options, const CommandContext& context)
      : logger_(context.console),
        progress_({.console = context.console,
                   .log_every = options.config->train.log_every,
                   .label = options.label}),
        observers_({&progress_, &recorder_}) {}

  MonotonicClock clock_;
  ConsoleLogger logger_;
  ProgressReporter progress_;
  LossRecorder recorder_;
  ObserverList observers_;
  std::unique_ptr<GeminiPlugin> plugin_;
  std::unique_ptr<Trainer> trainer_;
};

// The folder for spill files where none is named; goes with the object when it is empty.
class SpillFolder {
 public:
  explicit SpillFolder(FileCalls* files) : files_(files) {}
  absl::Status Create(const std::string& path) {
    GANTRY_RETURN_IF_ERROR(MakeDirectories(*files_, path));
    path_ = path;
    return absl::OkStatus();
  }
  ~SpillFolder() {
    if (!path_.empty()) files_->Unlink(AT_FDCWD, path_, AT_REMOVEDIR);
  }

 private:
  FileCalls* files_;
  std::string path_;
};

// Writes summary.json and the report. A difference between the runs is an error.
absl::Status Tell(const DemoRequest& request, const DemoResult& result,
                  const CommandContext& context) {
  const std::string json = DemoJson(result);
  const std::string path = StrCat(request.out, "/summary.json");
  GANTRY_RETURN_IF_ERROR(WriteFileAtomically(*context.files, path, std::as_bytes(std::span(json))));
  context.console->Out(request.format == OutputFormat::kJson
                           ? json
                           : StrCat(DemoTable(result), "wrote ", path, "\n"));
  if (result.bitwise_equal()) return absl::OkStatus();
  return Internal(
      "the run under the budget differs from the resident one: this is a bug, please "
      "report it");
}

// Nothing when it was stopped.
absl::StatusOr<std::optional<DemoResult>> RunDemo(const DemoRequest& request,
                                                  const CommandContext& context) {
  const RunConfig& config = request.settings.config;
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<RunData> data,
                          RunData::Open(*context.files, config, nullptr));
  GANTRY_RETURN_IF_ERROR(MakeDirectories(*context.files, request.out));
  SpillFolder spill(context.files);
  if (request.own_spill_folder) {
    GANTRY_RETURN_IF_ERROR(spill.Create(config.memory.spill_dirs[0]));
  }

  GANTRY_ASSIGN_OR_RETURN(
      const std::unique_ptr<TurnedRun> budgeted_run,
      TurnedRun::Create({.config = &config, .data = data.get(), .label = "under the budget: "},
                        context));
  RunConfig resident_config = config;
  const BudgetReport budget = budgeted_run->budget();
  resident_config.memory =
      ResidentMemory(config.memory, budget.model_state, budget.activations_max);
  GANTRY_ASSIGN_OR_RETURN(
      const std::unique_ptr<TurnedRun> resident_run,
      TurnedRun::Create({.config = &resident_config, .data = data.get(), .label = "all resident: "},
                        context));
  // In turns, so that whatever else the machine does meets both alike.
  while (!budgeted_run->trainer().finished() || !resident_run->trainer().finished()) {
    for (TurnedRun* run : {budgeted_run.get(), resident_run.get()}) {
      GANTRY_RETURN_IF_ERROR(run->trainer().Advance(request.settings.steps_per_turn));
    }
    if (context.stop != nullptr && context.stop->requested()) return std::optional<DemoResult>();
  }
  GANTRY_ASSIGN_OR_RETURN(RunOutcome budgeted, budgeted_run->Finish(request.settings.sample_bytes));
  GANTRY_ASSIGN_OR_RETURN(RunOutcome resident, resident_run->Finish(0));
  return std::optional(DemoResult{.parameters = budgeted.parameters,
                                  .budgeted = std::move(budgeted.run),
                                  .resident = std::move(resident.run),
                                  .left_behind = {},
                                  .sample = std::move(budgeted.sample)});
}

}  // namespace

CommandResult DemoCommand(Arguments arguments, const CommandContext& context) {
  absl::StatusOr<DemoRequest> request = ParseRequest(std::move(arguments));
  if (!request.ok()) return UsageError(request.status());
  MonotonicClock clock;
  ConsoleLogger logger(context.console);
  ExitCheck exit_check({.files = context.files,
                        .clock = &clock,
                        .logger = &logger,
                        .spill_folders = request->settings.config.memory.spill_dirs});
  absl::StatusOr<std::optional<DemoResult>> result = RunDemo(*request, context);
  std::vector<std::string> left_behind = exit_check.Finish();
  if (!result.ok()) return Failure(result.status());
  std::optional<DemoResult> finished = *std::move(result);
  if (!finished.has_value()) return {.exit_code = kExitInterrupted, .status = absl::OkStatus()};
  finished->left_behind = std::move(left_behind);
  const absl::Status told = Tell(*request, *finished, context);
  return told.ok() ? CommandResult{} : Failure(told);
}

}  // namespace gantry
