#include "trainer/data/model_text.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/chat_template.h"
#include "trainer/data/example_encoder.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/tokenizer_config.h"

namespace gantry {
namespace {

constexpr Bytes kTemplateBytesMax = 1_MiB;

// The template's text, if there is one. Published ones end without the newline that editors add,
// which the engine leaves out anyway.
absl::StatusOr<std::optional<std::string>> TemplateOf(FileCalls& files,
                                                      const ModelText::Options& options,
                                                      const TokenizerConfig& config) {
  if (!options.chat_template_file.empty()) {
    GANTRY_ASSIGN_OR_RETURN(std::string text,
                            ReadFileToString(files, options.chat_template_file, kTemplateBytesMax));
    return std::optional<std::string>(std::move(text));
  }
  const auto found = config.chat_templates.find("default");
  if (found == config.chat_templates.end()) return std::optional<std::string>();
  return std::optional<std::string>(found->second);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelText>> ModelText::Load(FileCalls& files,
                                                           const Options& options) {
  auto text = std::unique_ptr<ModelText>(new ModelText());
  GANTRY_ASSIGN_OR_RETURN(text->tokenizer_, Tokenizer::Load(files, options.folder));
  GANTRY_ASSIGN_OR_RETURN(const TokenizerConfig config, LoadTokenizerConfig(files, options.folder));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> source,
                          TemplateOf(files, options, config));
  if (source.has_value()) {
    absl::StatusOr<ChatTemplate> compiled = ChatTemplate::Compile(*source);
    if (!compiled.ok()) {
      const bool own = options.chat_template_file.empty();
      return MakeStatus(compiled.status().code(), "'",
                        own ? options.folder : options.chat_template_file,
                        "': ", FromAbsl(compiled.status().message()));
    }
    text->chat_template_ = *std::move(compiled);
  }
  GANTRY_ASSIGN_OR_RETURN(
      text->encoder_,
      ExampleEncoder::Create(
          {.tokenizer = text->tokenizer_.get(),
           .chat_template = text->chat_template_.has_value() ? &*text->chat_template_ : nullptr,
           .bos_token = config.bos_token.value_or(""),
           .eos_token = config.eos_token.value_or(""),
           .now = options.now,
           .scored_turns = options.scored_turns}));
  for (const std::optional<std::string>& token : {config.eos_token, config.pad_token}) {
    if (!token.has_value()) continue;
    text->padding_token_ = text->tokenizer_->TokenId(*token).value_or(text->padding_token_);
  }
  return text;
}

}  // namespace gantry
