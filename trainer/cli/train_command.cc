#include "trainer/cli/train_command.h"

#include <limits.h>  // HOST_NAME_MAX: POSIX, not in <climits>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/trace_sink.h"
#include "base/wall_clock.h"
#include "gemini/engine.h"
#include "gemini/parameter_store.h"
#include "placement_policy/report/report_page.h"
#include "placement_policy/report/report_trace.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/trace.h"
#include "placement_policy/trace_file.h"
#include "trainer/booster/gemini_plugin.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/model_source.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/run_data.h"
#include "trainer/booster/step_averages.h"
#include "trainer/booster/step_recorder.h"
#include "trainer/booster/tensor_board_log.h"
#include "trainer/booster/trainer.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/config.h"
#include "trainer/cli/console.h"
#include "trainer/cli/exit_check.h"
#include "trainer/cli/interrupt.h"
#include "trainer/cli/reports.h"
#include "trainer/cli/run_table.h"
#include "trainer/cli/train_report.h"
#include "trainer/cli/train_summary.h"
#include "trainer/data/example_token_source.h"
#include "trainer/hugging_face/decoder_config_json.h"

namespace gantry {
namespace {

constexpr int64_t kTraceEventsMax = 2'000'000;
constexpr int64_t kStepEventsMax = 400'000;

// What a run writes besides checkpoints.
struct Outputs {
  std::unique_ptr<JsonLog> log;            // null: none
  std::unique_ptr<JsonTraceSink> trace;    // null: none
  std::unique_ptr<TensorBoardLog> board;   // null: none
  std::unique_ptr<StepRecorder> recorder;  // null: no report is wanted

  TraceSink* sink() const {
    return recorder != nullptr ? static_cast<TraceSink*>(recorder.get()) : trace.get();
  }
};

// Tells the recorder where steps end.
class StepEnds final : public TrainingObserver {
 public:
  StepEnds(StepRecorder* recorder, Clock* clock) : recorder_(recorder), clock_(clock) {}

  void OnStart(const RunDescription&) override {}
  void OnStep(const StepMetrics& metrics) override {
    const Nanoseconds now = clock_->Now();
    recorder_->EndStep(now - metrics.duration, now);
  }
  void OnEvaluation(const EvaluationMetrics&) override {}
  void OnCheckpoint(const CheckpointMetrics&) override {}

