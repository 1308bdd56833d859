#include "trainer/cli/generate_command.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
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
#include "base/wall_clock.h"
#include "chunk/chunk_layout.h"
#include "trainer/booster/gemini_plugin.h"
#include "trainer/booster/model_source.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/stop_source.h"
#include "trainer/booster/text_codec.h"
#include "trainer/booster/text_generator.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/config.h"
#include "trainer/cli/console.h"
#include "trainer/cli/exit_check.h"
#include "trainer/cli/interrupt.h"
#include "trainer/hugging_face/decoder_config_json.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_config.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

constexpr Bytes kPromptsBytesMax = 64_MiB;

struct Generated {
  std::optional<int64_t> step;  // of the checkpoint, if it is one
  std::vector<std::string> prompts;
  std::vector<GeneratedText> texts;  // one each
  double seconds;

  int64_t tokens() const {
    int64_t sum = 0;
    for (const GeneratedText& text : texts) sum += text.tokens;
    return sum;
  }
};

absl::Status CheckRequest(const RunConfig& config) {
  GANTRY_RETURN_IF_ERROR(ValidateModel(config));
  if (config.generate.checkpoint.empty() && config.model_path.empty()) {
    return InvalidArgument(
        "generate.checkpoint: name a checkpoint or a folder of them, as in --checkpoint=runs/a, or "
        "a "
        "model's folder in model.path");
  }
  if (config.generate.prompt.empty() && config.generate.prompts_file.empty()) {
    return InvalidArgument("generate.prompt: must have at least one byte");
  }
  return absl::OkStatus();
}

// The lines of a file, or the one prompt.
absl::StatusOr<std::vector<std::string>> PromptsOf(const GenerateConfig& config, FileCalls& files) {
  if (config.prompts_file.empty()) return std::vector<std::string>{config.prompt};
  const absl::StatusOr<std::string> text =
      ReadFileToString(files, config.prompts_file, kPromptsBytesMax);
  if (!text.ok()) {
    return MakeStatus(text.status().code(),
                      "generate.prompts_file: ", FromAbsl(text.status().message()));
  }
  std::vector<std::string> prompts;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    if (end == begin) {
      return InvalidArgument("generate.prompts_file: line ", prompts.size() + 1, " of ",
                             config.prompts_file, " is empty");
    }
    prompts.push_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  if (prompts.empty()) {
    return InvalidArgument("generate.prompts_file: ", config.prompts_file, " holds no prompt");
  }
  return prompts;
}

// A model that only reads its parameters.
absl::StatusOr<std::unique_ptr<DecoderModel>> FrozenModel(GeminiPlugin& plugin,
                                                          const DecoderConfig& config) {
  return DecoderModel::Create(plugin.context(), config, {.trainability = [](std::string_view) {
                                return Trainability::kFrozen;
                              }});
}

