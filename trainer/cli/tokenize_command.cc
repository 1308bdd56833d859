#include "trainer/cli/tokenize_command.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
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
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/console.h"
#include "trainer/tokenizer/encoding.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFileBytesMax = int64_t{1} << 30;

struct TokenizeRequest {
  std::string model;
  std::optional<std::string> text;
  std::optional<std::string> file;
  EncodeOptions options = {.want_offsets = true};
  OutputFormat format = OutputFormat::kText;
};

absl::StatusOr<TokenizeRequest> ParseRequest(Arguments arguments) {
  TokenizeRequest request;
  GANTRY_ASSIGN_OR_RETURN(request.format, TakeOutputFormat(arguments));
  GANTRY_ASSIGN_OR_RETURN(const bool is_plain, TakeFlag(arguments, "no-special-tokens"));
  request.options.add_special_tokens = !is_plain;
  GANTRY_ASSIGN_OR_RETURN(std::optional<std::string> model, TakeValue(arguments, "model"));
  GANTRY_ASSIGN_OR_RETURN(request.text, TakeValue(arguments, "text"));
  GANTRY_ASSIGN_OR_RETURN(request.file, TakeValue(arguments, "file"));
  GANTRY_RETURN_IF_ERROR(ExpectNothingElse(arguments));
  if (!model.has_value()) {
    return InvalidArgument("name the model: --model=FOLDER, which holds a tokenizer.json");
  }
  if (request.text.has_value() == request.file.has_value()) {
    return InvalidArgument("give either --text=TEXT or --file=PATH");
  }
  request.model = *std::move(model);
  return request;
}

// A token as one word of a line: quoted, with control characters escaped.
std::string Quoted(std::string_view token) {
  return Json(token).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string EncodingText(const Tokenizer& tokenizer, const Encoding& encoding) {
  std::string text;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const TextRange& range = encoding.offsets[i];
    text += StrCat(encoding.ids[i], "\t", Quoted(tokenizer.TokenText(encoding.ids[i])), "\t",
                   range.begin, "-", range.end, "\n");
  }
  return text + StrCat(encoding.ids.size(), " tokens\n");
}

std::string EncodingJson(const Tokenizer& tokenizer, const Encoding& encoding) {
  Json tokens = Json::array();
  Json offsets = Json::array();
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    tokens.push_back(tokenizer.TokenText(encoding.ids[i]));
    offsets.push_back({encoding.offsets[i].begin, encoding.offsets[i].end});
  }
  const Json json = {{"command", "tokenize"},
                     {"ids", encoding.ids},
                     {"tokens", std::move(tokens)},
                     {"offsets", std::move(offsets)},
                     {"vocabulary_size", tokenizer.vocabulary_size()}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status Tokenize(const TokenizeRequest& request, const CommandContext& context) {
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          Tokenizer::Load(*context.files, request.model));
  std::string text = request.text.value_or("");
  if (request.file.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(text,
                            ReadFileToString(*context.files, *request.file, Bytes(kFileBytesMax)));
  }
  GANTRY_ASSIGN_OR_RETURN(const Encoding encoding, tokenizer->Encode(text, request.options));
  context.console->Out(request.format == OutputFormat::kJson ? EncodingJson(*tokenizer, encoding)
                                                             : EncodingText(*tokenizer, encoding));
  return absl::OkStatus();
}

}  // namespace

CommandResult TokenizeCommand(Arguments arguments, const CommandContext& context) {
  const absl::StatusOr<TokenizeRequest> request = ParseRequest(std::move(arguments));
  if (!request.ok()) return UsageError(request.status());
  const absl::Status status = Tokenize(*request, context);
  return status.ok() ? CommandResult{} : Failure(status);
}

}  // namespace gantry
