#include "trainer/cli/generate_command.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/chunk_layout.h"
#include "trainer/booster/gemini_plugin.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/text_generator.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/config.h"
#include "trainer/cli/console.h"
#include "trainer/cli/exit_check.h"
#include "trainer/cli/interrupt.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_config.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

struct Generated {
  int64_t step;  // of the checkpoint
  std::string text;
  double seconds;
};

absl::Status CheckRequest(const RunConfig& config) {
  GANTRY_RETURN_IF_ERROR(ValidateModel(config));
  if (config.generate.checkpoint.empty()) {
    return InvalidArgument(
        "generate.checkpoint: name a checkpoint or a folder of them, as in --checkpoint=runs/a");
  }
  if (config.generate.prompt.empty()) {
    return InvalidArgument("generate.prompt: must have at least one byte");
  }
  return absl::OkStatus();
}

// A model that only reads its parameters.
absl::StatusOr<std::unique_ptr<DecoderModel>> FrozenModel(GeminiPlugin& plugin,
                                                          const DecoderConfig& config) {
  return DecoderModel::Create(plugin.context(), config, {.trainability = [](std::string_view) {
                                return Trainability::kFrozen;
                              }});
}

absl::StatusOr<Generated> Generate(RunConfig config, const CommandContext& context,
                                   OutputFormat format, Clock& clock) {
  GANTRY_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          Checkpoint::Open(context.files, config.generate.checkpoint));
  GANTRY_RETURN_IF_ERROR(ApplyModelSettings(checkpoint.manifest().settings, config));
  const TextRequest request{.prompt = config.generate.prompt,
                            .tokens = config.generate.tokens,
                            .sampling = config.generate.sampling,
                            .stop = context.stop};
  config.model.max_sequence = std::max(
      config.model.max_sequence, static_cast<int64_t>(request.prompt.size()) + request.tokens);
  ConsoleLogger logger(context.console);
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<GeminiPlugin> plugin,
                          GeminiPlugin::Create({.memory = &config.memory,
                                                .threads = ThreadsOf(config.train),
                                                .compute_dtype = config.model.parameter_dtype,
                                                .gradient_dtype = config.model.parameter_dtype,
                                                .clock = &clock,
                                                .logger = &logger,
                                                .files = context.files}));
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<DecoderModel> model,
                          FrozenModel(*plugin, config.model));
  GANTRY_RETURN_IF_ERROR(GenerateText(*model, request, [](char) {}).status());  // dry
  GANTRY_RETURN_IF_ERROR(plugin->engine().Seal());
  GANTRY_RETURN_IF_ERROR(checkpoint.Restore(plugin->engine()));

  const bool stream = format == OutputFormat::kText;
  if (stream) context.console->Out(config.generate.prompt);
  const Nanoseconds begin = clock.Now();
  GANTRY_ASSIGN_OR_RETURN(std::string text, GenerateText(*model, request, [&](char byte) {
                            if (stream) context.console->Out({&byte, 1});
                          }));
  if (stream) context.console->Out("\n");
  return Generated{.step = checkpoint.manifest().position.step,
                   .text = std::move(text),
                   .seconds = static_cast<double>(clock.Now() - begin) * 1e-9};
}

}  // namespace

CommandResult GenerateCommand(Arguments arguments, const CommandContext& context) {
  const absl::StatusOr<OutputFormat> format = TakeOutputFormat(arguments);
  if (!format.ok()) return UsageError(format.status());
  const absl::StatusOr<RunConfig> config = TakeConfig(*context.files, arguments, RunConfig());
  if (!config.ok()) return UsageError(config.status());
  const absl::Status valid = CheckRequest(*config);
  if (!valid.ok()) return UsageError(valid);

  MonotonicClock clock;
  ConsoleLogger logger(context.console);
  ExitCheck exit_check({.files = context.files,
                        .clock = &clock,
                        .logger = &logger,
                        .spill_folders = config->memory.spill_dirs});
  const absl::StatusOr<Generated> generated = Generate(*config, context, *format, clock);
  const std::vector<std::string> left_behind = exit_check.Finish();
  if (!generated.ok()) return Failure(generated.status());
  if (*format == OutputFormat::kJson) {
    const Json json = {{"command", "generate"},
                       {"step", generated->step},
                       {"prompt", config->generate.prompt},
                       {"text", generated->text},
                       {"tokens", std::ssize(generated->text)},
                       {"seconds", generated->seconds},
                       {"left_behind", left_behind}};
    context.console->Out(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  if (context.stop->requested()) return {.exit_code = kExitInterrupted, .status = {}};
  return {};
}

}  // namespace gantry
