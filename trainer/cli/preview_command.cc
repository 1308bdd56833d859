#include "trainer/cli/preview_command.h"

#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/booster/run_config.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/console.h"
#include "trainer/cli/preview_report.h"
#include "trainer/data/example_encoder.h"
#include "trainer/data/example_lines.h"
#include "trainer/data/example_token_source.h"
#include "trainer/data/model_text.h"

namespace gantry {
namespace {

struct PreviewOptions {
  ModelText::Options model;
  std::string data;
  int64_t example = 1;  // among the lines, from 1
  int64_t sequence_length = 2048;
  bool skip_bad_lines = false;
  OutputFormat format = OutputFormat::kText;
};

absl::StatusOr<int64_t> TakeNumber(Arguments& arguments, std::string_view name, int64_t otherwise) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeValue(arguments, name));
  if (!text.has_value()) return otherwise;
  int64_t number = 0;
  const auto read = std::from_chars(text->data(), text->data() + text->size(), number);
  if (read.ec != std::errc() || read.ptr != text->data() + text->size() || number < 1) {
    return InvalidArgument("--", name, " is '", *text, "', but must be a number from 1 on");
  }
  return number;
}

absl::StatusOr<PreviewOptions> TakeOptions(Arguments arguments) {
  PreviewOptions options;
  GANTRY_ASSIGN_OR_RETURN(options.format, TakeOutputFormat(arguments));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> model, TakeValue(arguments, "model"));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> data, TakeValue(arguments, "data"));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> chat_template,
                          TakeValue(arguments, "chat-template"));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> date, TakeValue(arguments, "date"));
  GANTRY_ASSIGN_OR_RETURN(options.example, TakeNumber(arguments, "example", options.example));
  GANTRY_ASSIGN_OR_RETURN(options.sequence_length,
                          TakeNumber(arguments, "sequence-length", options.sequence_length));
  GANTRY_ASSIGN_OR_RETURN(const bool last_turn, TakeFlag(arguments, "last-turn"));
  GANTRY_ASSIGN_OR_RETURN(options.skip_bad_lines, TakeFlag(arguments, "skip-bad-lines"));
  GANTRY_RETURN_IF_ERROR(ExpectNothingElse(arguments));
  if (!model.has_value() || !data.has_value()) {
    return InvalidArgument(
        "name a model's folder and a data file: gantry preview --model=DIR --data=FILE");
  }
  options.data = *data;
  options.model.folder = *model;
  options.model.chat_template_file = chat_template.value_or("");
  options.model.scored_turns = last_turn ? ScoredTurns::kLast : ScoredTurns::kAll;
  options.model.now = LocalTime(std::time(nullptr));
  if (date.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(options.model.now, ParseDate(*date));
  }
  return options;
}

absl::StatusOr<std::string> MakePreview(const PreviewOptions& options, FileCalls& files) {
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<ModelText> model,
                          ModelText::Load(files, options.model));
  GANTRY_ASSIGN_OR_RETURN(
      const std::unique_ptr<ExampleLines> lines,
      ExampleLines::Open(files, {.files = {options.data}, .encoder = &model->encoder()}));
  if (options.example > lines->count()) {
    return InvalidArgument("'", options.data, "' has ", lines->count(),
                           " lines, so there is no example ", options.example);
  }
  GANTRY_ASSIGN_OR_RETURN(std::optional<EncodedExample> example,
                          lines->Encode(options.example - 1));
  if (!example.has_value()) {
    return InvalidArgument("'", options.data, "', line ", options.example, " is blank");
  }
  example->Truncate(options.sequence_length + 1);
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadTeam> team,
                          ThreadTeam::Create({.threads = ThreadsOf(TrainConfig())}));
  GANTRY_ASSIGN_OR_RETURN(const ExampleSet set,
                          OpenExamples(files, *team,
                                       {.files = {options.data},
                                        .encoder = &model->encoder(),
                                        .source = {.sequence_length = options.sequence_length,
                                                   .padding_token = model->padding_token(),
                                                   .seed = 1},
                                        .skip_bad_lines = options.skip_bad_lines}));
  const Preview preview{.example = options.example,
                        .encoded = *std::move(example),
                        .tokenizer = &model->tokenizer(),
                        .summary = set.summary,
                        .sequence_length = options.sequence_length,
                        .examples = set.training->examples(),
                        .sequences = set.training->sequences_per_epoch(),
                        .padding_positions = set.training->padding_positions()};
  if (options.format == OutputFormat::kJson) return PreviewJson(preview);
  return PreviewText(preview, isatty(STDOUT_FILENO) == 1 ? MaskStyle::kColour : MaskStyle::kMarks);
}

}  // namespace

CommandResult PreviewCommand(Arguments arguments, const CommandContext& context) {
  const absl::StatusOr<PreviewOptions> options = TakeOptions(std::move(arguments));
  if (!options.ok()) return UsageError(options.status());
  const absl::StatusOr<std::string> preview = MakePreview(*options, *context.files);
  if (!preview.ok()) return Failure(preview.status());
  context.console->Out(*preview);
  return {};
}

}  // namespace gantry