 private:
  StepRecorder* recorder_;
  Clock* clock_;
};

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  // It goes into a file's name only: any will do.
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  return name.data();
}

absl::StatusOr<Outputs> OpenOutputs(FileCalls* files, Clock* wall_clock, const RunConfig& config) {
  const TrainConfig& train = config.train;
  Outputs outputs;
  if (!train.log_file.empty()) {
    GANTRY_RETURN_IF_ERROR(MakeParentDirectories(*files, train.log_file));
    GANTRY_ASSIGN_OR_RETURN(outputs.log, JsonLog::Open(files, train.log_file));
  }
  if (!train.trace_file.empty()) {
    GANTRY_RETURN_IF_ERROR(MakeParentDirectories(*files, train.trace_file));
    outputs.trace = std::make_unique<JsonTraceSink>(kTraceEventsMax);
  }
  for (const std::string& path : {config.memory.trace, train.report, train.report_trace}) {
    if (!path.empty()) GANTRY_RETURN_IF_ERROR(MakeParentDirectories(*files, path));
  }
  if (!train.tensorboard_dir.empty()) {
    outputs.board =
        std::make_unique<TensorBoardLog>(TensorBoardLog::Options{.files = files,
                                                                 .wall_clock = wall_clock,
                                                                 .directory = train.tensorboard_dir,
                                                                 .host = HostName(),
                                                                 .process = getpid(),
                                                                 .settings = DumpYaml(config)});
  }
  if (!train.report.empty() || !train.report_trace.empty()) {
    outputs.recorder = std::make_unique<StepRecorder>(outputs.trace.get(), kStepEventsMax);
  }
  return outputs;
}

// What a training step needs, with the compute times of this run's steps.
absl::Status WriteStepTrace(const RunConfig& config, Engine& engine, FileCalls& files,
                            Logger& logger) {
  if (config.memory.trace.empty()) return absl::OkStatus();
  const Trace* const recorded = engine.trace(Trainer::kTrainKey);
  if (recorded == nullptr) return absl::OkStatus();
  Trace trace = *recorded;
  trace.tokens = TokensPerStep(config.data);
  if (std::ranges::none_of(trace.moments, [](const Moment& m) { return m.compute > 0; })) {
    logger.Warning(StrCat("no step ran: '", config.memory.trace, "' has no compute times"));
  }
  const std::string text = FormatTrace(trace, {.names = config.memory.trace_names});
  return WriteFileAtomically(files, config.memory.trace, std::as_bytes(std::span(text)));
}

absl::Status WriteReport(const RunConfig& config, const Outputs& outputs, Engine& engine,
                         const StepComparison& comparison, FileCalls& files) {
  if (outputs.recorder == nullptr) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(const StepReport report,
                          TrainStepReport(config, engine, comparison, *outputs.recorder));
  const auto write = [&files](const std::string& path, const std::string& text) {
    return path.empty() ? absl::OkStatus()
                        : WriteFileAtomically(files, path, std::as_bytes(std::span(text)));
  };
  GANTRY_RETURN_IF_ERROR(write(config.train.report, ReportPage(report)));
  return write(config.train.report_trace, ReportTrace(report));
}

absl::Status CloseOutputs(const TrainConfig& train, const Outputs& outputs, FileCalls& files,
                          Logger& logger) {
  if (outputs.trace != nullptr) {
    if (outputs.trace->dropped() > 0) {
      logger.Warning(StrCat("the trace is full: ", outputs.trace->dropped(), " events left out"));
    }
    GANTRY_RETURN_IF_ERROR(outputs.trace->Write(files, train.trace_file));
  }
  if (outputs.board != nullptr) GANTRY_RETURN_IF_ERROR(outputs.board->Close());
  return outputs.log == nullptr ? absl::OkStatus() : outputs.log->status();
}

void TellStop(const TrainingSummary& summary, Console& console) {
  if (summary.checkpoint.empty()) {
    console.Line(StrCat("gantry: stopped after step ", summary.step,
                        "; nothing was saved, as train.checkpoint_dir is not set"));
    return;
  }
  console.Line(StrCat("gantry: stopped after step ", summary.step, "; saved ", summary.checkpoint,
                      "; the same command resumes there"));
}

void TellOfExamples(const RunData& data, Logger& logger) {
  if (!data.examples().has_value()) return;
  const ExampleSummary& examples = *data.examples();
  for (const std::string& reason : examples.skipped_reasons) logger.Warning(reason);
  if (examples.skipped > 0) {
    logger.Warning(StrCat(examples.skipped, " of ", examples.lines, " examples are left out"));
  }
  if (examples.truncated > 0) {
    logger.Warning(StrCat(examples.truncated, " of ", examples.lines,
                          " examples are longer than data.sequence_length and lose their end"));
  }
}

absl::StatusOr<RunResult> Train(RunConfig config, const CommandContext& context, Clock& clock,
                                Logger& logger) {
  GANTRY_ASSIGN_OR_RETURN(const ModelSource source,
                          OpenModelSource(*context.files, ModelPurpose::kTraining, config));
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<RunData> data,
                          RunData::Open(*context.files, config, source.tokenizer.get()));
  TellOfExamples(*data, logger);
  WallClock wall_clock;
  GANTRY_ASSIGN_OR_RETURN(const Outputs outputs, OpenOutputs(context.files, &wall_clock, config));
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<GeminiPlugin> plugin,
                          GeminiPlugin::Create({.memory = &config.memory,
                                                .threads = ThreadsOf(config.train),
                                                .compute_dtype = ComputeDTypeOf(config.model),
                                                .gradient_dtype = GradientDTypeOf(config),
                                                .optimizer = config.optimizer.kind,
                                                .state_format = config.optimizer.state_format,
                                                .clock = &clock,
                                                .logger = &logger,
                                                .files = context.files,
                                                .trace_sink = outputs.sink()}));
  ProgressReporter progress(
      {.console = context.console, .log_every = config.train.log_every, .label = ""});
  StepAverages averages(&plugin->engine(), Trainer::kTrainKey);
  StepEnds step_ends(outputs.recorder.get(), &clock);
  RunTable table;
  std::vector<TrainingObserver*> observers = {&averages, &table, &progress};
  if (outputs.recorder != nullptr) observers.insert(observers.begin(), &step_ends);
  if (outputs.log != nullptr) observers.push_back(outputs.log.get());
  if (outputs.board != nullptr) observers.push_back(outputs.board.get());
  ObserverList all(std::move(observers));
  RunSettings settings = SettingsOf(config);
  AddModelSettings(source, settings);
  const auto load = [&](ParameterStore& store) {
    return LoadModelSource(context.files, source, config, store, logger);
  };
  GANTRY_ASSIGN_OR_RETURN(
      const std::unique_ptr<Trainer> trainer,
      Trainer::Create({.config = &config,
                       .training = &data->training(),
                       .validation = data->validation(),
                       .codec = &source.codec(),
                       .context = plugin->context(),
                       .engine = &plugin->engine(),
                       .clock = &clock,
                       .logger = &logger,
                       .files = context.files,
                       .stop = context.stop,
                       .observer = &all,
                       .initialize = source.path.empty()
                                         ? std::function<absl::Status(ParameterStore&)>()
                                         : load,
                       .settings = std::move(settings)}));
  RunResult result;
  GANTRY_ASSIGN_OR_RETURN(result.summary, trainer->Run());
  result.step = {.measured = averages.measured(),
                 .simulated = averages.simulated(),
                 .plan_hash = plugin->engine().movement_report(Trainer::kTrainKey).hash};
  result.table = table.Text();
  if (!config.train.save_model.empty() && trainer->finished()) {
    GANTRY_RETURN_IF_ERROR(SaveModel(context.files, source, config, plugin->engine()));
  }
  GANTRY_RETURN_IF_ERROR(WriteStepTrace(config, plugin->engine(), *context.files, logger));
  GANTRY_RETURN_IF_ERROR(
      WriteReport(config, outputs, plugin->engine(), result.step, *context.files));
  GANTRY_RETURN_IF_ERROR(CloseOutputs(config.train, outputs, *context.files, logger));
  return result;
}

}  // namespace

CommandResult TrainCommand(Arguments arguments, const CommandContext& context) {
  const absl::StatusOr<OutputFormat> format = TakeOutputFormat(arguments);
  if (!format.ok()) return UsageError(format.status());
  const absl::StatusOr<RunConfig> config = TakeConfig(*context.files, arguments, RunConfig());
  if (!config.ok()) return UsageError(config.status());
  const absl::Status valid = ValidateTraining(*config);
  if (!valid.ok()) return UsageError(valid);

  ConsoleLogger logger(context.console);
  MonotonicClock clock;
  ExitCheck exit_check({.files = context.files,
                        .clock = &clock,
                        .logger = &logger,
                        .spill_folders = config->memory.spill_dirs});
  const absl::StatusOr<RunResult> result = Train(*config, context, clock, logger);
  const std::vector<std::string> left_behind = exit_check.Finish();
  if (!result.ok()) return Failure(result.status());
  context.console->Out(*format == OutputFormat::kJson ? SummaryJson(*result, left_behind)
                                                      : SummaryText(*result));
  if (result->summary.end != RunEnd::kStopped) return {};
  TellStop(result->summary, *context.console);
  return {.exit_code = kExitInterrupted, .status = absl::OkStatus()};
}

}  // namespace gantry