// The prompts in groups that go through the model together.
std::vector<TextRequest> RequestsOf(const std::vector<std::vector<int32_t>>& prompts,
                                    const GenerateConfig& config, const StopSource* stop) {
  std::vector<TextRequest> requests;
  for (size_t first = 0; first < prompts.size(); first += static_cast<size_t>(config.batch)) {
    const size_t count = std::min(prompts.size() - first, static_cast<size_t>(config.batch));
    const auto begin = prompts.begin() + static_cast<ptrdiff_t>(first);
    TextRequest request{.prompts = {begin, begin + static_cast<ptrdiff_t>(count)},
                        .tokens = config.tokens,
                        .sampling = config.sampling,
                        .stop_texts = config.stop,
                        .stop = stop};
    request.sampling.seed += first;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Shows one prompt's text as it comes, and several one after the other.
absl::StatusOr<std::vector<GeneratedText>> RunRequests(const DecoderModel& model,
                                                       const TextCodec& codec,
                                                       const std::vector<TextRequest>& requests,
                                                       const std::vector<std::string>& prompts,
                                                       Console* shown) {
  std::vector<GeneratedText> texts;
  const bool streams = shown != nullptr && prompts.size() == 1;
  if (streams) shown->Out(prompts[0]);
  for (const TextRequest& request : requests) {
    if (request.stop != nullptr && request.stop->requested()) break;
    GANTRY_ASSIGN_OR_RETURN(
        std::vector<GeneratedText> some,
        GenerateTexts(model, codec, request, [&](size_t, std::string_view piece) {
          if (streams) shown->Out(piece);
        }));
    for (GeneratedText& text : some) {
      if (shown != nullptr && !streams) {
        shown->Out(StrCat(prompts[texts.size()], text.text, "\n"));
      }
      texts.push_back(std::move(text));
    }
  }
  if (streams) shown->Out("\n");
  return texts;
}

// A prompt's tokens, as they are or as a message in the model's chat template.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const std::string& prompt, bool chat,
                                                  const ModelSource& source) {
  if (!chat) return source.codec().Encode(prompt);
  if (source.tokenizer == nullptr) {
    return InvalidArgument("generate.chat: a model over bytes has no chat template");
  }
  const Nanoseconds now = WallClock().Now();
  return source.tokenizer->EncodeChat(prompt, LocalTime(now / 1'000'000'000));
}

// What the text continues from: a checkpoint, or the model's folder alone.
struct Origin {
  std::optional<Checkpoint> checkpoint;
  ModelSource source;
};
absl::StatusOr<Origin> OpenOrigin(FileCalls* files, RunConfig& config) {
  Origin origin;
  if (config.generate.checkpoint.empty()) {
    GANTRY_ASSIGN_OR_RETURN(origin.source,
                            OpenModelSource(*files, ModelPurpose::kInference, config));
    return origin;
  }
  GANTRY_ASSIGN_OR_RETURN(origin.checkpoint, Checkpoint::Open(files, config.generate.checkpoint));
  const RunSettings& settings = origin.checkpoint->manifest().settings;
  GANTRY_RETURN_IF_ERROR(ApplyModelSettings(settings, config));
  GANTRY_ASSIGN_OR_RETURN(origin.source, OpenSavedModelSource(*files, settings, config));
  return origin;
}

absl::StatusOr<std::vector<TextRequest>> MakeRequests(const std::vector<std::string>& prompts,
                                                      const ModelSource& source,
                                                      const StopSource* stop, RunConfig& config) {
  std::vector<std::vector<int32_t>> encoded;
  for (const std::string& prompt : prompts) {
    GANTRY_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                            EncodePrompt(prompt, config.generate.chat, source));
    config.model.max_sequence =
        std::max(config.model.max_sequence, std::ssize(tokens) + config.generate.tokens);
    encoded.push_back(std::move(tokens));
  }
  std::vector<TextRequest> requests = RequestsOf(encoded, config.generate, stop);
  for (TextRequest& request : requests) request.end_tokens = source.end_tokens;
  return requests;
}

absl::StatusOr<Generated> Generate(RunConfig config, const CommandContext& context,
                                   OutputFormat format, Clock& clock) {
  Generated generated;
  GANTRY_ASSIGN_OR_RETURN(generated.prompts, PromptsOf(config.generate, *context.files));
  GANTRY_ASSIGN_OR_RETURN(const Origin origin, OpenOrigin(context.files, config));
  if (origin.checkpoint.has_value()) generated.step = origin.checkpoint->manifest().position.step;
  GANTRY_ASSIGN_OR_RETURN(const std::vector<TextRequest> requests,
                          MakeRequests(generated.prompts, origin.source, context.stop, config));
  ConsoleLogger logger(context.console);
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<GeminiPlugin> plugin,
                          GeminiPlugin::Create({.memory = &config.memory,
                                                .threads = ThreadsOf(config.train),
                                                .compute_dtype = ComputeDTypeOf(config.model),
                                                .gradient_dtype = config.model.parameter_dtype,
                                                .clock = &clock,
                                                .logger = &logger,
                                                .files = context.files}));
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<DecoderModel> model,
                          FrozenModel(*plugin, config.model));
  const TextCodec& codec = origin.source.codec();
  for (const TextRequest& request : requests) {  // dry
    GANTRY_RETURN_IF_ERROR(
        GenerateTexts(*model, codec, request, [](size_t, std::string_view) {}).status());
  }
  GANTRY_RETURN_IF_ERROR(plugin->engine().Seal());
  GANTRY_RETURN_IF_ERROR(
      origin.checkpoint.has_value()
          ? origin.checkpoint->Restore(plugin->engine())
          : LoadModelSource(context.files, origin.source, config, plugin->engine(), logger));
  const Nanoseconds begin = clock.Now();
  GANTRY_ASSIGN_OR_RETURN(generated.texts,
                          RunRequests(*model, codec, requests, generated.prompts,
                                      format == OutputFormat::kText ? context.console : nullptr));
  generated.seconds = static_cast<double>(clock.Now() - begin) * 1e-9;
  return generated;
}

std::string GeneratedJson(const Generated& generated, const std::vector<std::string>& left_behind) {
  Json texts = Json::array();
  for (size_t i = 0; i < generated.texts.size(); ++i) {
    const GeneratedText& text = generated.texts[i];
    texts.push_back({{"prompt", generated.prompts[i]},
                     {"text", text.text},
                     {"tokens", text.tokens},
                     {"end", Name(text.end)}});
  }
  Json json = {{"command", "generate"}, {"step", nullptr}};
  if (generated.step.has_value()) json["step"] = *generated.step;
  if (generated.prompts.size() == 1 && !generated.texts.empty()) {
    json.update(texts[0]);
  } else {
    json["tokens"] = generated.tokens();
    json["texts"] = std::move(texts);
  }
  json["seconds"] = generated.seconds;
  json["left_behind"] = left_behind;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
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
    context.console->Out(GeneratedJson(*generated, left_behind));
  }
  if (context.stop->requested()) return {.exit_code = kExitInterrupted, .status = {}};
  return {};
}

}  // namespace gantry
